"""`gsaas`, the program: one line in, an answer and an exit status out; never a traceback."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from gsaas.cli.commands import COMMANDS
from gsaas.cli.exit_statuses import BUSY, DONE, FAILED, INTERRUPTED, WRONG_USAGE, status_of
from gsaas.cli.parser import HelpRequested, UsageError, parse

DEBUG_VARIABLE = "GSAAS_DEBUG"


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line (without the program's name) and return its exit status."""
    words = sys.argv[1:] if argv is None else list(argv)
    try:
        status = _run(words)
        sys.stdout.flush()
        return status
    except BrokenPipeError:
        # Whoever read our output has seen enough; Python must not complain of it while it exits.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE
    except KeyboardInterrupt as interrupt:
        _say(str(interrupt) or "interrupted")
        return INTERRUPTED
    except Exception as error:
        if os.environ.get(DEBUG_VARIABLE):
            raise
        _say(f"unexpected {type(error).__name__}: {error}; {DEBUG_VARIABLE}=1 shows where")
        return FAILED


def _run(words: Sequence[str]) -> int:
    if not words:
        return _help(None, sys.stderr, WRONG_USAGE)
    if words[0].lstrip("-") == "version" and words[0].startswith("-"):
        from importlib.metadata import version

        print(f"gsaas {version('gsaas')}")
        return DONE
    try:
        command, values = parse(words, COMMANDS)
    except HelpRequested as wanted:
        return _help(wanted.command, sys.stdout, DONE)
    except UsageError as error:
        return _usage(error)

    from importlib import import_module

    from gsaas.client import ApiError, Client, ClientError, StillBusyError, find_credentials

    module, function = command.handler.split(":")
    handler = getattr(import_module(f"gsaas.cli.{module}"), function)
    try:
        client = None if command.offline else Client(find_credentials(os.environ))
        return handler(client, values)
    except UsageError as error:  # what only the command itself can see
        error.command = command.name
        return _usage(error)
    except ApiError as error:
        from gsaas.cli.error_details import explain

        _say(str(error))
        for line in explain(error):
            print(line, file=sys.stderr)
        status = status_of(error.code)
        return command.failure_status if status == FAILED else status
    except ClientError as error:
        _say(str(error))
        return BUSY if isinstance(error, StillBusyError) else command.failure_status


def _help(command: str | None, stream, status: int) -> int:
    from gsaas.cli import help

    print(help.program() if command is None else help.command(COMMANDS[command]), file=stream)
    return status


def _usage(error: UsageError) -> int:
    _say(str(error))
    print(f"  see: gsaas {f'{error.command} ' if error.command else ''}--help", file=sys.stderr)
    return WRONG_USAGE


def _say(sentence: str) -> None:
    print(f"gsaas: {sentence}", file=sys.stderr)
