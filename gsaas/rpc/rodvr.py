"""What the engine asks of the RODVR endpoint of one host."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from gsaas import rpc
from gsaas.objects.binding import Binding, LocalBinding
from gsaas.rpc.hosts import HostCalls


class EndpointClient:
    """Calls to an endpoint, by version:

    1.0  apply, remove

    Each returns the report on that port, `gsaas.objects.endpoint_report.EndpointReport.to_dict()`, or raises
    `gsaas.rpc.hosts.Unconfirmed` after *timeout* seconds.
    """

    VERSION = "1.0"

    def __init__(
        self, bus: rpc.Bus, timeout: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._calls = HostCalls(bus, rpc.RODVR, self.VERSION, "the endpoint", timeout, clock)

    def apply(self, host: str, binding: Binding | LocalBinding) -> dict[str, Any]:
        """Install *binding* on *host*: now if its tap exists, else the moment it appears."""
        return self._calls.call(host, "apply", binding=binding.to_dict())

    def remove(self, host: str, port_id: str) -> dict[str, Any]:
        """Remove the binding of a port and cut its connections; one that is not there is no error."""
        return self._calls.call(host, "remove", port_id=port_id)
