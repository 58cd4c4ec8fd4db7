# SPDX-License-Identifier: Apache-2.0
"""Standard input, output and error: open, whatever the caller has closed, and written when it is said that they are.

1. A file that the caller has closed fails at every use. Otherwise the next file that is opened, such as the connection
   to the API, would take its number, and output would be sent there.
2. Output that cannot be written is an error: `OutputError`, or `BrokenPipeError` if its reader has ended.
3. What cannot be written to standard error is lost, and changes nothing: the exit status remains.
"""

from __future__ import annotations

import os
import sys

from gsaasclient.errors import ClientError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TextIO


class OutputError(ClientError):
    """The output could not be written."""


def open_closed() -> None:
    """Open a file that fails at every use in place of each standard file that the caller has closed."""
    for number, mode in ((0, os.O_WRONLY), (1, os.O_RDONLY), (2, os.O_RDONLY)):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, mode)  # it gets the lowest free number, which is this one
    if sys.stdin is None:
        sys.stdin = os.fdopen(0, closefd=False)
    if sys.stdout is None:
        sys.stdout = os.fdopen(1, "w", closefd=False)
    if sys.stderr is None:
        sys.stderr = _standard_error()


class Writing:
    """A block whose output is written when it ends. Raises `OutputError`, or `BrokenPipeError` if its reader has ended.

    Not a generator: help, which loads as little as it can, uses it.
    """

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if error is None:
            try:
                sys.stdout.flush()
            except OSError as failure:
                error = failure
        if isinstance(error, OSError):
            # Python writes once more when it ends, and would print a traceback then.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            if isinstance(error, BrokenPipeError):
                raise error
        if isinstance(error, OSError | UnicodeEncodeError):
            reason = getattr(error, "strerror", None) or error
            raise OutputError(f"the output could not be written: {reason}") from error


def say(text: str, stream: TextIO | None = None) -> None:
    """Write *text* to *stream*, by default standard error."""
    to = sys.stderr if stream is None else stream
    if to is None:  # closed by the caller of a program that has not called `open_closed`
        return
    try:
        to.write(text)
        to.flush()
    except OSError:
        if stream is None:
            # Without the text, which Python would write once more when it ends.
            sys.stderr = _standard_error()


def _standard_error() -> TextIO:
    return os.fdopen(2, "w", buffering=1, errors="backslashreplace", closefd=False)
