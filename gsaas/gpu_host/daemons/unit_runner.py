# SPDX-License-Identifier: Apache-2.0
"""Runs daemons as transient units of systemd."""

from __future__ import annotations

import logging
import signal
import subprocess
import threading
from collections.abc import Callable, Sequence

from gsaas.gpu_host.daemons import unit
from gsaas.gpu_host.daemons.runner import CannotStart, DaemonRunner, NotYet, last_line
from gsaas.gpu_host.daemons.systemd import UNIT_EXISTS, Systemd, SystemdRefused
from gsaas.gpu_host.daemons.unit import Confinement, Devices, UnitState
from gsaas.gpu_host.fence.layout import ControlGroup
from gsaas.objects.daemon import Daemon
from gsaas.remoting.daemon import DaemonSettings

LOG = logging.getLogger(__name__)

_JOURNAL_TIMEOUT = 10.0
"""Seconds for journalctl to answer."""
_JOURNAL_BYTES = 8192
"""What is read of the newest entries of a daemon; one may have any size."""


class UnitRunner(DaemonRunner):
    """Runs the daemons of *host* as units of *systemd*.

    *devices_of* returns the devices of a daemon, and None if it may use all of NVIDIA's driver. It is called before
    every start, as GPUs come and go, and raises `CannotStart`. *journal* is the command that reads the journal.
    """

    def __init__(
        self,
        settings: DaemonSettings,
        host: str,
        address: str,
        systemd: Systemd,
        confinement: Confinement,
        devices_of: Callable[[Daemon], Devices | None] = lambda _daemon: None,
        *,
        journal: Sequence[str] = ("journalctl",),
    ) -> None:
        super().__init__(settings, host, address)
        self._systemd = systemd
        self._confinement = confinement
        self._devices_of = devices_of
        self._journal = tuple(journal)

    def units(self) -> dict[str, UnitState]:
        return {unit.key(state.name): state for state in self._systemd.units(unit.name("*"))}

    def start(self, daemon: Daemon, restarts: int) -> None:
        """Have systemd start a daemon; returns before that is done. Raises `CannotStart`, or `NotYet`."""
        command = self._command(daemon)
        if command.mps_pipe_directory is not None and self._settings.own_user:
            raise CannotStart(
                f"is not started, because its limit of {daemon.memory_mb} MiB by MPS would make it share its user "
                "with other daemons; see [daemons]isolation"
            )
        wanted = unit.properties(
            daemon, restarts, command, self._devices_of(daemon), self._confinement
        )
        name = unit.name(daemon.key)
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
        return self._systemd.control_group(unit.name(daemon.key))

    def has_processes(self, state: UnitState | None) -> bool:
        """Return whether a daemon with this unit has processes; None: systemd has no unit of it."""
        if state is None:
            return False
        # A process that cannot be killed, as it waits for a device, is left when systemd has given its unit up.
        return not state.ended or self._systemd.has_processes(state.name)

    def stop(self, key: str) -> None:
        """Have systemd end a daemon: SIGTERM for its first process, and in the end SIGKILL for every one."""
        self._try(self._systemd.stop, unit.name(key))

    def kill(self, key: str) -> None:
        """End every process of a daemon now."""
        self._try(lambda name: self._systemd.kill(name, signal.SIGKILL), unit.name(key))

    def forget(self, key: str) -> None:
        """Have systemd forget a daemon without processes."""
        self._try(self._systemd.forget, unit.name(key))

    def ending(self, key: str) -> tuple[str, str | None]:
        """Return how a daemon ended, a sentence without its subject, and journald's id of that run, if it is known."""
        ending = self._systemd.ending(unit.name(key))
        if ending is None:
            return "ended", None
        return unit.failure(ending.result, ending.exec_main_status), ending.invocation_id

    def last_line(self, run: str) -> str:
        """Return the last line that a daemon printed in one run, empty if it is not known.

        The daemon may be a tenant's, so no more than `_JOURNAL_BYTES` are read.
        """
        command = [*self._journal, "--quiet", "--no-pager", "--output=cat", "--reverse"]
        newest = _head([*command, f"_SYSTEMD_INVOCATION_ID={run}"]).splitlines()
        return last_line(reversed(newest))

    def where_to_look(self, key: str) -> str:
        return f"systemctl status {unit.name(key)}"

    def _try(self, act: Callable[[str], None], name: str) -> None:
        """Do something to a unit; a refusal is logged, and what it was for is tried again."""
        try:
            act(name)
        except SystemdRefused as refusal:
            LOG.warning("systemd refuses to end or forget %s: %s", name, refusal)


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
