# SPDX-License-Identifier: Apache-2.0
"""Daemons and fence of one GPU host, on the message bus: applies the engine's desired state, reports the actual one.

1. At the start it asks the engine for the desired state until it gets it. Until then no daemon is ended and no
   admission removed, and calls of `apply` wait, as they may contain a newer state than that answer.
2. Of two desired states the one with the larger serial applies, in whatever order they arrive.
3. The fence is changed before daemons are ended, so that no client reaches a daemon that is being ended.
4. It reports when the status of a daemon changes, and every `REPORT_INTERVAL` seconds; sooner, if a report failed. What
   it cannot do it reports as a problem, and tries again with the next report.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Protocol, TypeVar

from gsaas import rpc, version
from gsaas.gpu_host.fence.fence import Fence
from gsaas.gpu_host.fence.layout import ControlGroup
from gsaas.objects.daemon import (
    Daemon,
    DaemonReport,
    DaemonState,
    DaemonStatus,
    DaemonUsage,
    DesiredState,
    FenceReport,
    daemons_per_gpu,
)
from gsaas.objects.gpu_report import GpuSnapshot
from gsaas.remoting.daemon import PER_GPU, DaemonSettings
from gsaas.rpc import pace
from gsaas.rpc.engine import EngineClient

LOG = logging.getLogger(__name__)

REPORT_INTERVAL = 30.0
"""Seconds between two reports if nothing changes."""
STOP_TIMEOUT = 2.0
"""Seconds that `stop` waits for the last report."""
UNKNOWN_SERIAL = -1
"""The serial until the engine has sent a desired state; those of the engine begin at 0."""

_TELL = "told which daemons there are"

T = TypeVar("T")


class DaemonSupervisor(Protocol):
    """What `Supervisor` and `SimulatedSupervisor` have in common."""

    def adopt(self) -> None:
        """Find the daemons that an earlier monitor left."""

    def start(self) -> None:
        """Begin to supervise."""

    def stop(self) -> None:
        """End the supervision."""

    def set_desired(self, daemons: Iterable[Daemon]) -> None:
        """Set the desired daemons; all others are ended. May return before that is done."""

    def statuses(self) -> list[DaemonStatus]:
        """Return the status of every daemon that is desired or not gone yet, by key."""

    def listeners(self) -> Mapping[int, ControlGroup]:
        """Return the control group of each daemon that lives, by its ports; empty where daemons have none."""

    def usages(self) -> Mapping[Daemon, DaemonUsage]:
        """Return what each daemon that lives has used of this host up to now; empty where that is not known."""

    def version(self) -> str | None:
        """Return the version of the middleware that a daemon reported when it became healthy; None if not known."""

    def problems(self) -> list[str]:
        """Return what it cannot do, as sentences."""


class DaemonService:
    """The daemons of *host*, run as *settings* say; *make_supervisor* is called with this service.

    *fence* guards their ports; None: there is no fence. `on_change`, to be set by the owner, is called when the status
    of a daemon that serves a whole GPU changes.
    """

    def __init__(
        self,
        host: str,
        engine: EngineClient,
        settings: DaemonSettings,
        make_supervisor: Callable[[DaemonService], DaemonSupervisor],
        fence: Fence | None,
        *,
        report_interval: float = REPORT_INTERVAL,
    ) -> None:
        self.host = host
        self.on_change: Callable[[], None] = lambda: None
        self._engine = engine
        self._settings = settings
        self._parents: dict[str, str | None] = {}
        """UUID -> that of the GPU that it is a MIG instance of."""
        self._fence = fence
        self._report_interval = report_interval
        # A supervisor may call `daemons_changed` while this service calls it.
        self._lock = threading.RLock()
        self._synchronised = threading.Event()
        """The engine has sent the desired state, or the service is being stopped."""
        self._desired = DesiredState(UNKNOWN_SERIAL)
        self._gpus: dict[str, int] = {}
        """UUID -> port of the GPU's own daemon."""
        self._unhealthy: dict[str, str] = {}
        """GPUs at the last call of `on_change`, as `_unhealthy_gpus` returned them."""
        self._problems: dict[str, str] = {}
        """What could not be done with the fence -> the sentence to report."""
        self._reported: dict[str, Any] = {}
        """The last report; empty before the first."""
        self._report_due = threading.Event()
        self._stopping = threading.Event()
        self._reporter = threading.Thread(target=self._run, name=f"daemons-{host}", daemon=True)
        self._supervisor = make_supervisor(self)

    def start(self, snapshot: GpuSnapshot) -> None:
        """Adopt the daemons and the fence that there are. Raises `OSError` if the kernel refuses the fence."""
        self._set_gpus(snapshot)
        self._supervisor.adopt()
        if self._fence is not None:
            # With the daemons that run, or their clients would be refused until the supervisor has looked.
            self._fence.start(self._ranges(), self._supervisor.listeners())
        self._supervisor.start()
        with self._lock:
            self._reconcile()
        self._reporter.start()

    def stop(self) -> None:
        """End the supervision, and leave daemons and fence as they are."""
        self._stopping.set()
        self._synchronised.set()
        self._report_due.set()
        self._reporter.join(STOP_TIMEOUT)
        self._supervisor.stop()
        if self._fence is not None:
            self._fence.stop()

    def apply(self, desired: Mapping[str, Any]) -> dict[str, Any]:
        """Apply a desired state, `DesiredState.to_dict()`, unless a newer one is known; return the report.

        Raises `ValueError`, `TypeError` or `KeyError` if *desired* is not a desired state, and `OSError` if the fence
        cannot be read: a report would then confirm, without evidence, that removed addresses are no longer admitted.
        """
        received = DesiredState.from_dict(desired)
        self._synchronised.wait()
        if self._stopping.is_set():
            raise RuntimeError("the monitor is being stopped")
        with self._lock:
            if received.serial > self._desired.serial:
                self._desired = received
                self._reconcile()
            return self.audit()

    def audit(self) -> dict[str, Any]:
        """Return the report on daemons and fence as they are now; raises `OSError` if the fence cannot be read."""
        with self._lock:
            report = self._report().to_dict()
            if "read" in self._problems:
                raise OSError(self._problems["read"])
        return report

    def update_gpus(self, snapshot: GpuSnapshot) -> GpuSnapshot:
        """Have daemons for the GPUs of *snapshot*; return it with the GPUs withdrawn whose own daemon is not healthy.

        While the GPUs are unavailable, the daemons stay as they are.
        """
        if not snapshot.unavailable and _daemon_ports(snapshot) != self._gpus:
            with self._lock:
                self._set_gpus(snapshot)
                self._reconcile()
        if self._settings.life != PER_GPU:
            return snapshot
        unhealthy = self._unhealthy_gpus()
        return replace(
            snapshot,
            gpus=[
                replace(gpu, withdrawn=unhealthy[gpu.uuid])
                if gpu.withdrawn is None and gpu.uuid in unhealthy
                else gpu
                for gpu in snapshot.gpus
            ],
        )

    def lease_daemons(self) -> dict[int, Daemon]:
        """Return the daemons that live and serve one cGPU each, by the number of their control group.

        Empty where daemons have no control groups.
        """
        by_port = {status.daemon.port: status.daemon for status in self._supervisor.statuses()}
        return {
            group.number: by_port[port]
            for port, group in self._supervisor.listeners().items()
            if port in by_port and by_port[port].lease_id is not None
        }

    def usages(self) -> Mapping[Daemon, DaemonUsage]:
        """Return what each daemon that lives has used of this host up to now; empty where that is not known."""
        return self._supervisor.usages()

    def parent_uuid(self, uuid: str) -> str | None:
        """Return the UUID of the GPU that a MIG instance is part of; None for a whole GPU or an unknown one."""
        return self._parents.get(uuid)

    def daemons_changed(self) -> None:
        """Report soon; the supervisor calls this after the status or the control group of a daemon has changed.

        The fence lets clients connect to a daemon from now on, also while the engine does not answer.
        """
        with self._lock:
            self._try_fence(_TELL, self._set_listeners)
        self._report_due.set()
        if self._settings.life == PER_GPU:
            unhealthy = self._unhealthy_gpus()
            if unhealthy != self._unhealthy:
                self._unhealthy = unhealthy
                self.on_change()

    def describe(self) -> dict[str, Any]:
        """Return the desired state and the daemons, as they were reported last, for a report. Takes no lock."""
        desired = self._desired
        return {
            "desired state": {
                "serial": desired.serial,
                "daemons for leases": sorted(daemon.key for daemon in desired.daemons),
                "addresses that may connect": sorted(map(str, desired.admissions)),
            },
            "daemons": {
                key: f"{daemon['state']}, {daemon['restarts']} restarts, port {daemon['port']}"
                for key, daemon in self._reported.get("daemons", {}).items()
            },
            "problems of daemons and fence": list(self._problems.copy().values()),
        }

    def _set_gpus(self, snapshot: GpuSnapshot) -> None:
        self._gpus = _daemon_ports(snapshot)
        self._parents = {gpu.uuid: gpu.parent_uuid for gpu in snapshot.gpus}

    def _unhealthy_gpus(self) -> dict[str, str]:
        """Return the UUIDs of the GPUs whose own daemon is not healthy, each with the reason."""
        return {
            status.daemon.gpu_uuid: f"its daemon is {status.state}"
            + (f": {status.detail}" if status.detail else "")
            for status in self._supervisor.statuses()
            if status.daemon.lease_id is None and status.state != DaemonState.HEALTHY
        }

    def _reconcile(self) -> None:
        """Bring fence and daemons to the desired state, as far as that is known; the caller has the lock."""
        desired = daemons_per_gpu(self._gpus.items(), self._settings.ports)
        if self._settings.life != PER_GPU:
            desired = frozenset()
        # The fence goes first: see rule 3 of the module.
        self._try_fence("set", self._set_fence)
        self._try_fence(_TELL, self._set_listeners)
        if self._desired.serial == UNKNOWN_SERIAL:
            existing = {status.daemon for status in self._supervisor.statuses()}
            desired |= {daemon for daemon in existing if daemon.lease_id is not None}
        self._supervisor.set_desired(desired | self._desired.daemons)

    def _set_listeners(self, fence: Fence) -> None:
        fence.set_listeners(self._supervisor.listeners())

    def _set_fence(self, fence: Fence) -> None:
        fence.set_ports(self._ranges())
        if self._desired.serial != UNKNOWN_SERIAL:
            fence.apply(self._desired.admissions)

    def _ranges(self) -> list[tuple[int, int]]:
        """Return the ports of all daemons that there may be, as pairs of first and last."""
        ranges = [(port, port + self._settings.ports - 1) for port in self._gpus.values()]
        if self._settings.per_lease:
            ranges.append((self._settings.lease_ports.first, self._settings.lease_ports.last))
        return ranges

    def _report(self) -> DaemonReport:
        fence = None
        if self._fence is not None:
            # A fence that cannot be read is reported as one that admits no address: nothing else is certain.
            fence = self._try_fence("read", lambda fence: fence.report()) or FenceReport(
                frozenset()
            )
        return DaemonReport(
            self._desired.serial,
            self._supervisor.statuses(),
            fence,
            (*self._problems.values(), *self._supervisor.problems()),
            self._supervisor.version(),
        )

    def _try_fence(self, what: str, act: Callable[[Fence], T]) -> T | None:
        """Return what *act* returns for the fence; None without a fence, or if it fails, which becomes a problem."""
        if self._fence is None:
            return None
        try:
            result = act(self._fence)
        except OSError as error:
            LOG.warning("the fence of %s could not be %s: %s", self.host, what, error)
            self._problems[what] = f"the fence could not be {what}: {error}"
            return None
        self._problems.pop(what, None)
        return result

    def _run(self) -> None:
        self._synchronise()
        reports = pace.ReportPace()
        while not self._stopping.is_set():
            self._report_due.clear()
            answered = False
            try:
                self._send_report()
                answered = True
            except rpc.BusError as error:
                LOG.warning("the daemons of %s could not be reported: %s", self.host, error)
            except Exception:  # the thread must survive: without reports nobody is given a daemon
                LOG.exception("the daemons of %s could not be reported", self.host)
            pause = reports.next_pause(self._report_interval, answered=answered)
            reports.news = self._report_due.wait(pause)

    def _send_report(self) -> None:
        with self._lock:
            self._try_fence("set", self._set_fence)
            self._try_fence(_TELL, self._set_listeners)
            report = self._reported = self._report().to_dict() | {"release": version.RELEASE}
        self._engine.daemons_report(self.host, report)

    def _synchronise(self) -> None:
        """Fetch the desired state from the engine, however long that takes, and apply it."""
        back_off = pace.BackOff()
        while not self._stopping.is_set():
            try:
                self._fetch_desired()
                return
            except rpc.BusError as error:
                LOG.warning("the daemons of %s wait for the engine: %s", self.host, error)
            except Exception:  # the thread must survive, as above
                LOG.exception(
                    "the daemons of %s could not be brought to the state that the engine desires",
                    self.host,
                )
            self._stopping.wait(back_off.next_pause())

    def _fetch_desired(self) -> None:
        desired = self._engine.daemons_started(self.host)
        if self._stopping.is_set():
            return
        with self._lock:
            self._desired = desired
            self._reconcile()
        self._synchronised.set()


def _daemon_ports(snapshot: GpuSnapshot) -> dict[str, int]:
    return {gpu.uuid: gpu.daemon_port for gpu in snapshot.gpus}
