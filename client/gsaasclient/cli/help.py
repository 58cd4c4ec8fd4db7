# SPDX-License-Identifier: Apache-2.0
"""The help texts of `gsaas`. The program's own is written by hand; those of commands are made from their options."""

from __future__ import annotations

from gsaasclient.cli.commands import COMMANDS
from gsaasclient.cli.parser import CommandSpec, Option

WIDTH = 96
"""Columns of a terminal that help fills at most."""

INTRODUCTION = """\
usage: gsaas -l -ncgpus=N [option ...]      launch a VM with cGPUs
       gsaas -t -id=ID                      terminate a lease and its VM
       gsaas COMMAND [option ...]

A cGPU is a GPU, or a share of one, on any host of the cloud. Programs use it like a local GPU.

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


def of_program() -> str:
    """Return the help of `gsaas` itself."""
    commands = "\n".join(f"  {c.name:<13}{c.help.summary}" for c in COMMANDS.values())
    conclusion = "\n".join((NOTATION, OUTPUT, CREDENTIALS, EXIT_STATUSES))
    return f"{INTRODUCTION}\nCommands:\n{commands}\n\n{conclusion}"


def of_command(command: CommandSpec) -> str:
    """Return the help of one command."""
    summary = command.help.summary[0].upper() + command.help.summary[1:]
    options = [(_notation(option), option.help) for option in command.options]
    width = max((len(notation) for notation, _ in options), default=0)
    lines = [f"usage: {command.help.usage}", "", f"{summary}.", ""]
    for notation, description in options:
        lines += _hanging(f"  {notation:<{width}}  ", description)
    lines += [*command.help.details.splitlines(), "", "example:", f"  {command.help.example}", ""]
    return "\n".join(lines)


def _notation(option: Option) -> str:
    """Return how an option is written, with all its names: `-f=table|json, -format=table|json`."""
    value = "" if option.metavar is None else f"={option.metavar}"
    if option.bare_value is not None:
        value = f"[{value}]"
    return ", ".join(f"-{name}{value}" for name in option.names)


def _hanging(head: str, text: str) -> list[str]:
    """Return *text* in lines of at most `WIDTH` columns: the first after *head*, the others indented by its length."""
    from textwrap import wrap

    return wrap(text, WIDTH, initial_indent=head, subsequent_indent=" " * len(head))
