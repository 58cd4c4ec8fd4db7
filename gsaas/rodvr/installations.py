# SPDX-License-Identifier: Apache-2.0
"""Which bindings are in the kernel, how long that took, and which of them to announce."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping


class Installations:
    """The installed bindings of one endpoint, by port id. Used with the endpoint's lock acquired."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}
        self._started_at = 0.0
        self._unannounced: list[str] = []

    def __contains__(self, port_id: str) -> bool:
        return port_id in self._seconds

    def start_timing(self) -> None:
        """Begin work that may install bindings: their installation time counts from now."""
        self._started_at = time.monotonic()

    def record(self, port_id: str, installed: bool) -> None:
        """Record whether the binding of *port_id* is in the kernel."""
        if not installed:
            self._seconds.pop(port_id, None)
        elif port_id not in self._seconds:
            self._seconds[port_id] = round(time.monotonic() - self._started_at, 6)
            self._unannounced.append(port_id)

    def record_all(self, installed: Mapping[str, bool]) -> None:
        """Record whether each of these bindings is in the kernel."""
        for port_id, is_installed in installed.items():
            self.record(port_id, is_installed)

    def seconds(self, port_id: str) -> float | None:
        """Return how long the installation took, in seconds; None if the binding is not installed."""
        return self._seconds.get(port_id)

    def remove(self, port_id: str) -> None:
        """Forget a binding that is no longer desired."""
        self._seconds.pop(port_id, None)
        self.mark_announced((port_id,))

    def keep_only(self, port_ids: Iterable[str]) -> None:
        """Forget all bindings but those of *port_ids*."""
        for port_id in self._seconds.keys() - set(port_ids):
            del self._seconds[port_id]

    def mark_announced(self, port_ids: Iterable[str]) -> None:
        """Do not announce the bindings of *port_ids*: the report of the current call names them."""
        announced = set(port_ids)
        self._unannounced = [port_id for port_id in self._unannounced if port_id not in announced]

    def take_unannounced(self) -> list[str]:
        """Return the port ids of bindings that were installed and not yet announced; the next call omits them."""
        unannounced, self._unannounced = self._unannounced, []
        return unannounced
