# SPDX-License-Identifier: Apache-2.0
"""The endpoint of one host on the message bus: serves the engine's calls, and reports to the engine.

1. Calls are served one at a time, and an order that is older than the last one for its port is refused
   (`gsaas.rodvr.order_serials`): a late call of `apply` can never install a binding again after its removal was
   confirmed, whichever engine sends it.
2. At start, the service asks the engine for all bindings of its host until it gets an answer. Calls wait
   meanwhile, because they may be newer than that answer.
3. It reports after every change, when a waiting binding gets installed, and every `report_interval` seconds;
   sooner, if a report failed.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any

from gsaas import rpc, version
from gsaas.context import RequestContext
from gsaas.objects.binding import binding_from_dict
from gsaas.rodvr.endpoint import Endpoint
from gsaas.rodvr.order_serials import OrderSerials
from gsaas.rpc import pace
from gsaas.rpc.engine import EngineClient
from gsaas.rpc.rodvr import EndpointClient

LOG = logging.getLogger(__name__)

TRAFFIC_INTERVAL = 55.0
"""At least so many seconds pass between two reports that contain the traffic of VMs, of which the engine makes readings
for each minute: with the default interval, every second report has it."""
STOP_TIMEOUT = 2.0
"""Seconds for which `stop` waits for the last report."""


class EndpointService:
    """Serves one endpoint.

    *make_endpoint* creates it, given the function to call when a binding gets installed without a call.
    *report_interval* is in seconds.
    """

    target = rpc.Target(version=EndpointClient.VERSION)

    def __init__(
        self,
        bus: rpc.Bus,
        host: str,
        make_endpoint: Callable[[Callable[[str], None]], Endpoint],
        report_interval: float,
    ) -> None:
        self.host = host
        self._endpoint = make_endpoint(lambda _port_id: self._report_due.set())
        self._engine = EngineClient(bus)
        self._report_interval = report_interval
        self._call_lock = threading.Lock()
        self._report_due = threading.Event()
        self._stopping = threading.Event()
        self._serials = OrderSerials()
        self._reported: dict[str, Any] = {}
        """The last report; empty before the first."""
        self._reported_at: float | None = None
        self._traffic_at: float | None = None
        """When the last report with traffic was taken."""
        self._server = rpc.agent_server(bus, rpc.RODVR, host, self)
        self._reporter = threading.Thread(
            target=self._run_reporter, name=f"endpoint-{host}", daemon=True
        )

    def start(self) -> None:
        """Start the endpoint, then serve calls and report. Raises what `Endpoint.start` raises."""
        self._endpoint.start()
        self._call_lock.acquire()  # released by the reporter, after the engine's first answer
        self._server.start(override_pool_size=1)  # one thread: calls are served in their order
        self._reporter.start()

    def stop(self) -> None:
        """Stop serving and reporting. The kernel stays as it is, and VMs go on reaching their GPUs."""
        self._stopping.set()
        self._report_due.set()
        self._server.stop()
        self._reporter.join(STOP_TIMEOUT)  # it may be waiting for an engine that does not answer
        self._endpoint.stop()

    def apply(
        self, context: RequestContext, binding: dict[str, Any], serial: int
    ) -> dict[str, Any]:
        """Install a binding and return the report on it; `ValueError` or `KeyError` if *binding* is not one.

        Raises `StaleOrderError` for a *serial* older than that of the port's last order.
        """
        desired = binding_from_dict(binding)
        with self._call_lock:
            self._begin(desired.port_id, serial)
            report = self._endpoint.apply(desired)
        self._report_due.set()
        return report.to_dict()

    def remove(self, context: RequestContext, port_id: str, serial: int) -> dict[str, Any]:
        """Remove a binding and cut its connections; raises what `Endpoint.remove` raises.

        Raises `StaleOrderError` for a *serial* older than that of the port's last order.
        """
        with self._call_lock:
            self._begin(port_id, serial)
            report = self._endpoint.remove(port_id)
        self._report_due.set()
        return report.to_dict()

    def audit(self, context: RequestContext, repair: bool) -> dict[str, Any]:
        """Return the bindings and how the kernel differs from them: `EndpointAudit.to_dict()`.

        With *repair*, the kernel is made equal to them afterwards. Raises what `Endpoint.audit` raises.
        """
        with self._call_lock:
            return self._endpoint.audit(repair=repair).to_dict()

    def connections(self, context: RequestContext, port_id: str) -> int | None:
        """Return how many connections of a port's programs to daemons are open; None if the kernel does not tell."""
        return self._endpoint.connections(port_id)

    def _begin(self, port_id: str, serial: int) -> None:
        self._serials.check(port_id, serial)
        self._serials.record(port_id, serial)

    def describe(self) -> dict[str, Any]:
        """Return what this endpoint does, for a report: as it told the engine last, because that takes no lock."""
        at = self._reported_at
        return {
            "host": self.host,
            "seconds since it reported": None if at is None else round(time.monotonic() - at, 1),
            "bindings": {
                port_id: "installed" if binding["installed"] else "waiting"
                for port_id, binding in self._reported.get("bindings", {}).items()
            },
            "problems": self._reported.get("problems", []),
        }

    def _run_reporter(self) -> None:
        try:
            self._fetch_bindings()
        finally:
            self._call_lock.release()
        reports = pace.ReportPace()
        while not self._stopping.is_set():
            self._report_due.clear()
            answered = False
            try:
                self._send_report()
                answered = True
            except rpc.BusError as error:
                LOG.warning("the endpoint of %s could not report: %s", self.host, error)
            except Exception:  # the thread must survive: nothing else says what is installed
                LOG.exception("the endpoint of %s could not report", self.host)
            pause = reports.next_pause(self._report_interval, answered=answered)
            reports.news = self._report_due.wait(pause)

    def _send_report(self) -> None:
        now = time.monotonic()
        with_traffic = self._traffic_at is None or now - self._traffic_at >= TRAFFIC_INTERVAL
        report = self._endpoint.report(traffic=with_traffic)
        self._reported = report.to_dict() | {"release": version.RELEASE}
        self._reported_at = now
        self._engine.endpoint_report(self.host, self._reported)
        if with_traffic:
            self._traffic_at = now

    def _fetch_bindings(self) -> None:
        """Get the desired bindings of this host from the engine; return when that succeeded or the service stops."""
        back_off = pace.BackOff()
        while not self._stopping.is_set():
            try:
                desired = self._engine.endpoint_started(self.host)
            except (rpc.BusError, ValueError, TypeError, KeyError) as error:
                LOG.warning(
                    "the endpoint of %s has no bindings from the engine yet: %s", self.host, error
                )
                self._stopping.wait(back_off.next_pause())
                continue
            if self._stopping.is_set():
                return
            self._serials.replace(desired.serial)
            try:
                self._endpoint.replace(desired.bindings)
            except Exception:  # calls must be served: the engine makes one for each that is missing
                LOG.exception("the endpoint of %s could not take over its bindings", self.host)
            return
