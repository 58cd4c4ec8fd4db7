# SPDX-License-Identifier: Apache-2.0
"""The agent of a GPU host: reports the GPUs to the engine, and runs their daemons.

1. Its report is the host's heartbeat: when it stops, the host's GPUs are no longer offered.
2. It goes on reporting while its source of GPUs fails: GPUs that cannot be read are reported as withdrawn, and of what
   is read only what an engine believes (`gsaas.objects.gpu_report.sound`).
3. The engine sets the interval of reports, in its answers and, when an operator changes it, at once. Until then the
   agent's own configuration applies.
4. After a report that came for another reason than its interval, the next one comes at a random moment of that: the
   agents of all hosts may have had the same reason, and must not report at the same moment from then on.
5. A report that is not answered is sent again after a pause that grows with each failure, at most after the interval.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from gsaas import rpc
from gsaas.context import RequestContext
from gsaas.gpu_host import loads, utilisation
from gsaas.gpu_host.cpu_meter import CpuMeter
from gsaas.gpu_host.daemons.service import DaemonService
from gsaas.gpu_host.process_groups import groups_of
from gsaas.gpu_host.sources.base import GpuSource
from gsaas.objects.gpu_report import GpuReport, GpuSnapshot, Load, Loads, Reading, sound
from gsaas.rpc import pace
from gsaas.rpc.engine import EngineClient
from gsaas.rpc.monitor import MonitorClient

LOG = logging.getLogger(__name__)

STOP_TIMEOUT = 2.0
"""Seconds that `Monitor.stop` waits for the last report."""
MIN_INTERVAL = 1.0
"""Lower bound of the seconds between two reports."""


class Monitor:
    """Reports what *source* reads of *host* every *interval* seconds.

    *daemons* runs the daemons, which listen at *gpu_address*; None: the middleware has no daemons. *window* is the time
    over which the mean utilisation is computed, in seconds.
    """

    target = rpc.Target(version=MonitorClient.VERSION)

    def __init__(
        self,
        bus: rpc.Bus,
        host: str,
        gpu_address: str,
        source: GpuSource,
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
        self._configured_interval = interval
        self._interval = interval
        self._window = window
        self._clock = clock
        self._samples: dict[str, list[utilisation.Sample]] = {}
        """UUID -> utilisation in the window."""
        self._meter = loads.LoadMeter()
        self._cpu_meter = CpuMeter()
        self._cpu_loads: Sequence[Load] = ()
        """Of the cGPUs of CPU devices, as they were read last."""
        self._problems: set[str] = set()
        """The problems of the last snapshot, which have been logged."""
        self._engine = EngineClient(bus)
        self._server = rpc.agent_server(bus, rpc.MONITOR, host, self)
        self._report_due = threading.Event()
        source.subscribe(self._report_due.set)
        self._stopping = threading.Event()
        self._reporter = threading.Thread(target=self._run, name=f"monitor-{host}", daemon=True)

    def start(self) -> None:
        """Start daemons and fence, then report. Raises `OSError` if the kernel refuses the fence."""
        if self._daemons is not None:
            self._daemons.on_change = self._report_due.set
            self._daemons.start(self._take_snapshot())
        self._server.start(override_pool_size=1)  # calls are applied one after the other
        self._reporter.start()

    def stop(self) -> None:
        """Stop reporting and supervising the daemons, which keep running."""
        self._stopping.set()
        self._report_due.set()
        self._server.stop()
        self._reporter.join(STOP_TIMEOUT)  # it may wait for an engine that does not answer
        if self._daemons is not None:
            self._daemons.stop()
        self._source.close()

    def describe(self) -> dict[str, Any]:
        """Return what this monitor does now, for a report. Takes no lock."""
        daemons = {} if self._daemons is None else self._daemons.describe()
        return {
            "host": self.host,
            "seconds between two reports": self._interval,
            "problems of GPUs": sorted(self._problems),
            **daemons,
        }

    def report_every(self, context: RequestContext, seconds: float | None) -> None:
        """RPC method: report now, and from now on at this interval; None: at the configured one."""
        self._set_interval(seconds)
        self._report_due.set()

    def apply(self, context: RequestContext, wanted: dict[str, Any]) -> dict[str, Any]:
        """RPC method: apply a desired state, *wanted* on the bus; return the report, as `DaemonService.apply` does."""
        if self._daemons is None:
            raise RuntimeError(f"the middleware of {self.host} has no daemons")
        return self._daemons.apply(wanted)

    def audit(self, context: RequestContext) -> dict[str, Any]:
        """RPC method: return the report on daemons and fence, as `DaemonService.audit` does."""
        if self._daemons is None:
            raise RuntimeError(f"the middleware of {self.host} has no daemons")
        return self._daemons.audit()

    def _set_interval(self, seconds: float | None) -> None:
        """Report at the interval that the engine has set; None: at the configured one."""
        interval = (
            self._configured_interval if seconds is None else max(float(seconds), MIN_INTERVAL)
        )
        if interval != self._interval:
            LOG.info("the monitor of %s reports every %g s now", self.host, interval)
            self._interval = interval

    def _run(self) -> None:
        reports = pace.ReportPace()
        while not self._stopping.is_set():
            self._report_due.clear()
            began, answered = self._clock(), False
            try:
                answered = self._report()
            except Exception:  # the thread must survive: without reports the host's GPUs are lost
                LOG.exception("the monitor of %s could not finish its report", self.host)
            since = began if answered else self._clock()  # an attempt may fail after a long time
            next_at = since + reports.next_pause(self._interval, answered=answered)
            reports.news = self._report_due.wait(max(0.0, next_at - self._clock()))
            # A burst of changes must not become a burst of reports.
            self._stopping.wait(max(0.0, began + MIN_INTERVAL - self._clock()))

    def _report(self) -> bool:
        """Report once; return whether the engine has answered."""
        snapshot = self._take_snapshot()
        if self._daemons is not None:
            snapshot = self._daemons.update_gpus(snapshot)
        measured = self._measure(snapshot)
        report = GpuReport(self._gpu_address, self._interval, sound(snapshot), measured)
        try:
            reply = self._engine.monitor_report(self.host, report)
        except rpc.BusError as error:
            LOG.warning("the monitor of %s could not report: %s", self.host, error)
            return False
        self._set_interval(reply.monitor_interval)
        return True

    def _measure(self, snapshot: GpuSnapshot) -> Loads | None:
        """Add the present loads, and return those that are to be reported now."""
        try:
            now = self._clock()
            self._meter.add([*self._read_loads(snapshot), *self._cpu_loads], now)
            return self._meter.take(now)
        except Exception:  # no reading is worth the heartbeat of the host
            LOG.exception("the loads of %s could not be measured", self.host)
            return None

    def _read_loads(self, snapshot: GpuSnapshot) -> list[Load]:
        """Return the loads of the GPUs of *snapshot*, and of the cGPUs that have a daemon of their own."""
        daemons = {} if self._daemons is None else self._daemons.lease_daemons()
        return [*loads.of_gpus(snapshot), *loads.of_cgpus(snapshot, daemons, groups_of)]

    def _take_snapshot(self) -> GpuSnapshot:
        """Read the GPUs, add the mean utilisation to the readings, and log changes of the problems."""
        try:
            snapshot = sound(self._source.snapshot())
        except Exception as error:
            LOG.exception("the source of the GPUs of %s failed", self.host)
            why = (
                f"the GPUs could not be read: {type(error).__name__}; see the log of gsaas-monitor"
            )
            snapshot = GpuSnapshot((), unavailable=why)
        self._log_problems(snapshot)
        now = self._clock()
        if snapshot.cores:
            usages = {} if self._daemons is None else self._daemons.usages()
            read = self._cpu_meter.read(usages, snapshot.cores, now)
            self._cpu_loads = read.loads
            snapshot = replace(snapshot, readings={**snapshot.readings, **read.devices})
        readings = {}
        for uuid, reading in snapshot.readings.items():
            readings[uuid] = self._with_mean(uuid, reading, now)
        self._samples = {
            uuid: samples for uuid, samples in self._samples.items() if uuid in readings
        }
        return replace(snapshot, readings=readings)

    def _with_mean(self, uuid: str, reading: Reading, now: float) -> Reading:
        if reading.utilisation is None:
            return reading
        samples = [*self._samples.get(uuid, ()), (now, reading.utilisation)]
        self._samples[uuid] = utilisation.within(samples, self._window)
        return replace(reading, mean_utilisation=utilisation.mean(samples, self._window))

    def _log_problems(self, snapshot: GpuSnapshot) -> None:
        """Log each problem once when it appears, and once when it has gone."""
        found = {*snapshot.problems, *([snapshot.unavailable] if snapshot.unavailable else [])}
        found |= {
            f"GPU {gpu.uuid} is withdrawn: {gpu.withdrawn}"
            for gpu in snapshot.gpus
            if gpu.withdrawn
        }
        for problem in sorted(found - self._problems):
            LOG.warning("%s: %s", self.host, problem)
        for problem in sorted(self._problems - found):
            LOG.info("%s: solved: %s", self.host, problem)
        self._problems = found
