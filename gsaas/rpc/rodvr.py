# SPDX-License-Identifier: Apache-2.0
"""Calls of the engine to the RODVR endpoints of hosts."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from gsaas import rpc
from gsaas.objects.binding import OTHER_IPS, Binding, LocalBinding
from gsaas.objects.endpoint_audit import EndpointAudit
from gsaas.rpc.hosts import AgentCallFailed, AgentClient


class EndpointClient:
    """Calls to endpoints, by version:

    1.0  apply, remove
    1.1  both have a *serial*, `gsaas.db.hosts.next_serial`; a binding may have `other_ips`
    1.2  audit, connections; the others are still sent as those of 1.1, which endpoints of the release before serve

    Of two orders for a port, the one with the larger serial counts, in whatever order they arrive. Each returns the
    report on that port, `gsaas.objects.endpoint_report.EndpointReport.to_dict()`, or raises
    `gsaas.rpc.hosts.AgentCallFailed` after *timeout* seconds, or for an order that is older than the last one.
    """

    VERSION = "1.2"
    _ORDERS = "1.1"

    def __init__(
        self, bus: rpc.Bus, timeout: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._agents = AgentClient(bus, rpc.RODVR, self._ORDERS, "the endpoint", timeout, clock)

    def apply(self, host: str, binding: Binding | LocalBinding, serial: int) -> dict[str, Any]:
        """Install *binding* on *host*: at once if its tap exists, else when that appears."""
        sent = binding.to_dict()
        try:
            report: dict[str, Any] = self._agents.call(host, "apply", binding=sent, serial=serial)
        except AgentCallFailed as error:
            if OTHER_IPS not in sent or not isinstance(error.__cause__, TypeError):
                raise
            # An endpoint of the release before knows one address of each port, and refuses a binding with more.
            del sent[OTHER_IPS]
            report = self._agents.call(host, "apply", binding=sent, serial=serial)
        return report

    def remove(self, host: str, port_id: str, serial: int) -> dict[str, Any]:
        """Remove the binding of a port and end its connections; without a binding, do nothing."""
        report: dict[str, Any] = self._agents.call(host, "remove", port_id=port_id, serial=serial)
        return report

    def audit(self, host: str, *, repair: bool = False) -> EndpointAudit:
        """Return the bindings that *host* has, and how its kernel differs; with *repair*, it is made equal afterwards.

        Raises `AgentCallFailed`, also for an endpoint of an earlier release, and for an answer that is no audit.
        """
        answer = self._agents.call(host, "audit", version=self.VERSION, repair=repair)
        try:
            return EndpointAudit.from_dict(answer)
        except (ValueError, TypeError, KeyError) as error:
            raise AgentCallFailed(f"the endpoint of {host} sent no valid audit: {error}") from error

    def connections(self, host: str, port_id: str) -> int | None:
        """Return how many connections of a port's programs to daemons are open; None if the kernel does not tell."""
        counted: int | None = self._agents.call(
            host, "connections", version=self.VERSION, port_id=port_id
        )
        return counted
