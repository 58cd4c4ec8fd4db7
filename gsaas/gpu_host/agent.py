"""The agent of a GPU host: looks at the GPUs, tells the engine, and runs their daemons.

1. Its report is the host's heartbeat: when it stops, the host's GPUs are no longer offered.
2. Whatever the source of GPUs goes through, the agent goes on reporting: what it cannot see is withdrawn.
3. How often it reports is said by the engine, in its answers and at once when an operator changes it; until then
   by the agent's own configuration.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from gsaas import rpc
from gsaas.context import RequestContext
from gsaas.gpu_host import utilisation
from gsaas.gpu_host.daemons.service import DaemonService
from gsaas.gpu_host.sources.base import Source
from gsaas.objects.gpu_report import GpuReport, Reading, Sight
from gsaas.rpc.engine import EngineClient
from gsaas.rpc.monitor import MonitorClient

LOG = logging.getLogger(__name__)

STOP_PATIENCE = 2.0
"""Seconds for which an end waits for the last report."""
SHORTEST_INTERVAL = 1.0
"""Seconds between two reports, at least."""


class Monitor:
    """Reports what *source* sees of *host* every *interval* seconds.

    *daemons* looks after the daemons that listen at *gpu_address*; None: there are none. *window* is that of the mean
    utilisation, in seconds.
    """

    target = rpc.Target(version=MonitorClient.VERSION)

    def __init__(
        self,
        bus: rpc.Bus,
        host: str,
        gpu_address: str,
        source: Source,
        *,
        daemons: DaemonService | None,
        interval: float,
        window: float = 300.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.host = host
        self._gpu_address = gpu_address
        self._source = source
        self._daemons = daemons
        self._configured = interval
        self._interval = interval
        self._window = window
        self._clock = clock
        self._samples: dict[str, list[utilisation.Sample]] = {}
        self._problems: set[str] = set()
        self._engine = EngineClient(bus)
        self._server = rpc.server(bus, rpc.MONITOR, host, self)
        self._news = threading.Event()
        source.notify(self._news.set)
        self._stopping = threading.Event()
        self._reporter = threading.Thread(target=self._run, name=f"monitor-{host}", daemon=True)

    def start(self) -> None:
        """Start daemons and fence, then report. Raises `OSError` when the kernel does not let us have a fence."""
        if self._daemons is not None:
            self._daemons.on_change = self._news.set
            self._daemons.start(self._look())
        self._server.start(override_pool_size=1)
        self._reporter.start()

    def stop(self) -> None:
        """Report no more, and look after the daemons no more."""
        self._stopping.set()
        self._news.set()
        self._server.stop()
        self._reporter.join(STOP_PATIENCE)  # it may be waiting for an engine that does not answer
        if self._daemons is not None:
            self._daemons.stop()
        self._source.close()

    def report_every(self, context: RequestContext, seconds: float | None) -> None:
        """Report now, and from now on at this interval; None: as often as configured."""
        self._set_interval(seconds)
        self._news.set()

    def apply(self, context: RequestContext, wanted: dict[str, Any]) -> dict[str, Any]:
        """Have daemons and admissions as the engine wants them; return what there is."""
        if self._daemons is None:
            raise RuntimeError(f"the middleware of {self.host} has no daemons")
        return self._daemons.apply(wanted)

    def _set_interval(self, seconds: float | None) -> None:
        """Take over what the engine says."""
        wanted = self._configured if seconds is None else max(float(seconds), SHORTEST_INTERVAL)
        if wanted != self._interval:
            LOG.info("the monitor of %s reports every %g s now", self.host, wanted)
            self._interval = wanted

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._news.clear()
            began = self._clock()
            try:
                self._round()
            except Exception:  # whatever it was, the next round is to be told
                LOG.exception("the monitor of %s could not finish its round", self.host)
            self._news.wait(max(0.0, began + self._interval - self._clock()))
            # However much is new, nobody is the better for more than this.
            self._stopping.wait(max(0.0, began + SHORTEST_INTERVAL - self._clock()))

    def _round(self) -> None:
        sight = self._look()
        if self._daemons is not None:
            sight = self._daemons.serve(sight)
        report = GpuReport(self._gpu_address, self._interval, sight)
        try:
            answer = self._engine.monitor_report(self.host, report)
        except rpc.BusError as error:
            LOG.warning("the monitor of %s could not report: %s", self.host, error)
        else:
            self._set_interval(answer.monitor_interval)

    def _look(self) -> Sight:
        """Look at the GPUs, and note how busy they have been; say what is new about their problems."""
        sight = self._source.look()
        self._tell(sight)
        now = self._clock()
        readings = {}
        for uuid, reading in sight.readings.items():
            readings[uuid] = self._with_mean(uuid, reading, now)
        self._samples = {uuid: kept for uuid, kept in self._samples.items() if uuid in readings}
        return replace(sight, readings=readings)

    def _with_mean(self, uuid: str, reading: Reading, now: float) -> Reading:
        if reading.utilisation is None:
            return reading
        samples = [*self._samples.get(uuid, ()), (now, reading.utilisation)]
        self._samples[uuid] = utilisation.within(samples, self._window)
        return replace(reading, mean_utilisation=utilisation.mean(samples, self._window))

    def _tell(self, sight: Sight) -> None:
        """Log each problem once when it comes, and once when it has gone."""
        found = {*sight.problems, *([sight.blind] if sight.blind else [])}
        found |= {
            f"GPU {gpu.uuid} is withdrawn: {gpu.withdrawn}" for gpu in sight.gpus if gpu.withdrawn
        }
        for problem in sorted(found - self._problems):
            LOG.warning("%s: %s", self.host, problem)
        for problem in sorted(self._problems - found):
            LOG.info("%s: no longer so: %s", self.host, problem)
        self._problems = found
