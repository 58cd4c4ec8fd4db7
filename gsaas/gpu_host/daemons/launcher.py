"""Starts and ends the processes of daemons: groups, records, logs and templates as one.

What to do, and when, comes from outside (`plan`, through `supervisor`).
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
from gsaas.gpu_host.daemons.processes import Groups
from gsaas.gpu_host.daemons.records import Record, Records
from gsaas.objects.daemon import Daemon
from gsaas.remoting.daemon import Command, Daemons

_PASSED_ON = ("PATH", "LANG")
_MIG = "MIG-"


class CannotStart(Exception):
    """A daemon was not started; the message says why, as a sentence without its subject."""


@dataclass
class Process:
    """The first process of a daemon."""

    pid: int
    watch: int | None
    """A descriptor that becomes readable when it ends; None if it has ended already."""
    child: subprocess.Popen[bytes] | None = None
    """None for one that a monitor before us started."""

    @property
    def status(self) -> int | None:
        """Its exit status (below 0: the signal that ended it), if it is ours and has ended."""
        return None if self.child is None else self.child.poll()

    def close(self) -> None:
        if self.watch is not None:
            os.close(self.watch)
            self.watch = None
        if self.child is not None:
            self.child.poll()


class Launcher:
    """The daemons of *host*, which listen at *address*, an IPv4 address of its GPU network.

    *devices* tells which device nodes a GPU has; it is asked before every start, for GPUs come and go.
    """

    def __init__(
        self,
        daemons: Daemons,
        host: str,
        address: str,
        *,
        records: Records,
        groups: Groups,
        logs: Logs,
        more_nodes: Sequence[str] = (),
        devices: Callable[[], Mapping[str, enclosure.Device]] = enclosure.read_devices,
        parents: Callable[[str], str | None] = lambda _uuid: None,
        dev: Path = Path("/dev"),
    ) -> None:
        self._daemons = daemons
        self._host = host
        self._address = address
        self._records = records
        self._groups = groups
        self._logs = logs
        self._more_nodes = tuple(more_nodes)
        self._devices = devices
        self._parents = parents
        self._dev = dev
        self._check = health.CHECKS[daemons.health]

    def adopt(self) -> list[tuple[Record, Process | None]]:
        """What a monitor before us left: each daemon, and its first process if it lives.

        Groups without a record were half removed: they are killed here.
        """
        found = []
        for record in self._records.all():
            process = None
            if record.pid is not None and processes.started(record.pid) == record.started:
                process = Process(record.pid, _watch(record.pid))
            found.append((record, process))
        known = {record.daemon.key for record, _ in found}
        for key in self._groups.names():
            if key not in known:
                self._groups.kill(key)
                with suppress(OSError):  # what has not ended yet is found again at the next start
                    self._groups.remove(key)
        return found

    def start(self, daemon: Daemon, restarts: int) -> Process:
        """Start a daemon in a group of its own; raises `CannotStart`."""
        if processes.listening(daemon.port):
            raise CannotStart(f"cannot start: somebody else listens on port {daemon.port}")
        command = self._daemons.command(daemon, self._host, self._address)
        for need in command.needs:
            if not Path(need).exists():
                raise CannotStart(
                    f"is not started, because its limit of {daemon.memory_mb} MiB would not hold: "
                    f"there is no {need}; see [daemons]memory_limit"
                )
        record = Record(daemon, restarts=restarts)
        try:
            words = self._enclosed(daemon, command)
            self._records.write(record)  # before it exists: whatever happens, it is found again
            self._groups.make(daemon.key)
            child = self._run(daemon, command, words)
        except (OSError, enclosure.NoDevice) as error:
            raise CannotStart(f"cannot start: {error}") from None
        process = Process(child.pid, _watch(child.pid), child)
        self._records.write(
            replace(record, pid=child.pid, started=processes.started(child.pid) or "gone")
        )
        return process

    def check(self, daemon: Daemon) -> None:
        """Raises `health.Unhealthy`."""
        self._check(self._address, daemon)

    def has_members(self, key: str) -> bool:
        return bool(self._groups.members(key))

    def port_taken(self, daemon: Daemon) -> bool:
        return processes.listening(daemon.port)

    def terminate(self, key: str, process: Process | None) -> None:
        """Ask a daemon to end: its first process knows what to tell its children."""
        if process is None or processes.started(process.pid) is None:
            self._groups.signal(key, signal.SIGTERM)
            return
        with suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGTERM)

    def kill(self, key: str) -> None:
        self._groups.kill(key)

    def forget(self, key: str) -> None:
        """Remove what is left of a daemon that is gone; raises `OSError`."""
        self._groups.remove(key)
        self._records.remove(key)
        (self._records.folder / f"{key}.limit").unlink(missing_ok=True)

    def close(self) -> None:
        """Remove what holds daemons together, if there are none."""
        self._groups.close()

    def last_line(self, daemon: Daemon) -> str:
        return self._logs.last_line(daemon)

    def trim(self, daemon: Daemon) -> None:
        self._logs.trim(daemon)

    def sweep(self) -> None:
        self._logs.sweep()

    def _enclosed(self, daemon: Daemon, command: Command) -> list[str]:
        device, visible = None, []
        if self._daemons.own_devices:
            is_mig = daemon.gpu_uuid.startswith(_MIG)
            uuid = self._parents(daemon.gpu_uuid) if is_mig else daemon.gpu_uuid
            device = self._devices().get(uuid or "")
            if device is None:
                raise enclosure.NoDevice(
                    f"the NVIDIA driver of this host does not list {daemon.gpu_uuid}, so its device "
                    "node is not known; see [daemons]own_devices"
                )
            visible = enclosure.nodes(device, is_mig, self._more_nodes)
        procs = self._groups.procs
        return enclosure.wrap(
            command.words,
            group_file=None if procs is None else procs.format(key=daemon.key),
            user=self._daemons.user,
            device=device,
            visible=visible,
            scratch=self._records.folder,
            dev=self._dev,
        )

    def _run(
        self, daemon: Daemon, command: Command, words: Sequence[str]
    ) -> subprocess.Popen[bytes]:
        environment = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
        environment |= {**command.environment, **self._groups.mark(daemon.key)}
        log = self._logs.open(daemon)
        try:
            return subprocess.Popen(
                words,
                cwd=command.folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        finally:
            os.close(log)


def _watch(pid: int) -> int | None:
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError:
        return None
