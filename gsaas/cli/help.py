"""What `--help` says. The program's own is plain text, because it teaches rather than lists."""

from __future__ import annotations

from gsaas.cli.commands import COMMANDS
from gsaas.cli.parser import CommandSpec, Option

WIDTH = 96

INTRODUCTION = """\
usage: gsaas -l -ncgpus=N [option ...]      launch a VM with cGPUs
       gsaas -t -id=ID                      terminate one
       gsaas COMMAND [option ...]

A cGPU is a GPU, or a share of one, on any host of the cloud, that works as if it were in your VM.

  gsaas -l -ncgpus=2
      a VM with two whole GPUs, yours alone
  gsaas -l -ncgpus=2 -poolmem=2048 -mode=shared
      two cGPUs of 2048 MiB each, on GPUs that others may share
  gsaas -l -ncgpus=8 -poolmem=4096 -mode=shared -locality=local
      eight cGPUs of 4096 MiB, with the VM on the very host that owns the GPUs
  gsaas -l -ncgpus=2 -locality=local
      two whole GPUs, with the VM on their host
  gsaas -t -id=ID
      end it: the VM is destroyed, its cGPUs go back to the pool
  gpus=$(gsaas alloc -ncgpus=1) && eval "$gpus"
      one whole GPU for the programs of this shell; gsaas release gives it back
"""

CONCLUSION = """\
gsaas COMMAND --help tells more, and gsaas --version which release this is. A value follows = or
a space, and two dashes do as well as one. An ID is a lease's id, its VM's id, or its name.

Credentials come from the JSON file that GSAAS_CREDENTIALS names (the address of the API and a
token); else from Keystone, as OS_CLOUD and clouds.yaml or the other OS_ variables say; else from
/run/gsaas/credentials.json, which gsaas-standalone writes.

The exit status is 0 when it is done, 1 when it failed or was refused, 2 when the line makes no
sense, 3 when there is nothing to be had now, 4 when there never will be, and 130 when it was
interrupted. GSAAS_DEBUG=1 shows where an unexpected error came from.
"""


def program() -> str:
    """The help of `gsaas` itself."""
    words = "\n".join(f"  {c.name:<11}{c.summary}" for c in COMMANDS.values())
    return f"{INTRODUCTION}\nCommands:\n{words}\n\n{CONCLUSION}"


def command(command: CommandSpec) -> str:
    """The help of one command."""
    summary = command.summary[0].upper() + command.summary[1:]
    options = [(_spelling(o), o.help) for o in command.options]
    column = max((len(name) for name, _ in options), default=0)
    lines = [f"usage: {command.usage}", "", f"{summary}.", ""]
    for name, meaning in options:
        lines += _hanging(f"  {name:<{column}}  ", meaning)
    lines += [*command.details.splitlines(), "", "example:", f"  {command.example}", ""]
    return "\n".join(lines)


def _spelling(option: Option) -> str:
    value = "" if option.metavar is None else f"={option.metavar}"
    if option.bare_value is not None:
        value = f"[{value}]"
    return ", ".join(f"-{name}{value}" for name in option.names)


def _hanging(head: str, text: str) -> list[str]:
    """*text* in lines of at most `WIDTH`, the first after *head*, the rest under its beginning."""
    from textwrap import wrap

    return wrap(text, WIDTH, initial_indent=head, subsequent_indent=" " * len(head))
