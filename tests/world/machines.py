# SPDX-License-Identifier: Apache-2.0
"""What else of a GPU host outlives its monitor: systemd with the units of daemons, and the GPUs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from gsaas.gpu_host.daemons import unit
from gsaas.gpu_host.daemons.health import HealthCheckFailed
from gsaas.gpu_host.daemons.runner import Changes, DaemonRunner
from gsaas.gpu_host.daemons.unavailable import SystemdUnavailable
from gsaas.gpu_host.daemons.unit import UnitState
from gsaas.gpu_host.fence.layout import ControlGroup
from gsaas.objects.daemon import Daemon, DaemonUsage
from gsaas.objects.gpu_report import GpuInfo, GpuSnapshot, Reading
from tests.world import baton
from tests.world.baton import Process
from tests.world.threads import Descriptor


@dataclass(eq=False)
class Unit:
    """One run of a daemon."""

    daemon: Daemon
    description: str
    group: int
    active: str = "activating"
    listens: bool = False
    has_processes: bool = True
    ignores_stop: bool = False


class Systemd:
    """The units of one host, and who watches them."""

    def __init__(self, host: str) -> None:
        self.host = host
        self.units: dict[str, Unit] = {}
        self.watchers: list[MemoryChanges] = []
        self.is_away = False
        self.fails_next = False
        """The next daemon ends before it listens."""
        self.ignores_stop = False
        """Daemons that are started now do not end when they are asked to."""
        self._process = Process(f"systemd of {host}")
        self._groups = 100

    def start(self, daemon: Daemon, restarts: int) -> None:
        self._groups += 1
        made = Unit(
            daemon,
            unit.describe(daemon, restarts),
            self._groups,
            ignores_stop=self.ignores_stop,
        )
        self.units[daemon.key] = made
        fails, self.fails_next = self.fails_next, False
        baton.here().spawn("unit", lambda: self._run(made, fails), self._process)

    def _run(self, made: Unit, fails: bool) -> None:
        scheduler = baton.here()
        scheduler.sleep(scheduler.chance.random())
        if not made.has_processes:
            return
        if fails:
            self.end(made, "failed")
            return
        made.active = "active"
        self.changed()
        scheduler.sleep(scheduler.chance.random())
        made.listens = made.has_processes
        self.changed()

    def stop(self, key: str) -> None:
        made = self.units.get(key)
        if made is not None and made.has_processes and not made.ignores_stop:
            made.active = "deactivating"
            baton.here().spawn("unit", lambda: self._stop(made), self._process)

    def _stop(self, made: Unit) -> None:
        scheduler = baton.here()
        scheduler.sleep(3 * scheduler.chance.random())
        self.end(made)

    def end(self, made: Unit, active: str = "inactive") -> None:
        """End all processes of a unit."""
        made.active, made.has_processes, made.listens = active, False, False
        self.changed()

    def changed(self) -> None:
        for watcher in self.watchers:
            watcher.descriptor.set()


class MemoryChanges(Changes):
    """`gsaas.gpu_host.daemons.runner.Changes`."""

    def __init__(self, systemd: Systemd) -> None:
        if systemd.is_away:
            raise SystemdUnavailable("systemd does not answer")
        self.descriptor = Descriptor()
        self._systemd = systemd
        systemd.watchers.append(self)

    def fileno(self) -> int:
        return self.descriptor  # type: ignore[return-value]  # `tests.world.threads` knows no other

    def take(self) -> bool:
        self.descriptor.is_readable = False
        return True

    def close(self) -> None:
        if self in self._systemd.watchers:
            self._systemd.watchers.remove(self)


class MemoryRunner(DaemonRunner):
    """`gsaas.gpu_host.daemons.unit_runner.UnitRunner`, with that systemd."""

    def __init__(self, systemd: Systemd) -> None:
        self._systemd = systemd

    def _reach(self) -> Systemd:
        baton.here().point()
        if self._systemd.is_away:
            raise SystemdUnavailable("systemd does not answer")
        return self._systemd

    def units(self) -> dict[str, UnitState]:
        return {
            key: UnitState(unit.name(key), each.description, each.active)
            for key, each in self._reach().units.items()
        }

    def start(self, daemon: Daemon, restarts: int) -> None:
        self._reach().start(daemon, restarts)
        baton.here().effect("daemon")

    def control_group(self, daemon: Daemon) -> ControlGroup | None:
        found = self._reach().units.get(daemon.key)
        if found is None or not found.has_processes:
            return None
        return ControlGroup(found.group, 3, 50)

    def usage(self, daemon: Daemon, group: ControlGroup | None) -> DaemonUsage | None:
        return None

    def check(self, daemon: Daemon) -> str | None:
        baton.here().point()
        found = self._systemd.units.get(daemon.key)
        if found is None or not found.listens:
            raise HealthCheckFailed("takes no connection")
        return "1.0"

    def has_processes(self, state: UnitState | None) -> bool:
        if state is None:
            return False
        found = self._systemd.units.get(unit.key(state.name))
        return found is not None and found.has_processes

    def taken_port(self, daemon: Daemon) -> int | None:
        taken = {
            port
            for each in self._systemd.units.values()
            if each.listens
            for port in each.daemon.all_ports
        }
        return next((port for port in daemon.all_ports if port in taken), None)

    def stop(self, key: str) -> None:
        self._reach().stop(key)
        baton.here().effect("daemon")

    def kill(self, key: str) -> None:
        found = self._reach().units.get(key)
        if found is not None:
            self._systemd.end(found)

    def forget(self, key: str) -> None:
        self._reach().units.pop(key, None)

    def ending(self, key: str) -> tuple[str, str | None]:
        return "ended with status 1", None

    def last_line(self, run: str) -> str:
        return ""

    def where_to_look(self, key: str) -> str:
        return "the journal"


class MemoryGpus:
    """A source of GPUs that fail, return, and are read as odd values."""

    def __init__(self, gpus: Sequence[GpuInfo]) -> None:
        self.gpus = {gpu.uuid: gpu for gpu in gpus}
        self.withdrawn: dict[str, str] = {}
        self.missing: set[str] = set()
        self.odd: Reading | None = None
        """What is read of each GPU, if it is odd."""
        self.fails = False
        """The driver does not answer."""
        self._on_change: Callable[[], None] = lambda: None

    def snapshot(self) -> GpuSnapshot:
        baton.here().point()
        if self.fails:
            raise OSError("the driver does not answer")
        found = [
            replace(gpu, withdrawn=self.withdrawn.get(uuid))
            for uuid, gpu in self.gpus.items()
            if uuid not in self.missing
        ]
        reading = self.odd or Reading(used_mb=10, utilisation=0.0, temperature_c=40.0, power_w=50.0)
        return GpuSnapshot(found, {gpu.uuid: reading for gpu in found})

    def subscribe(self, on_change: Callable[[], None]) -> None:
        self._on_change = on_change

    def changed(self) -> None:
        self._on_change()

    def close(self) -> None:
        self._on_change = lambda: None
