# SPDX-License-Identifier: Apache-2.0
"""The help texts of `gsaas`. The program's own is written by hand; those of commands are made from their options."""

from __future__ import annotations

from gsaasclient.cli.commands import COMMANDS
from gsaasclient.cli.parser import CommandSpec, Option

WIDTH, NARROWEST = 100, 40
"""Columns of a terminal that help fills at most, and at least."""

INTRODUCTION = """\
usage: gsaas -l -ncgpus=N [option ...]      launch a VM with cGPUs
       gsaas -t -id=ID                      terminate a lease and its VM
       gsaas COMMAND [option ...]

A cGPU is a GPU, or a share of one, on any host of the cloud. Programs use it like a local GPU.

  gsaas models
      which GPUs there are, and how much of them is free
  gsaas -l -ncgpus=2
      a VM with two whole GPUs, which no other lease uses
  gsaas -l -ncgpus=2 -poolmem=2048 -mode=shared
      two cGPUs of 2048 MiB each, on GPUs that other leases may share
  gsaas -l -ncgpus=8 -poolmem=4096 -mode=shared -locality=local
      eight cGPUs of 4096 MiB each, and the VM on the host that owns their GPUs
  gsaas -l -ncgpus=2 -locality=local
      two whole GPUs, and the VM on their host
  gsaas -t -id=ID
      destroy the VM, and return its cGPUs to the pool
  gpus=$(gsaas alloc -ncgpus=1) && eval "$gpus"
      one whole GPU for the programs of this shell; gsaas release returns it
"""

SUMMARY = "use GPUs, or shares of GPUs, of a cloud"
NOTATION = """\
gsaas COMMAND --help describes a command; gsaas --version prints the release. The value of an
option follows = or a space, and two dashes are accepted as well as one. An ID is the id of a
lease or of its VM, the beginning of it, or the name of the lease.
"""
OUTPUT = """\
Commands that list or show resources print a table, or with -f=json, csv, value or yaml what
programs can read. -c=COLUMN picks a column; repeat it for several, in the order wanted.
"""
CREDENTIALS = """\
Credentials are read from the JSON file that GSAAS_CREDENTIALS names (the address of the API and
a token); without it, from Keystone as OS_CLOUD and clouds.yaml or the other OS_ variables say;
without these, from /run/gsaas/credentials.json, which gsaas-standalone writes.
"""
EXIT_STATUSES = """\
The exit status is 0 on success, 1 on failure or refusal, 2 if the command line is not valid,
3 if the request does not fit now, 4 if it can never fit, and 130 after an interrupt.
GSAAS_DEBUG=1 prints a traceback for unexpected errors.
"""


def of_program(width: int = WIDTH) -> str:
    """Return the help of `gsaas` itself, for a terminal of *width* columns."""
    lines = [*_fitted(INTRODUCTION, width), "", "Commands:"]
    for command in COMMANDS.values():
        lines += _hanging(f"  {command.name:<13}", command.help.summary, width)
    for part in (NOTATION, OUTPUT, CREDENTIALS, EXIT_STATUSES):
        lines += ["", *_fitted(part, width)]
    return "\n".join([*lines, ""])


def of_command(command: CommandSpec, width: int = WIDTH) -> str:
    """Return the help of one command, for a terminal of *width* columns."""
    summary = command.help.summary[0].upper() + command.help.summary[1:]
    options = [(_notation(option), option.help) for option in command.options]
    longest = max((len(notation) for notation, _ in options), default=0)
    lines = [f"usage: {command.help.usage}", "", *_fitted(f"{summary}.", width), ""]
    for notation, description in options:
        if longest > width // 2:  # too little is left beside it
            lines += [f"  {notation}", *_hanging(" " * 6, description, width)]
        else:
            lines += _hanging(f"  {notation:<{longest}}  ", description, width)
    details = _fitted(command.help.details, width)
    lines += [*details, "", "example:", f"  {command.help.example}", ""]
    return "\n".join(lines)


def columns() -> int:
    """Return how many columns help has on standard output: `WIDTH`, or less on a narrow terminal."""
    from shutil import get_terminal_size

    return max(NARROWEST, min(WIDTH, get_terminal_size((WIDTH, 24)).columns))


def _fitted(text: str, width: int) -> list[str]:
    """Return the lines of *text*; on less than `WIDTH`, paragraphs are wrapped, and what is indented is not."""
    from textwrap import wrap

    lines = text.splitlines()
    if width >= WIDTH:
        return lines
    found: list[str] = []
    paragraph: list[str] = []
    for line in [*lines, ""]:
        if line and not line.startswith((" ", "usage:")):
            paragraph.append(line)
            continue
        found += [*wrap(" ".join(paragraph), width), line]
        paragraph = []
    return found[:-1]


def _notation(option: Option) -> str:
    """Return how an option is written, with all its names: `-f=table|json, -format=table|json`."""
    value = "" if option.metavar is None else f"={option.metavar}"
    if option.bare_value is not None:
        value = f"[{value}]"
    return ", ".join(f"-{name}{value}" for name in option.names)


def _hanging(head: str, text: str, width: int) -> list[str]:
    """Return *text* in lines of at most *width* columns: the first after *head*, the others indented by its length."""
    from textwrap import wrap

    return wrap(text, width, initial_indent=head, subsequent_indent=" " * len(head))
