"""A terminal as `gsaas top` uses it: a screen of its own, keys one by one, and a word when its size changes.

Whatever ends the block, the terminal is then as it was before.
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

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TextIO

ENTER, LEAVE = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"
"""Another screen, without a cursor; and back."""
HOME, REVERSED, PLAIN, END_OF_LINE, END_OF_SCREEN = (
    "\x1b[H",
    "\x1b[7m",
    "\x1b[m",
    "\x1b[K",
    "\x1b[J",
)
KEYS = {"\x1b[A": "up", "\x1b[B": "down", "\x1b[5~": "page up", "\x1b[6~": "page down"}
"""What terminals send for keys that are no characters."""
_ONE_KEY = re.compile(r"\x1b\[[0-9;]*[A-Za-z~]|.", re.DOTALL)
LONGEST = 32
"""Bytes that one look at the keyboard takes."""


class Terminal:
    """A context manager; only for the main thread, which alone hears of signals."""

    def __init__(self, keyboard: TextIO | None = None, screen: TextIO | None = None) -> None:
        self._keyboard = (keyboard or sys.stdin).fileno()
        self._screen = screen or sys.stdout
        self._pressed: list[str] = []

    def __enter__(self) -> Terminal:
        with contextlib.ExitStack() as undo:
            before = termios.tcgetattr(self._keyboard)
            undo.callback(termios.tcsetattr, self._keyboard, termios.TCSADRAIN, before)
            tty.setcbreak(self._keyboard)
            # A stopped program would leave its screen to the shell.
            mode = termios.tcgetattr(self._keyboard)
            mode[6][termios.VSUSP] = b"\0"
            termios.tcsetattr(self._keyboard, termios.TCSADRAIN, mode)

            self._woken, wakes = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
            undo.callback(os.close, self._woken)
            undo.callback(os.close, wakes)
            undo.callback(signal.set_wakeup_fd, signal.set_wakeup_fd(wakes))
            for number, handler in (
                (signal.SIGWINCH, lambda *_: None),  # that the pipe is written to is enough
                (signal.SIGTERM, lambda number, _: sys.exit(128 + number)),
            ):
                undo.callback(signal.signal, number, signal.signal(number, handler))

            self._write(ENTER)
            undo.callback(self._write, LEAVE)
            self._undo = undo.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._undo.close()

    @property
    def size(self) -> tuple[int, int]:
        """Columns and lines, as they are now."""
        return tuple(os.get_terminal_size(self._screen.fileno()))

    def draw(self, lines: Sequence[str], reversed_line: int) -> None:
        """Show these lines, as many and as much of each as there is room for."""
        columns, rows = self.size
        drawn = [line[:columns] for line in lines[:rows]]
        if reversed_line < len(drawn):
            drawn[reversed_line] = REVERSED + drawn[reversed_line].ljust(columns) + PLAIN
        self._write(HOME + f"{END_OF_LINE}\r\n".join(drawn) + END_OF_LINE + END_OF_SCREEN)

    def key(self, seconds: float) -> str | None:
        """Return the key that is pressed within so many seconds; None if none is, or the size changes before.

        Raises `EOFError` when the terminal is gone.
        """
        if self._pressed:
            return self._pressed.pop(0)
        ready, _, _ = select.select([self._keyboard, self._woken], [], [], seconds)
        if self._woken in ready:
            os.read(self._woken, LONGEST)
        if self._keyboard not in ready:
            return None
        pressed = os.read(self._keyboard, LONGEST).decode(errors="replace")
        if not pressed:
            raise EOFError
        self._pressed = [KEYS.get(key, key) for key in _ONE_KEY.findall(pressed)]
        return self._pressed.pop(0)

    def _write(self, text: str) -> None:
        self._screen.write(text)
        self._screen.flush()
