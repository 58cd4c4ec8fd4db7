# SPDX-License-Identifier: Apache-2.0
"""The interface of a source of GPUs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from gsaas.objects.gpu_report import GpuSnapshot


class SourceUnavailable(Exception):
    """The source cannot work on this host at all; the message says why, and what to do."""


class GpuSource(Protocol):
    """Reads the GPUs of one host. One thread uses it."""

    def subscribe(self, on_change: Callable[[], None]) -> None:
        """Have *on_change* called, from any thread, after an event that is worth a snapshot at once."""

    def snapshot(self) -> GpuSnapshot:
        """Return all GPUs as they are now.

        A GPU that fails is withdrawn, with the reason, and does not affect the others. If no GPU can be read, the
        snapshot says so in `unavailable`. Nothing is raised.
        """

    def close(self) -> None:
        """Release all resources. It may be called without `snapshot` before."""
