# SPDX-License-Identifier: Apache-2.0
"""Which of two orders for a port is the newer one. Pure.

An engine numbers its orders to the endpoint of a host, to install or to remove the binding of a port, in the
transaction in which it decides on them. An engine that stood still may send an order long after another engine has sent
a newer one, and after the GPU of a removed binding was given to another lease: such an order must have no effect.
"""

from __future__ import annotations

KEPT = 10_000
"""Ports whose last order is remembered."""


class StaleOrderError(ValueError):
    """A newer order for the same port was carried out before."""


class OrderSerials:
    """The serials of the last orders, by port. Not thread-safe.

    It remembers *kept* ports; an older order than all that it remembers counts as stale, whatever port it is for.
    """

    def __init__(self, kept: int = KEPT) -> None:
        self._kept = kept
        self._oldest = 0
        self._last: dict[str, int] = {}

    def replace(self, serial: int) -> None:
        """Note that all bindings are as they should be at *serial*."""
        self._oldest = max(self._oldest, serial)
        self._last = {port: last for port, last in self._last.items() if last > self._oldest}

    def check(self, port_id: str, serial: int) -> None:
        """Raise `StaleOrderError` if an order for a port is older than its last one."""
        if serial < self._last.get(port_id, self._oldest):
            raise StaleOrderError(
                f"the order {serial} for port {port_id} is older than one that was carried out; the engine that sent "
                "it has to read the lease again"
            )

    def record(self, port_id: str, serial: int) -> None:
        """Note that an order is about to be carried out."""
        self._last.pop(port_id, None)
        self._last[port_id] = serial  # the last one of the mapping
        while len(self._last) > self._kept:
            forgotten = next(iter(self._last))
            self._oldest = max(self._oldest, self._last.pop(forgotten))
