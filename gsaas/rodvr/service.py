"""The endpoint of one host on the message bus: takes the engine's calls, reports what it holds.

1. Calls are taken one at a time in the order they arrive: a binding the engine asked for first and gave up on can
   never come back after its removal was confirmed.
2. At start, and until it succeeded, the endpoint asks for everything it should hold. Calls wait meanwhile, for
   they may be newer than that answer.
3. It reports after every change, when a waiting binding gets installed, and every `report_interval` seconds.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

from gsaas import rpc
from gsaas.context import RequestContext
from gsaas.objects.binding import binding_from_dict
from gsaas.rodvr.endpoint import Endpoint
from gsaas.rpc.engine import EngineClient
from gsaas.rpc.rodvr import EndpointClient

LOG = logging.getLogger(__name__)

RETRY_PAUSE = 1.0
"""Seconds between two attempts to reach the engine at start."""
STOP_PATIENCE = 2.0
"""Seconds for which an end waits for the last report."""


class EndpointService:
    """Serves the endpoint that *make_endpoint* makes, given what to call when a binding gets installed."""

    target = rpc.Target(version=EndpointClient.VERSION)

    def __init__(
        self,
        bus: rpc.Bus,
        host: str,
        make_endpoint: Callable[[Callable[[str], None]], Endpoint],
        report_interval: float,
    ) -> None:
        self.host = host
        self._endpoint = make_endpoint(lambda _port_id: self._news.set())
        self._engine = EngineClient(bus)
        self._report_interval = report_interval
        self._calls = threading.Lock()
        self._news = threading.Event()
        self._stopping = threading.Event()
        self._server = rpc.server(bus, rpc.RODVR, host, self)
        self._reporter = threading.Thread(target=self._report, name=f"endpoint-{host}", daemon=True)

    def start(self) -> None:
        """Bring the kernel's side up, then serve. Raises what `Endpoint.start` raises."""
        self._endpoint.start()
        self._calls.acquire()  # let go by the reporter, after the first answer of the engine
        self._server.start(override_pool_size=1)
        self._reporter.start()

    def stop(self) -> None:
        """Serve no more, and leave the kernel as it is: what is bound goes on working."""
        self._stopping.set()
        self._news.set()
        self._server.stop()
        self._reporter.join(STOP_PATIENCE)  # it may be waiting for an engine that does not answer
        self._endpoint.stop()

    def apply(self, context: RequestContext, binding: dict[str, Any]) -> dict[str, Any]:
        """Install a binding; raises `ValueError` or `KeyError` for what is not one."""
        wanted = binding_from_dict(binding)
        with self._calls:
            report = self._endpoint.apply(wanted)
        self._news.set()
        return report.to_dict()

    def remove(self, context: RequestContext, port_id: str) -> dict[str, Any]:
        """Remove a binding and cut its connections."""
        with self._calls:
            report = self._endpoint.remove(port_id)
        self._news.set()
        return report.to_dict()

    def _report(self) -> None:
        try:
            self._take_over()
        finally:
            self._calls.release()
        while not self._stopping.is_set():
            self._news.clear()
            try:
                self._engine.endpoint_report(self.host, self._endpoint.report().to_dict())
            except rpc.BusError as error:
                LOG.warning("the endpoint of %s could not report: %s", self.host, error)
            self._news.wait(self._report_interval)

    def _take_over(self) -> None:
        """Hold what the engine says, and nothing else."""
        while not self._stopping.is_set():
            try:
                bindings = self._engine.endpoint_started(self.host)
                if self._stopping.is_set():
                    return
                self._endpoint.replace(bindings)
            except (rpc.BusError, ValueError, KeyError) as error:
                LOG.warning("the endpoint of %s waits for the engine: %s", self.host, error)
                self._stopping.wait(RETRY_PAUSE)
            else:
                return
