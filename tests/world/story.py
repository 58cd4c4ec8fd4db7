# SPDX-License-Identifier: Apache-2.0
"""What happened in a world, one line each: when, who, and what."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

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
    """What the processes and their libraries log; the story has the first line of each warning and error of GSaaS.

    *on_mistake* is told what is a mistake of a program, *on_logged* each whole message with its exceptions, which is
    all that a log can have of what is secret: a traceback has lines of programs besides.
    """

    def __init__(
        self, story: Story, on_mistake: Callable[[str], None], on_logged: Callable[[str], None]
    ) -> None:
        super().__init__()
        self._story = story
        self._on_mistake = on_mistake
        self._on_logged = on_logged

    def emit(self, record: logging.LogRecord) -> None:
        message = record.getMessage()
        error = record.exc_info[1] if record.exc_info else None
        self._on_logged("\n".join([message, *map(str, _with_causes(error))]))
        if record.levelno < logging.WARNING or not record.name.startswith("gsaas"):
            return
        said = message.partition("\n")[0]
        if error is not None:
            said = f"{said}: {type(error).__name__}: {str(error).partition(chr(10))[0]}"
            if isinstance(error, MISTAKES):
                self._on_mistake(f"mistake: {said}")
        self._story.tell(f"  log: {said}")

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Get all that is logged meanwhile, of GSaaS also what only an operator wants who looks for a mistake."""
        root, own = logging.getLogger(), logging.getLogger("gsaas")
        handlers, level = root.handlers, own.level
        root.handlers = [self]
        own.setLevel(logging.DEBUG)
        try:
            yield
        finally:
            root.handlers = handlers
            own.setLevel(level)


def _with_causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an exception, and those that a traceback of it shows besides."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__
