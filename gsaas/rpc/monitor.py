"""What the engine asks of the monitors of GPU hosts."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from gsaas import rpc
from gsaas.objects.daemon import DesiredState
from gsaas.rpc.hosts import HostCalls

TIMEOUT = 10.0
"""Seconds in which a monitor answers; what takes longer than a moment it does after its answer."""


class MonitorClient:
    """Calls to monitors, by version:

    1.0  report_every, apply
    """

    VERSION = "1.0"

    def __init__(
        self,
        bus: rpc.Bus,
        timeout: float = TIMEOUT,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._calls = HostCalls(bus, rpc.MONITOR, self.VERSION, "the monitor", timeout, clock)

    def report_every(self, seconds: float | None) -> None:
        """Tell all monitors how often to report; None: as often as each is configured to.

        Whom this does not reach learns it from the answer to its next report.
        """
        self._calls.cast("report_every", fanout=True, seconds=seconds)

    def apply(self, host: str, wanted: DesiredState) -> dict[str, Any]:
        """Have *host* hold this for its leases, and nothing else, unless it knows something newer.

        Return its report, `gsaas.objects.daemon.DaemonReport.to_dict()`. Starting and ending daemons takes longer
        than this call.
        Raises `gsaas.rpc.hosts.Unconfirmed`.
        """
        return self._calls.call(host, "apply", wanted=wanted.to_dict())
