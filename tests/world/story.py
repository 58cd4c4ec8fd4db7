# SPDX-License-Identifier: Apache-2.0
"""What happened in a world, one line each: when, who, and what."""

from __future__ import annotations

import hashlib
import logging

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


class Log(logging.Handler):
    """Tells what the processes log as warnings and errors."""

    def __init__(self, story: Story) -> None:
        super().__init__(logging.WARNING)
        self._story = story

    def emit(self, record: logging.LogRecord) -> None:
        said = record.getMessage().partition("\n")[0]
        if record.exc_info and record.exc_info[1] is not None:
            error = record.exc_info[1]
            said = f"{said}: {type(error).__name__}: {str(error).partition(chr(10))[0]}"
        self._story.tell(f"  log: {said}")
