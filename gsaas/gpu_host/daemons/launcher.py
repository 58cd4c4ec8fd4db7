# SPDX-License-Identifier: Apache-2.0
"""Starts and ends the processes of daemons, and keeps their records and logs.

What to do, and when, is decided elsewhere (`plan`, through `supervisor`).
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from gsaas.gpu_host.daemons import enclosure, health, processes
from gsaas.gpu_host.daemons.logs import Logs
from gsaas.gpu_host.daemons.processes import ProcessTracker
from gsaas.gpu_host.daemons.records import DaemonRecord, DaemonRecords
from gsaas.objects.daemon import Daemon
from gsaas.remoting.daemon import DaemonCommand, DaemonSettings

_PASSED_ON = ("PATH", "LANG")
"""Variables of the monitor that daemons inherit."""
_MIG = "MIG-"


class CannotStart(Exception):
    """A daemon was not started; the message says why, as a sentence without its subject."""


@dataclass
class DaemonProcess:
    """The first process of a daemon."""

    pid: int
    pidfd: int | None
    """A descriptor that becomes readable when the process ends (pidfd_open(2)); None if it has ended and was closed."""
    child: subprocess.Popen[bytes] | None = None
    """None for a process that an earlier monitor started: only a parent learns the exit status."""

    @property
    def status(self) -> int | None:
        """Its exit status (below 0: minus the signal that ended it); None if it lives or is not our child."""
        return None if self.child is None else self.child.poll()

    def close(self) -> None:
        """Close the descriptor, and wait for the process if it is a zombie; the process itself is left alone."""
        if self.pidfd is not None:
            os.close(self.pidfd)
            self.pidfd = None
        if self.child is not None:
            self.child.poll()


class Launcher:
    """Starts the daemons of *host*, which listen at *address*, its IPv4 address on the GPU network.

    *devices* returns which device nodes each GPU has; it is called before every start, as GPUs come and go.
    *parents* returns the UUID of the GPU that a MIG instance is part of. *more_nodes* are names in *dev* that every
    daemon sees.
    """

    def __init__(
        self,
        settings: DaemonSettings,
        host: str,
        address: str,
        *,
        records: DaemonRecords,
        tracker: ProcessTracker,
        logs: Logs,
        more_nodes: Sequence[str] = (),
        devices: Callable[[], Mapping[str, enclosure.NvidiaDevice]] = enclosure.read_devices,
        parents: Callable[[str], str | None] = lambda _uuid: None,
        dev: Path = Path("/dev"),
    ) -> None:
        self._settings = settings
        self._host = host
        self._address = address
        self._records = records
        self._tracker = tracker
        self._logs = logs
        self._more_nodes = tuple(more_nodes)
        self._devices = devices
        self._parents = parents
        self._dev = dev
        self._check = health.CHECKS[settings.health]

    def adopt(self) -> list[tuple[DaemonRecord, DaemonProcess | None]]:
        """Return each daemon that an earlier monitor left, with its first process if that lives.

        Processes without a record belong to a daemon that was being removed: they are killed here.
        """
        found = []
        for record in self._records.all():
            process = None
            # The kernel may have given the PID to another process, which has another start time.
            if record.pid is not None and processes.start_time(record.pid) == record.started:
                process = DaemonProcess(record.pid, _open_pidfd(record.pid))
            found.append((record, process))
        known = {record.daemon.key for record, _ in found}
        for key in self._tracker.list_keys():
            if key not in known:
                self._tracker.kill(key)
                with suppress(OSError):  # processes that still end are found at the next start
                    self._tracker.remove(key)
        return found

    def start(self, daemon: Daemon, restarts: int) -> DaemonProcess:
        """Start a daemon, its processes tracked, and return its first process; raises `CannotStart`."""
        if processes.is_listening(daemon.port):
            raise CannotStart(f"cannot start: another process listens on port {daemon.port}")
        command = self._settings.command(daemon, self._host, self._address)
        for file in command.required_files:
            if not Path(file).exists():
                raise CannotStart(
                    f"is not started, because its limit of {daemon.memory_mb} MiB would have no effect: "
                    f"there is no {file}; see [daemons]memory_limit"
                )
        record = DaemonRecord(daemon, restarts=restarts)
        try:
            argv = self._enclosed(daemon, command)
            # The record goes first: if the monitor is killed after this line, the next one finds the daemon.
            self._records.write(record)
            self._tracker.create(daemon.key)
            child = self._run(daemon, command, argv)
        except (OSError, enclosure.NoDevice) as error:
            raise CannotStart(f"cannot start: {error}") from None
        process = DaemonProcess(child.pid, _open_pidfd(child.pid), child)
        self._records.write(
            replace(record, pid=child.pid, started=processes.start_time(child.pid) or "gone")
        )
        return process

    def check(self, daemon: Daemon) -> None:
        """Check the health of a daemon; raises `health.HealthCheckFailed`."""
        self._check(self._address, daemon)

    def has_processes(self, key: str) -> bool:
        """Return whether any process of a daemon lives."""
        return bool(self._tracker.pids(key))

    def port_taken(self, daemon: Daemon) -> bool:
        """Return whether any process, of the daemon or not, listens on its port."""
        return processes.is_listening(daemon.port)

    def terminate(self, key: str, process: DaemonProcess | None) -> None:
        """Send SIGTERM to a daemon's first process, which may end its children itself; to all if it has ended."""
        if process is None or processes.start_time(process.pid) is None:
            self._tracker.signal(key, signal.SIGTERM)
            return
        with suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGTERM)

    def kill(self, key: str) -> None:
        """End every process of a daemon now."""
        self._tracker.kill(key)

    def forget(self, key: str) -> None:
        """Remove everything that is stored about a daemon, except its log; raises `OSError`."""
        self._tracker.remove(key)
        self._records.remove(key)
        (self._records.folder / f"{key}.limit").unlink(missing_ok=True)

    def close(self) -> None:
        """Remove what the process tracker has made for itself, if there are no daemons."""
        self._tracker.close()

    def last_line(self, daemon: Daemon) -> str:
        """Return the last line that a daemon printed; empty if it printed nothing."""
        return self._logs.last_line(daemon)

    def trim(self, daemon: Daemon) -> None:
        """Keep the log of a daemon within its bound."""
        self._logs.trim(daemon)

    def sweep(self) -> None:
        """Remove logs that have been kept for long enough."""
        self._logs.sweep()

    def _enclosed(self, daemon: Daemon, command: DaemonCommand) -> list[str]:
        """Return the command line that starts a daemon in its enclosure; raises `enclosure.NoDevice`."""
        device: enclosure.NvidiaDevice | None = None
        nodes: list[str] = []
        if self._settings.own_devices:
            is_mig = daemon.gpu_uuid.startswith(_MIG)
            uuid = self._parents(daemon.gpu_uuid) if is_mig else daemon.gpu_uuid
            device = self._devices().get(uuid or "")
            if device is None:
                raise enclosure.NoDevice(
                    f"the NVIDIA driver of this host does not list {daemon.gpu_uuid}, so its device "
                    "node is not known; see [daemons]own_devices"
                )
            nodes = enclosure.nodes(device, is_mig, self._more_nodes)
        join_file = self._tracker.join_file
        return enclosure.wrap(
            command.argv,
            join_file=None if join_file is None else join_file.format(key=daemon.key),
            user=self._settings.user,
            device=device,
            nodes=nodes,
            scratch=self._records.folder,
            dev=self._dev,
        )

    def _run(
        self, daemon: Daemon, command: DaemonCommand, argv: Sequence[str]
    ) -> subprocess.Popen[bytes]:
        environment = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
        environment |= {**command.environment, **self._tracker.environment(daemon.key)}
        log = self._logs.open(daemon)
        try:
            return subprocess.Popen(
                argv,
                cwd=command.folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # a signal to the monitor's session does not reach daemons
            )
        finally:
            os.close(log)


def _open_pidfd(pid: int) -> int | None:
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError:
        return None
