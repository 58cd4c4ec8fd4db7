"""Where words go: answers to standard output, what happens meanwhile to standard error."""

from __future__ import annotations

import json
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, TextIO

ERASE_LINE = "\r\x1b[K"


def print_json(value: Any) -> None:
    print(json.dumps(value, indent=2, ensure_ascii=False))


def note(sentence: str) -> None:
    """Something worth knowing that is not the answer."""
    print(f"note: {sentence}", file=sys.stderr)


class Progress:
    """One line that tells how a lease gets on, rewritten in place; silent where nobody watches."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._watched = self._stream.isatty()
        self._begun = time.monotonic()
        self._steps: list[str] = []
        self._detail = ""

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        self._write(ERASE_LINE)

    @property
    def watched(self) -> bool:
        """Does somebody watch?"""
        return self._watched

    def show(self, status: str, detail: str = "") -> None:
        """Add *status* if it is a new one, and show how long it has been.

        *detail* is about the status as it is now. Where nobody watches, each new one is a line of its own.
        """
        if self._steps[-1:] != [status]:
            self._steps.append(status)
        elapsed = time.monotonic() - self._begun
        told = f" ({detail})" if detail else ""
        self._write(f"{ERASE_LINE}{' → '.join(self._steps)}{told}  {elapsed:.1f} s")
        if detail and not self._watched and detail != self._detail:
            print(f"{status}: {detail}", file=self._stream, flush=True)
        self._detail = detail

    def _write(self, text: str) -> None:
        if self._watched:
            self._stream.write(text)
            self._stream.flush()
