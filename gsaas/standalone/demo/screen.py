# SPDX-License-Identifier: Apache-2.0
"""The output of the demonstration: plain text, with a little colour on a terminal."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from textwrap import fill, indent
from typing import TextIO

WIDTH = 92
BOLD, DIM, RED, GREEN = "1", "2", "31", "32"


class Screen:
    """Prints to *stream*; in colour if it is a terminal and NO_COLOR is not set."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = sys.stdout if stream is None else stream
        self._coloured = self._stream.isatty() and not os.environ.get("NO_COLOR")

    def heading(self, text: str) -> None:
        """Print a heading between empty lines."""
        self._print(f"\n{self._paint(text, BOLD)}\n")

    def paragraph(self, text: str) -> None:
        """Print a paragraph, wrapped, and an empty line."""
        self._print(fill(text, WIDTH) + "\n")

    def command(self, words: Sequence[str]) -> None:
        """Print a command line as a user would have typed it."""
        self._print(self._paint(f"  $ {shlex.join(words)}", BOLD))

    def output(self, text: str) -> None:
        """Print what a command printed, indented; print nothing if there was no output."""
        if text.strip():
            self._print(indent(text.rstrip("\n"), "  ") + "\n")

    def proof(self, holds: bool, sentence: str) -> None:
        """Print the result of a proof."""
        mark = self._paint("holds ", GREEN) if holds else self._paint("FAILS ", RED)
        self._print(f"  {mark} {sentence}")

    def aside(self, text: str) -> None:
        """Print a remark of less importance."""
        self._print(self._paint(f"  {text}", DIM))

    def blank(self) -> None:
        """Print an empty line."""
        self._print("")

    def _paint(self, text: str, code: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self._coloured else text

    def _print(self, text: str) -> None:
        print(text, file=self._stream, flush=True)
