# SPDX-License-Identifier: Apache-2.0
"""The terminal of `gsaas top`: a screen of its own, keys one by one, and a notice when the size changes.

A `with` block restores the terminal in whatever way it ends.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
import sys
import termios
import tty
from collections.abc import Sequence

from gsaasclient.cli.tables import clip

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TextIO

ENTER, LEAVE = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"
"""Switch to the alternate screen without a cursor, and back."""
HOME, REVERSED, PLAIN, END_OF_LINE, END_OF_SCREEN = (
    "\x1b[H",
    "\x1b[7m",
    "\x1b[m",
    "\x1b[K",
    "\x1b[J",
)
KEYS = {"\x1b[A": "up", "\x1b[B": "down", "\x1b[5~": "page up", "\x1b[6~": "page down"}
"""The escape sequences that terminals send for keys that are not characters."""
_ONE_KEY = re.compile(r"\x1b\[[0-9;]*[A-Za-z~]|.", re.DOTALL)
READ_SIZE = 32
"""Bytes to read at once."""


class Terminal:
    """A context manager, for the main thread only: Python handles signals in no other."""

    def __init__(self, keyboard: TextIO | None = None, screen: TextIO | None = None) -> None:
        self._keyboard = (keyboard or sys.stdin).fileno()
        self._screen = screen or sys.stdout
        self._pressed: list[str] = []

    def __enter__(self) -> Terminal:
        with contextlib.ExitStack() as cleanup:
            before = termios.tcgetattr(self._keyboard)
            cleanup.callback(termios.tcsetattr, self._keyboard, termios.TCSADRAIN, before)
            tty.setcbreak(self._keyboard)
            # Disable Ctrl-Z: a stopped program would leave its screen to the shell.
            mode = termios.tcgetattr(self._keyboard)
            mode[6][termios.VSUSP] = b"\0"
            termios.tcsetattr(self._keyboard, termios.TCSADRAIN, mode)

            # Python writes a byte to this pipe for every signal, which ends the wait for a key.
            self._wakeup, wakeup_writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
            cleanup.callback(os.close, self._wakeup)
            cleanup.callback(os.close, wakeup_writer)
            cleanup.callback(signal.set_wakeup_fd, signal.set_wakeup_fd(wakeup_writer))
            for number, handler in (
                (signal.SIGWINCH, lambda *_: None),  # a handler, so that the pipe is written to
                (signal.SIGTERM, lambda number, _: sys.exit(128 + number)),
            ):
                cleanup.callback(signal.signal, number, signal.signal(number, handler))

            self._write(ENTER)
            cleanup.callback(self._write, LEAVE)
            self._cleanup = cleanup.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._cleanup.close()

    @property
    def size(self) -> tuple[int, int]:
        """The current number of columns and of lines."""
        columns, lines = os.get_terminal_size(self._screen.fileno())
        return columns, lines

    def draw(self, lines: Sequence[str], reversed_line: int) -> None:
        """Show as much of *lines* as fits; the one with the index *reversed_line* in reverse video."""
        columns, rows = self.size
        drawn = [clip(line, columns) for line in lines[:rows]]
        if reversed_line < len(drawn):
            drawn[reversed_line] = REVERSED + clip(lines[reversed_line], columns, fill=True) + PLAIN
        self._write(HOME + f"{END_OF_LINE}\r\n".join(drawn) + END_OF_LINE + END_OF_SCREEN)

    def key(self, seconds: float) -> str | None:
        """Return a key that is pressed within *seconds*; None if none is, or if the size changes first.

        Raises `EOFError` if the terminal is closed.
        """
        if self._pressed:
            return self._pressed.pop(0)
        ready, _, _ = select.select([self._keyboard, self._wakeup], [], [], seconds)
        if self._wakeup in ready:
            os.read(self._wakeup, READ_SIZE)
        if self._keyboard not in ready:
            return None
        pressed = os.read(self._keyboard, READ_SIZE).decode(errors="replace")
        if not pressed:
            raise EOFError
        self._pressed = [KEYS.get(key, key) for key in _ONE_KEY.findall(pressed)]
        return self._pressed.pop(0)

    def _write(self, text: str) -> None:
        self._screen.write(text)
        self._screen.flush()
