"""What a source of GPUs is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from gsaas.objects.gpu_report import Sight


class Unavailable(Exception):
    """The source cannot work here at all; the message says why, and what to do."""


class Source(Protocol):
    """Sees the GPUs of one host. Used by one thread."""

    def notify(self, news: Callable[[], None]) -> None:
        """Have *news* called, from any thread, when something happens that is worth a look at once."""

    def look(self) -> Sight:
        """Return all GPUs as they are now.

        A GPU that fails is withdrawn, with its reason, and spoils nothing for the others; so are
        all of them when whatever is asked about them fails. Nothing is raised.
        """

    def close(self) -> None:
        """Let go of everything. It may be called without `look` before."""
