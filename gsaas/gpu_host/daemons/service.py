"""Daemons and fence of one GPU host, on the message bus: takes the engine's orders, reports what there is.

1. At start, and until it succeeded, it asks for everything it should hold. Until then nothing is ended or shut out, and
   orders wait, for they may be newer than that answer.
2. Of two orders the one with the larger number counts, in whatever sequence they arrive.
3. First the fence lets nobody in whose lease is over, then daemons end: what is left behind is never reached.
4. It reports when a daemon comes to fare otherwise, and every now and then. What it could not do it reports as a
   problem, and tries again with the next report.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Protocol

from gsaas import rpc
from gsaas.gpu_host.fence.fence import Fence
from gsaas.objects.daemon import (
    Condition,
    Daemon,
    DaemonReport,
    DaemonState,
    DesiredState,
    FenceReport,
)
from gsaas.objects.daemon import per_gpu as daemons_of
from gsaas.objects.gpu_report import Sight
from gsaas.remoting.daemon import PER_GPU, Daemons
from gsaas.rpc.engine import EngineClient

LOG = logging.getLogger(__name__)

REPORT_INTERVAL = 30.0
RETRY_PAUSE = 1.0
"""Seconds between two attempts to reach the engine at start."""
STOP_PATIENCE = 2.0
"""Seconds for which an end waits for the last report."""


class Supervises(Protocol):
    """What `Supervisor` and `SimulatedSupervisor` have in common."""

    def start(self) -> None: ...

    def stop(self) -> None: ...

    def want(self, daemons: Iterable[Daemon]) -> None: ...

    def conditions(self) -> list[Condition]: ...


class DaemonService:
    """The daemons of *host*, as *kind* says they are run; *make* makes what supervises them, for this service.

    *fence* is around their ports; None: there is none. *on_change* is called when a daemon that serves a whole GPU
    fares otherwise.
    """

    def __init__(
        self,
        host: str,
        engine: EngineClient,
        kind: Daemons,
        make: Callable[[DaemonService], Supervises],
        fence: Fence | None,
        *,
        report_interval: float = REPORT_INTERVAL,
    ) -> None:
        self.host = host
        self.on_change: Callable[[], None] = lambda: None
        self._engine = engine
        self._kind = kind
        self._parents: dict[str, str | None] = {}
        self._fence = fence
        self._report_interval = report_interval
        self._lock = threading.Lock()
        self._told = threading.Event()
        self._wanted = DesiredState(-1)
        self._gpus: dict[str, int] = {}
        self._troubled: dict[str, str] = {}
        self._problems: dict[str, str] = {}
        self._news = threading.Event()
        self._stopping = threading.Event()
        self._reporter = threading.Thread(target=self._run, name=f"daemons-{host}", daemon=True)
        self._supervisor = make(self)

    def start(self, sight: Sight) -> None:
        """Take over what is there. Raises `OSError` when the kernel does not let us have a fence."""
        self._note(sight)
        if self._fence is not None:
            self._fence.start(self._ranges())
        self._supervisor.start()
        with self._lock:
            self._settle()
        self._reporter.start()

    def stop(self) -> None:
        """Look after them no more, and leave daemons and fence as they are."""
        self._stopping.set()
        self._told.set()
        self._news.set()
        self._reporter.join(STOP_PATIENCE)
        self._supervisor.stop()
        if self._fence is not None:
            self._fence.stop()

    def apply(self, wanted: Mapping[str, Any]) -> dict[str, Any]:
        """Hold what the engine wants, and return the report.

        Raises `ValueError`, `TypeError`, `KeyError` for nonsense, and `OSError` if the fence cannot be read: the
        answer would confirm that somebody is shut out, and nobody knows.
        """
        orders = DesiredState.from_dict(wanted)
        self._told.wait()
        if self._stopping.is_set():
            raise RuntimeError("it is being stopped")
        with self._lock:
            if orders.serial > self._wanted.serial:
                self._wanted = orders
                self._settle()
            report = self._report().to_dict()
        if "read" in self._problems:
            raise OSError(self._problems["read"])
        return report

    def serve(self, sight: Sight) -> Sight:
        """Have daemons for the GPUs that are there now; in the sight returned, those without one are withdrawn."""
        if not sight.blind and _ports(sight) != self._gpus:
            with self._lock:
                self._note(sight)
                self._settle()
        if self._kind.life != PER_GPU:
            return sight
        troubled = self._trouble()
        return replace(
            sight,
            gpus=[
                replace(gpu, withdrawn=troubled[gpu.uuid])
                if gpu.withdrawn is None and gpu.uuid in troubled
                else gpu
                for gpu in sight.gpus
            ],
        )

    def parent(self, uuid: str) -> str | None:
        """The GPU that a MIG instance is part of."""
        return self._parents.get(uuid)

    def changed(self) -> None:
        """A daemon fares otherwise than before."""
        self._news.set()
        if self._kind.life == PER_GPU:
            troubled = self._trouble()
            if troubled != self._troubled:
                self._troubled = troubled
                self.on_change()

    def _note(self, sight: Sight) -> None:
        self._gpus = _ports(sight)
        self._parents = {gpu.uuid: gpu.parent_uuid for gpu in sight.gpus}

    def _trouble(self) -> dict[str, str]:
        """GPUs whose own daemon is not well, and why."""
        return {
            each.daemon.gpu_uuid: f"its daemon is {each.state}"
            + (f": {each.detail}" if each.detail else "")
            for each in self._supervisor.conditions()
            if each.daemon.lease_id is None and each.state != DaemonState.HEALTHY
        }

    def _settle(self) -> None:
        """Do what is wanted, as far as it is known; somebody holds the lock."""
        own = daemons_of(self._gpus.items()) if self._kind.life == PER_GPU else frozenset()
        if self._fence is not None:
            self._guard("set", self._set_fence)
        if self._wanted.serial < 0:  # nobody has told us yet whose these are
            left = {each.daemon for each in self._supervisor.conditions()}
            own |= {daemon for daemon in left if daemon.lease_id is not None}
        self._supervisor.want(own | self._wanted.daemons)

    def _set_fence(self) -> None:
        self._fence.enclose(self._ranges())
        if self._wanted.serial >= 0:
            self._fence.apply(self._wanted.admissions)

    def _ranges(self) -> list[tuple[int, int]]:
        ranges = [(port, port) for port in self._gpus.values()]
        if self._kind.serves_leases:
            ranges.append((self._kind.lease_ports.first, self._kind.lease_ports.last))
        return ranges

    def _report(self) -> DaemonReport:
        fence = None
        if self._fence is not None:
            # A fence that cannot be read admits, as far as anybody knows, nobody.
            fence = self._guard("read", self._fence.report) or FenceReport(frozenset())
        return DaemonReport(
            self._wanted.serial,
            self._supervisor.conditions(),
            fence,
            tuple(self._problems.values()),
        )

    def _guard(self, what: str, act: Callable[[], Any]) -> Any:
        try:
            result = act()
        except OSError as error:
            LOG.warning("the fence of %s could not be %s: %s", self.host, what, error)
            self._problems[what] = f"the fence could not be {what}: {error}"
            return None
        self._problems.pop(what, None)
        return result

    def _run(self) -> None:
        self._take_over()
        while not self._stopping.is_set():
            self._news.clear()
            with self._lock:
                if self._fence is not None:
                    self._guard("set", self._set_fence)
                report = self._report().to_dict()
            try:
                self._engine.daemons_report(self.host, report)
            except rpc.BusError as error:
                LOG.warning("the daemons of %s could not be reported: %s", self.host, error)
            self._news.wait(self._report_interval)

    def _take_over(self) -> None:
        """Hold what the engine says, and nothing else."""
        while not self._stopping.is_set():
            try:
                wanted = self._engine.daemons_started(self.host)
            except (rpc.BusError, ValueError, TypeError, KeyError) as error:
                LOG.warning("the daemons of %s wait for the engine: %s", self.host, error)
                self._stopping.wait(RETRY_PAUSE)
                continue
            if self._stopping.is_set():
                return
            with self._lock:
                self._wanted = wanted
                self._settle()
            self._told.set()
            return


def _ports(sight: Sight) -> dict[str, int]:
    return {gpu.uuid: gpu.daemon_port for gpu in sight.gpus}
