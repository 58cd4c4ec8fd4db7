# SPDX-License-Identifier: Apache-2.0
"""Calls of the engine to the monitors of GPU hosts."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from typing import Any

from gsaas import rpc
from gsaas.objects.daemon import DesiredState
from gsaas.rpc.hosts import AgentClient

LOG = logging.getLogger(__name__)

TIMEOUT = 10.0
"""Seconds within which a monitor answers; daemons are started and ended after the answer."""


class MonitorClient:
    """Calls to monitors, by version:

    1.0  report_every, apply
    1.1  audit; the others are still sent as those of 1.0, which monitors of the release before serve
    """

    VERSION = "1.1"
    _ORDERS = "1.0"

    def __init__(
        self,
        bus: rpc.Bus,
        timeout: float = TIMEOUT,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._bus = bus
        self._agents = AgentClient(bus, rpc.MONITOR, self._ORDERS, "the monitor", timeout, clock)

    def report_every(self, hosts: Iterable[str], seconds: float | None) -> None:
        """Send the monitors of *hosts* the interval of their reports; None: the configured one of each.

        Each gets a message of its own, which is signed for it. A monitor that misses it gets the interval with the
        answer to its next report, as does one whose queue refuses it. Raises `rpc.BusError` if the bus accepts nothing.
        """
        for host in hosts:
            try:
                self._agents.cast(host, "report_every", seconds=seconds)
            except rpc.BusError as error:
                LOG.warning("the monitor of %s could not be told its interval now: %s", host, error)
                rpc.check(self._bus)  # without a bus, each of the others would take seconds to fail

    def apply(self, host: str, desired: DesiredState) -> dict[str, Any]:
        """Have *host* apply this desired state, unless it has a newer one; return its report.

        The report is `gsaas.objects.daemon.DaemonReport.to_dict()`. Daemons are started and ended after this call.
        Raises `gsaas.rpc.hosts.AgentCallFailed`.
        """
        report: dict[str, Any] = self._agents.call(host, "apply", wanted=desired.to_dict())
        return report

    def audit(self, host: str) -> dict[str, Any]:
        """Return the report of *host* on its daemons and its fence as they are now, as `apply` does; change nothing.

        Raises `gsaas.rpc.hosts.AgentCallFailed`, also for a monitor of an earlier release.
        """
        report: dict[str, Any] = self._agents.call(host, "audit", version=self.VERSION)
        return report
