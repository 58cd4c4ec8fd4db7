# SPDX-License-Identifier: Apache-2.0
"""The part of a monitor that runs daemons: a supervisor in this process, with the systemd of a machine."""

from __future__ import annotations

import shutil
import socket
import subprocess
import tempfile
import uuid
from contextlib import ExitStack, suppress
from pathlib import Path

import gsaas.conf
from gsaas.gpu_host.daemons import unit
from gsaas.gpu_host.daemons.plan import DaemonTimeouts
from gsaas.gpu_host.daemons.supervisor import Supervisor
from gsaas.gpu_host.daemons.systemd import Systemd, UnitChanges
from gsaas.gpu_host.daemons.unit_runner import UnitRunner
from gsaas.objects.daemon import Daemon, DaemonState, DaemonStatus
from gsaas.remoting import base
from tests.support.gpu_machine import GpuMachine
from tests.support.waiting import until

FAKE = "/opt/fake_daemon.py"
"""Where the machine has it."""
TIMEOUTS = DaemonTimeouts(start=20.0, stop=0.5, first_pause=0.1, longest_pause=1.0)


def free_port(ports: int = 1) -> int:
    """Return a port that is free, with so many *ports* from it on."""
    with ExitStack() as taken, suppress(OSError, OverflowError):
        port: int = taken.enter_context(socket.create_server(("127.0.0.1", 0))).getsockname()[1]
        for number in range(1, ports):
            taken.enter_context(socket.create_server(("127.0.0.1", port + number)))
        return port
    return free_port(ports)


class GpuHost:
    """Supervisors on one machine. Another one after `abandon` is a restarted monitor."""

    def __init__(self, machine: GpuMachine) -> None:
        self.machine = machine
        self.folder = Path(tempfile.mkdtemp(dir=machine.shared))
        """The machine sees it, too."""
        self.folder.chmod(0o755)
        self._conf = gsaas.conf.load(files=[])
        self._supervisors: list[Supervisor] = []

    def supervise(
        self,
        *behaviours: str,
        timeouts: DaemonTimeouts = TIMEOUTS,
        bus: str | None = None,
        **settings: object,
    ) -> Supervisor:
        """Return a started supervisor whose daemons have these behaviours of tests/support/fake_daemon.py."""
        chosen = {
            "life": "per-lease",
            "memory_limit": "none",
            "own_devices": False,
            "health": "simulated",
            "folder": "/opt",
            "command": f"/usr/bin/python3 -ES {FAKE} {{port}} {{gpu_uuid}} {' '.join(behaviours)}",
            **settings,
        }
        for option, value in chosen.items():
            self._conf.set_override(option, value, group="daemons")
        address = bus or self.machine.bus
        systemd = Systemd(address)
        runner = UnitRunner(
            base.load("rcuda", self._conf).daemon_settings,
            "gpu1",
            "127.0.0.1",
            systemd,
            unit.Confinement(("/etc/gsaas",), 1024, 256, timeouts.stop, 252),
            journal=self.machine.journal,
        )
        supervisor = Supervisor(runner, timeouts, lambda: UnitChanges(unit.PREFIX, address))
        self._supervisors.append(supervisor)
        supervisor.adopt()
        supervisor.start()
        return supervisor

    def abandon(self, supervisor: Supervisor) -> None:
        """End the monitor, and not its daemons."""
        self._supervisors.remove(supervisor)
        supervisor.stop()

    def close(self) -> None:
        """End all daemons that are left."""
        for supervisor in list(self._supervisors):
            self.abandon(supervisor)
        for name in self.machine.units():
            self.machine.type(f"systemctl kill -s KILL {name}; systemctl stop {name}", check=False)
            self.machine.type(f"systemctl reset-failed {name}", check=False)
        until(lambda: not self.machine.units(), "the daemons to be gone")
        shutil.rmtree(self.folder)

    def processes(self) -> set[int]:
        """Return the PIDs of all processes that run the fake daemon, in whatever control group."""
        found = self.machine.type(f"pgrep -f {FAKE}", check=False).stdout
        return {int(pid) for pid in found.split()}

    def pids(self, daemon: Daemon) -> set[int]:
        """Return the PIDs of the processes of one daemon."""
        return self.machine.processes(unit.name(daemon.key))

    def main_pid(self, daemon: Daemon) -> int:
        """Return the PID of its first process."""
        return int(self.machine.show(unit.name(daemon.key), "MainPID"))


def lease_daemon(**changes: object) -> Daemon:
    port = free_port(changes.get("ports", 1))
    values = {"gpu_uuid": "GPU-1", "port": port, "lease_id": str(uuid.uuid4())}
    return Daemon(**{**values, **changes})


def status_of(supervisor: Supervisor, daemon: Daemon) -> DaemonStatus | None:
    return next((c for c in supervisor.statuses() if c.daemon.key == daemon.key), None)


def await_state(
    supervisor: Supervisor, daemon: Daemon, state: DaemonState | None
) -> DaemonStatus | None:
    """Wait until a daemon has this state; None: until it is gone. Return its status."""

    def arrived() -> bool:
        status = status_of(supervisor, daemon)
        return (status and status.state) == state

    until(arrived, lambda: f"{daemon.key} to be {state}, it is {status_of(supervisor, daemon)}")
    return status_of(supervisor, daemon)


def await_detail(supervisor: Supervisor, daemon: Daemon, text: str) -> None:
    """Wait until the status of a daemon says *text*."""
    until(
        lambda: text in (getattr(status_of(supervisor, daemon), "detail", None) or ""),
        f"{text!r}; it is {status_of(supervisor, daemon)}",
    )


def answer_of(port: int) -> str:
    """Return what the daemon at *port* sends to a client."""
    with (
        socket.create_connection(("127.0.0.1", port), 5) as stream,
        stream.makefile("r") as lines,
    ):
        return lines.readline()


def listens(port: int) -> bool:
    found = subprocess.run(
        ["ss", "-Htln", f"sport = :{port}"], capture_output=True, text=True, check=True
    )
    return bool(found.stdout.strip())
