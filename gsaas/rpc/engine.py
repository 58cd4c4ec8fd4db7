# SPDX-License-Identifier: Apache-2.0
"""Calls of agents and API workers to the engine."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gsaas import rpc
from gsaas.context import RequestContext
from gsaas.objects.binding import OTHER_IPS, Binding, LocalBinding, binding_from_dict
from gsaas.objects.daemon import DesiredState
from gsaas.objects.gpu_report import GpuReport

LOG = logging.getLogger(__name__)

GRANT_TIMEOUT = 15.0
"""Seconds within which an engine redeems a grant and has the fences admit its address."""
REPORT_TIMEOUT = 10.0
"""Seconds within which an engine answers a report."""


@dataclass(frozen=True)
class MonitorReportReply:
    """The engine's answer to a monitor's report."""

    monitor_interval: float | None
    """Seconds between two reports; None: as the monitor is configured."""


@dataclass(frozen=True)
class DesiredBindings:
    """All bindings that an endpoint should have; orders with a smaller *serial* are older than that."""

    serial: int
    bindings: tuple[Binding | LocalBinding, ...]


@dataclass(frozen=True)
class RedemptionResult:
    """The engine's answer to a grant: both None if the address is admitted, else the API's code and a sentence."""

    code: str | None
    refusal: str | None


class EngineClient:
    """Calls to the engine, by version:

    1.0  lease_changed, lease_left_queue, endpoint_started, endpoint_report, monitor_report,
         monitor_interval_changed, daemons_started, daemons_report, grant_shown
    1.1  the answer of endpoint_started has a serial, and may have `other_ips`: those of bindings by port id, beside
         them because endpoints of the release before refuse a binding that has more than they know
    """

    VERSION = "1.1"

    def __init__(self, bus: rpc.Bus) -> None:
        self._client = rpc.RpcClient(bus, rpc.ENGINE, self.VERSION)

    def lease_changed(self, context: RequestContext, lease_id: str) -> None:
        """Ask an engine to process a lease now rather than at its next audit.

        That audit makes up for a message that is lost, so a bus that is down is logged and nothing is raised.
        """
        try:
            self._client.cast(context, "lease_changed", retry=0, lease_id=lease_id)
        except rpc.BusError as error:
            LOG.warning("the engine will process lease %s at its next audit: %s", lease_id, error)

    def lease_left_queue(self, lease_id: str) -> None:
        """Notify all engines that a lease has left the queue, with GPUs or without.

        The engine that has the context of its caller reconciles the lease, or forgets that context. As with
        `lease_changed`, the next audit makes up for a message that is lost.
        """
        context = RequestContext(overwrite=False)
        try:
            self._client.cast(context, "lease_left_queue", retry=0, fanout=True, lease_id=lease_id)
        except rpc.BusError as error:
            LOG.warning(
                "the engines will process lease %s at their next audit: %s", lease_id, error
            )

    def endpoint_started(self, host: str, timeout: float = 10.0) -> DesiredBindings:
        """Announce that the endpoint of *host* has started; return all bindings that it should have.

        Raises `rpc.BusError` when no engine answers within *timeout* seconds.
        """
        answer = self._call("endpoint_started", timeout, host=host)
        others = answer.get(OTHER_IPS, {})
        bindings = tuple(
            binding_from_dict(
                {**binding, OTHER_IPS: others[binding["port_id"]]}
                if binding["port_id"] in others
                else binding
            )
            for binding in answer["bindings"]
        )
        return DesiredBindings(int(answer["serial"]), bindings)

    def endpoint_report(self, host: str, report: Mapping[str, Any]) -> None:
        """Send the report of the endpoint of *host*, `gsaas.objects.endpoint_report.EndpointReport.to_dict()`.

        Raises `rpc.BusError` when no engine answers within `REPORT_TIMEOUT` seconds.
        """
        self._report("endpoint_report", host, report)

    def monitor_report(self, host: str, report: GpuReport) -> MonitorReportReply:
        """Send the report of the monitor of *host*, which is the host's heartbeat as well.

        Raises `rpc.BusError` when no engine answers within `REPORT_TIMEOUT` seconds.
        """
        answer = self._call("monitor_report", REPORT_TIMEOUT, host=host, report=report.to_dict())
        return MonitorReportReply(answer["monitor_interval"])

    def daemons_started(self, host: str, timeout: float = 10.0) -> DesiredState:
        """Announce that the monitor of *host* has started; return the desired state of its daemons and admissions.

        Raises `rpc.BusError` when no engine answers within *timeout* seconds.
        """
        answer = self._call("daemons_started", timeout, host=host)
        return DesiredState.from_dict(answer)

    def daemons_report(self, host: str, report: Mapping[str, Any]) -> None:
        """Send `gsaas.objects.daemon.DaemonReport.to_dict()` of *host*.

        Raises `rpc.BusError` when no engine answers within `REPORT_TIMEOUT` seconds.
        """
        self._report("daemons_report", host, report)

    def _report(self, method: str, host: str, report: Mapping[str, Any]) -> None:
        """Send a report, and wait until it was taken.

        A message that is answered leaves the queue when its sender no longer waits. Without engines, reports would
        wait there in ever larger numbers, and the first engine would have to read all of them.
        """
        self._call(method, REPORT_TIMEOUT, host=host, report=dict(report))

    def _call(self, method: str, timeout: float, **arguments: Any) -> Any:
        """Return the answer of an engine; raises `rpc.BusError`, also for any exception of the engine."""
        context = RequestContext(overwrite=False)
        try:
            return self._client.call(context, method, timeout=timeout, **arguments)
        except rpc.BusError:
            raise
        except Exception as error:  # those that are built into Python arrive as what they are
            raise rpc.BusError(f"the engine failed: {error!r}") from error

    def grant_shown(self, host: str, key: str, address: str, lease_id: str) -> RedemptionResult:
        """Redeem a grant that was presented at the gate of *host*, from *address*, together with *lease_id*.

        Raises `rpc.BusError` when no engine answers within `GRANT_TIMEOUT` seconds.
        """
        answer = self._call(
            "grant_shown",
            GRANT_TIMEOUT,
            host=host,
            key=key,
            address=address,
            lease_id=lease_id,
        )
        return RedemptionResult(answer["code"], answer["refusal"])

    def monitor_interval_changed(self, context: RequestContext) -> None:
        """Have an engine send all monitors the interval of their reports.

        The answers to their reports contain it, too, so a bus that is down is logged and nothing is raised.
        """
        try:
            self._client.cast(context, "monitor_interval_changed", retry=0)
        except rpc.BusError as error:
            LOG.warning("monitors will learn their interval at their next report: %s", error)
