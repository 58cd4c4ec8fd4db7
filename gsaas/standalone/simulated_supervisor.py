# SPDX-License-Identifier: Apache-2.0
"""A supervisor with the interface of `gsaas.gpu_host.daemons.supervisor`, for the simulated middleware.

Its daemons are simulated in this process: they start at once, are always healthy, and end with the process.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

from gsaas.gpu_host.fence.layout import ControlGroup
from gsaas.objects.address import Address
from gsaas.objects.daemon import Daemon, DaemonState, DaemonStatus, DaemonUsage
from gsaas.standalone.simulated_daemon import SimulatedDaemons


class SimulatedSupervisor:
    """Supervises daemons of *host* at *address*, inside the network namespace *netns* (None: that of the process).

    *on_change* is called after the statuses of daemons have changed.
    """

    def __init__(
        self,
        daemons: SimulatedDaemons,
        host: str,
        address: str,
        *,
        netns: str | None = None,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        self._daemons = daemons
        self._host = host
        self._address = address
        self._netns = netns
        self._on_change = on_change
        self._lock = threading.Lock()
        self._running: dict[str, Daemon] = {}
        self._failed: dict[str, DaemonStatus] = {}

    def adopt(self) -> None:
        """Do nothing: no simulated daemon outlives its process, so there is none to take over."""

    def start(self) -> None:
        """Do nothing: simulated daemons need no supervision."""

    def stop(self) -> None:
        """End every daemon: simulated daemons do not outlive the process."""
        self.set_desired(())

    def set_desired(self, daemons: Iterable[Daemon]) -> None:
        """Start the daemons that are missing and end all others, before this returns."""
        with self._lock:
            before = self._statuses()
            desired = {daemon.key: daemon for daemon in daemons}
            for key, daemon in list(self._running.items()):
                if desired.get(key) != daemon:
                    self._daemons.stop(self._name(key))
                    del self._running[key]
            self._failed.clear()  # every call tries again to start what could not start before
            for key in sorted(desired.keys() - self._running.keys()):
                self._start(desired[key])
            changed = self._statuses() != before
        if changed:
            self._on_change()

    def statuses(self) -> list[DaemonStatus]:
        """Return the status of every desired daemon, by key."""
        with self._lock:
            return self._statuses()

    def listeners(self) -> dict[int, ControlGroup]:
        """Return nothing: they are threads of this process."""
        return {}

    def usages(self) -> dict[Daemon, DaemonUsage]:
        """Return nothing: they are threads of this process."""
        return {}

    def version(self) -> str | None:
        """Return nothing: it is not known."""
        return None

    def problems(self) -> list[str]:
        """Return nothing: threads end when they are told to."""
        return []

    def _start(self, daemon: Daemon) -> None:
        address = Address(self._address, daemon.port)
        name = self._name(daemon.key)
        try:
            self._daemons.start(daemon.gpu_uuid, self._host, address, self._netns, name=name)
        except OSError as error:
            why = f"cannot listen at {address}: {error.strerror}"
            self._failed[daemon.key] = DaemonStatus(daemon, DaemonState.DOWN, detail=why)
        else:
            self._running[daemon.key] = daemon

    def _statuses(self) -> list[DaemonStatus]:
        healthy = [DaemonStatus(daemon, DaemonState.HEALTHY) for daemon in self._running.values()]
        return sorted([*healthy, *self._failed.values()], key=lambda each: each.daemon.key)

    def _name(self, key: str) -> str:
        """Return the daemon's name in `SimulatedDaemons`, which several hosts may share."""
        return f"{self._host}/{key}"
