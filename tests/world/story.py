# SPDX-License-Identifier: Apache-2.0
"""What happened in a world, one line each: when, who, and what."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable

from tests.world import baton


class Story:
    """The lines of one world. The same seed gives the same lines, in any process."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def tell(self, what: str, who: str | None = None) -> None:
        """Add a line about the process *who*, by default that of the task that runs."""
        scheduler = baton.here()
        name = who or scheduler.current.process.name
        self.lines.append(f"{scheduler.now:9.3f}  {name:<10} {what}")

    def digest(self) -> str:
        """Return what two equal stories have in common."""
        return hashlib.sha256("\n".join(self.lines).encode()).hexdigest()[:16]


MISTAKES = (AttributeError, NameError, TypeError, AssertionError, ArithmeticError)
"""Errors of programs, which nothing that fails around them explains."""


class Log(logging.Handler):
    """Tells what the processes log as warnings and errors; *on_mistake* is told what is a mistake of theirs."""

    def __init__(self, story: Story, on_mistake: Callable[[str], None]) -> None:
        super().__init__(logging.WARNING)
        self._story = story
        self._on_mistake = on_mistake

    def emit(self, record: logging.LogRecord) -> None:
        said = record.getMessage().partition("\n")[0]
        if record.exc_info and record.exc_info[1] is not None:
            error = record.exc_info[1]
            said = f"{said}: {type(error).__name__}: {str(error).partition(chr(10))[0]}"
            if isinstance(error, MISTAKES):
                self._on_mistake(f"mistake: {said}")
        self._story.tell(f"  log: {said}")
