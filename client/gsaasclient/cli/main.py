# SPDX-License-Identifier: Apache-2.0
"""`gsaas`, the program: parses the command line, runs the command, and returns its exit status.

Errors are one sentence on standard error; a traceback is printed only if GSAAS_DEBUG is set.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from gsaasclient.cli.commands import COMMANDS
from gsaasclient.cli.exit_statuses import BUSY, DONE, FAILED, INTERRUPTED, WRONG_USAGE, status_of
from gsaasclient.cli.parser import HelpRequested, UsageError, parse
from gsaasclient.cli.standard_files import OutputError, Writing, open_closed, say

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gsaasclient import Client
    from gsaasclient.cli.parser import CommandSpec

DEBUG_VARIABLE = "GSAAS_DEBUG"
RENEW = "renew-token"
"""What the program in C runs when its cached token is not accepted any more (launcher/python.h). Not for users."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line, given without the program's name, and return its exit status."""
    words = sys.argv[1:] if argv is None else list(argv)
    open_closed()
    try:
        status = _run(words)
        with Writing():
            return status
    except BrokenPipeError:  # the reader of our output, such as `head`, has ended
        return DONE
    except OutputError as error:
        _print_error(str(error))
        return FAILED
    except KeyboardInterrupt as interrupt:
        _print_error(str(interrupt) or "interrupted")
        return INTERRUPTED
    except Exception as error:
        if os.environ.get(DEBUG_VARIABLE):
            raise
        _print_error(f"unexpected {type(error).__name__}: {error}; {DEBUG_VARIABLE}=1 shows where")
        return FAILED


def _run(words: Sequence[str]) -> int:
    if not words:
        return _print_help(None, WRONG_USAGE)
    if words[0].lstrip("-") == "version":
        from importlib.metadata import version

        with Writing():
            print(f"gsaas {version('python-gsaasclient')}")
        return DONE
    if words == [RENEW]:
        return _renew_token()
    try:
        command, values = parse(words, COMMANDS)
    except HelpRequested as request:
        return _print_help(request.command, DONE)
    except UsageError as error:
        return _print_usage_error(error)

    # Imported here: neither help nor a line that is not valid needs the client.
    from importlib import import_module

    from gsaasclient import ApiError, ClientError, StillBusyError

    module, function = command.handler.function.split(":")
    handler = getattr(import_module(f"gsaasclient.cli.{module}"), function)
    try:
        client = None if command.handler.offline else _client(command)
        status: int = handler(client, values)
        return status
    except UsageError as error:  # a rule that only the command itself can check
        error.command = command.name
        return _print_usage_error(error)
    except ApiError as error:
        from gsaasclient.cli.error_details import explain, sentence

        _print_error(sentence(error))
        for line in explain(error):
            say(f"{line}\n")
        status = status_of(error.code)
        return command.handler.failure_status if status == FAILED else status
    except ClientError as error:
        _print_error(str(error))
        return BUSY if isinstance(error, StillBusyError) else command.handler.failure_status


def _client(command: CommandSpec) -> Client:
    """Return the client for a command, with the credentials of the environment. Raises `CredentialsError`."""
    from gsaasclient.api import Client
    from gsaasclient.credentials import CREDENTIALS_VARIABLE, are_two, find_credentials

    credentials = find_credentials(os.environ)
    if are_two(os.environ):
        say(f"note: {CREDENTIALS_VARIABLE} is used, and not the OS_ variables\n")
    if sys.stderr.isatty() and not command.handler.lends_terminal:
        from gsaasclient.cli.patience import PatientClient

        return PatientClient(credentials)
    return Client(credentials)


def _renew_token() -> int:
    from gsaasclient import ClientError
    from gsaasclient.credentials import KeystoneCredentials

    try:
        KeystoneCredentials(os.environ).renew()
    except ClientError as error:
        _print_error(str(error))
        return FAILED
    return DONE


def _print_help(command: str | None, status: int) -> int:
    """Print help as what was asked for, or, with another *status* than `DONE`, as an error message."""
    from gsaasclient.cli import help

    width = help.columns()
    text = help.of_program(width) if command is None else help.of_command(COMMANDS[command], width)
    if status == DONE:
        with Writing():
            print(text)
    else:
        say(f"{text}\n")
    return status


def _print_usage_error(error: UsageError) -> int:
    _print_error(str(error))
    say(f"  see: gsaas {f'{error.command} ' if error.command else ''}--help\n")
    return WRONG_USAGE


def _print_error(sentence: str) -> None:
    # Not gsaasclient.cli.output's: help must not load what that imports.
    say(f"gsaas: {sentence}\n")
