# SPDX-License-Identifier: Apache-2.0
"""Starts and ends daemons, each as a transient unit of systemd.

What to do, and when, is decided elsewhere (`plan`, through `supervisor`).
"""

from __future__ import annotations

import logging
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from gsaas.gpu_host.daemons import devices, health, ports, unit
from gsaas.gpu_host.daemons.devices import NvidiaDevice
from gsaas.gpu_host.daemons.systemd import UNIT_EXISTS, Systemd, SystemdRefused
from gsaas.gpu_host.daemons.unit import Confinement, Devices, UnitState
from gsaas.gpu_host.fence.layout import ControlGroup
from gsaas.netlink.namespace import entered
from gsaas.objects.daemon import Daemon
from gsaas.objects.printable import one_line
from gsaas.remoting.daemon import DaemonSettings

LOG = logging.getLogger(__name__)

_MIG = "MIG-"
_JOURNAL_TIMEOUT = 10.0
"""Seconds for journalctl to answer."""
_LAST_LINE = 200
"""Characters of the last line."""
_JOURNAL_BYTES = 8192
"""What is read of the newest entries of a daemon; one may have any size."""


class CannotStart(Exception):
    """A daemon was not started; the message says why, as a sentence without its subject."""


class NotYet(Exception):
    """A daemon was not started because its last run is still being cleaned up; the message is like `CannotStart`'s."""


class DaemonRunner:
    """Runs the daemons of *host*, which listen at *address*, its IPv4 address on the GPU network.

    *known_devices* returns which device nodes each GPU has; it is called before every start, as GPUs come and go.
    *parents* returns the UUID of the GPU that a MIG instance is part of. *more_nodes* are names in /dev that every
    daemon sees; *journal* is the command that reads the journal. Methods raise
    `gsaas.gpu_host.daemons.systemd.SystemdUnavailable` while systemd does not answer.
    """

    def __init__(
        self,
        settings: DaemonSettings,
        host: str,
        address: str,
        systemd: Systemd,
        confinement: Confinement,
        *,
        more_nodes: Sequence[str] = (),
        known_devices: Callable[[], Mapping[str, NvidiaDevice]] = devices.read_devices,
        parents: Callable[[str], str | None] = lambda _uuid: None,
        journal: Sequence[str] = ("journalctl",),
    ) -> None:
        self._settings = settings
        self._host = host
        self._address = address
        self._systemd = systemd
        self._confinement = confinement
        self._more_nodes = tuple(more_nodes)
        self._known_devices = known_devices
        self._parents = parents
        self._journal = tuple(journal)
        self._check = health.CHECKS[settings.health]

    def units(self) -> dict[str, UnitState]:
        """Return the units of all daemons, by the keys of the daemons."""
        found = self._systemd.units(self.unit_name("*"))
        return {unit.key(state.name, self._confinement.netns): state for state in found}

    def adopt(self) -> list[tuple[Daemon, int, UnitState]]:
        """Return each daemon that an earlier monitor started, with its restarts and its unit."""
        found = []
        for state in self.units().values():
            with suppress(ValueError):  # a stranger, which `Strangers` ends
                found.append((*unit.parse(state.description), state))
        return found

    def start(self, daemon: Daemon, restarts: int) -> None:
        """Have systemd start a daemon; returns before that is done. Raises `CannotStart`, or `NotYet`."""
        if self.port_taken(daemon):
            raise CannotStart(f"cannot start: another process listens on port {daemon.port}")
        command = self._settings.command(daemon, self._host, self._address)
        if command.mps_pipe_directory is not None and self._settings.own_user:
            raise CannotStart(
                f"is not started, because its limit of {daemon.memory_mb} MiB by MPS would make it share its user "
                "with other daemons; see [daemons]isolation"
            )
        for file in command.required_files:
            if not Path(file).exists():
                raise CannotStart(
                    f"is not started, because its limit of {daemon.memory_mb} MiB would have no effect: "
                    f"there is no {file}; see [daemons]memory_limit"
                )
        wanted = unit.properties(
            daemon, restarts, command, self._devices_of(daemon), self._confinement
        )
        name = self.unit_name(daemon.key)
        try:
            self._systemd.forget(
                name
            )  # systemd starts no unit of this name while it keeps one that failed
            folder = unit.temporary_files(daemon, self._confinement)
            self._systemd.start_transient(name, wanted, [folder])
        except SystemdRefused as refusal:
            if refusal.error == UNIT_EXISTS:  # as while its temporary files are removed
                raise NotYet("waits until its last run is cleaned up") from None
            raise CannotStart(f"cannot start: systemd refuses it: {refusal}") from None

    def control_group(self, daemon: Daemon) -> ControlGroup | None:
        """Return the control group of a daemon; None while it has none."""
        return self._systemd.control_group(self.unit_name(daemon.key))

    def check(self, daemon: Daemon) -> str | None:
        """Return the version of a healthy daemon, None if it does not report one; raises `health.HealthCheckFailed`."""
        with entered(self._confinement.netns):
            return self._check(self._address, daemon)

    def has_processes(self, state: UnitState | None) -> bool:
        """Return whether a daemon with this unit has processes; None: systemd has no unit of it."""
        if state is None:
            return False
        # A process that cannot be killed, as it waits for a device, is left when systemd has given its unit up.
        return not state.ended or self._systemd.has_processes(state.name)

    def port_taken(self, daemon: Daemon) -> bool:
        """Return whether any process, of the daemon or not, listens on its port."""
        with entered(self._confinement.netns):
            return ports.is_listening(daemon.port)

    def stop(self, key: str) -> None:
        """Have systemd end a daemon: SIGTERM for its first process, and in the end SIGKILL for every one."""
        self._try(self._systemd.stop, self.unit_name(key))

    def kill(self, key: str) -> None:
        """End every process of a daemon now."""
        self._try(lambda name: self._systemd.kill(name, signal.SIGKILL), self.unit_name(key))

    def forget(self, key: str) -> None:
        """Have systemd forget a daemon without processes."""
        self._try(self._systemd.forget, self.unit_name(key))

    def ending(self, key: str) -> tuple[str, str | None]:
        """Return how a daemon ended, a sentence without its subject, and journald's id of that run, if it is known."""
        ending = self._systemd.ending(self.unit_name(key))
        if ending is None:
            return "ended", None
        return unit.failure(ending.result, ending.exec_main_status), ending.invocation_id

    def last_line(self, invocation: str) -> str:
        """Return the last line that a daemon printed in one run, cut at `_LAST_LINE`; empty if it is not known.

        The daemon may be a tenant's, so no more than `_JOURNAL_BYTES` are read, and what a terminal would obey is
        replaced.
        """
        command = [*self._journal, "--quiet", "--no-pager", "--output=cat", "--reverse"]
        newest = _head([*command, f"_SYSTEMD_INVOCATION_ID={invocation}"])
        lines = newest.decode(errors="replace").splitlines()
        line = next((line.strip() for line in lines if line.strip()), "")
        return one_line(line[:_LAST_LINE], _LAST_LINE)

    def unit_name(self, key: str) -> str:
        """Return the name of the unit of the daemon with this key."""
        return unit.name(key, self._confinement.netns)

    def _try(self, act: Callable[[str], None], name: str) -> None:
        """Do something to a unit; a refusal is logged, and what it was for is tried again."""
        try:
            act(name)
        except SystemdRefused as refusal:
            LOG.warning("systemd refuses to end or forget %s: %s", name, refusal)

    def _devices_of(self, daemon: Daemon) -> Devices | None:
        """Return the devices of a daemon, None for all of NVIDIA's driver; raises `CannotStart`."""
        if not self._settings.own_devices:
            return None
        is_mig = daemon.gpu_uuid.startswith(_MIG)
        uuid = self._parents(daemon.gpu_uuid) if is_mig else daemon.gpu_uuid
        try:
            return devices.own(uuid or "", self._known_devices(), is_mig, self._more_nodes)
        except KeyError:
            raise CannotStart(
                f"cannot start: the NVIDIA driver of this host does not list {daemon.gpu_uuid}, so its device "
                "node is not known; see [daemons]own_devices"
            ) from None
        except OSError as error:
            raise CannotStart(
                f"cannot start: the GPUs of this host cannot be read: {error}"
            ) from None


def _head(command: Sequence[str]) -> bytes:
    """Return the first `_JOURNAL_BYTES` bytes that a command prints, and kill it; what it printed if it takes long."""
    try:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    except OSError:
        return b""
    with process:
        timer = threading.Timer(_JOURNAL_TIMEOUT, process.kill)
        timer.start()
        try:
            return process.stdout.read(_JOURNAL_BYTES) if process.stdout is not None else b""
        finally:
            timer.cancel()
            process.kill()
