# SPDX-License-Identifier: Apache-2.0
"""A GPU host's daemons, on this machine: a supervisor with fake daemons, and what the kernel knows of them."""

from __future__ import annotations

import socket
import subprocess
import sys
import uuid
from pathlib import Path

import gsaas.conf
from gsaas.gpu_host.daemons import processes
from gsaas.gpu_host.daemons.launcher import Launcher
from gsaas.gpu_host.daemons.logs import Logs
from gsaas.gpu_host.daemons.plan import DaemonTimeouts
from gsaas.gpu_host.daemons.processes import ProcessTracker
from gsaas.gpu_host.daemons.records import DaemonRecords
from gsaas.gpu_host.daemons.supervisor import Supervisor
from gsaas.objects.daemon import Daemon, DaemonState, DaemonStatus
from gsaas.remoting import base
from tests.support.waiting import until

FAKE = Path(__file__).parents[3] / "support/fake_daemon.py"
TIMEOUTS = DaemonTimeouts(start=5.0, stop=0.5, first_pause=0.1, longest_pause=1.0)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return taken.getsockname()[1]


class GpuHost:
    """The part of a monitor that runs daemons. Another one on the same folder is a restarted monitor."""

    def __init__(
        self, folder: Path, tracker: ProcessTracker | None = None, **settings: object
    ) -> None:
        self.folder = folder
        self.tracker = tracker or processes.process_tracker(folder / "state")
        self._settings = settings
        self._conf = gsaas.conf.load(files=[])
        self._supervisors: list[Supervisor] = []
        self.records = DaemonRecords(folder / "state")

    def supervise(
        self, *behaviours: str, timeouts: DaemonTimeouts = TIMEOUTS, **settings: object
    ) -> Supervisor:
        """Return a started supervisor whose daemons have these behaviours of tests/support/fake_daemon.py."""
        chosen = {
            "life": "per-lease",
            "memory_limit": "none",
            "own_devices": False,
            "health": "simulated",
            "folder": str(self.folder),
            "command": f"{sys.executable} -ES {FAKE} {{port}} {{gpu_uuid}} {' '.join(behaviours)}",
            **self._settings,
            **settings,
        }
        for option, value in chosen.items():
            self._conf.set_override(option, value, group="daemons")
        self.records.lock()
        launcher = Launcher(
            base.load("rcuda", self._conf).daemon_settings,
            "gpu1",
            "127.0.0.1",
            records=self.records,
            tracker=self.tracker,
            logs=Logs(self.folder / "logs", limit=1 << 20, days=1),
        )
        supervisor = Supervisor(launcher, timeouts)
        self._supervisors.append(supervisor)
        supervisor.start()
        return supervisor

    def abandon(self, supervisor: Supervisor) -> None:
        """End the monitor, and not its daemons."""
        self._supervisors.remove(supervisor)
        supervisor.stop()
        self.records.close()

    def close(self) -> None:
        """End all processes that are left."""
        for supervisor in list(self._supervisors):
            self.abandon(supervisor)
        for key in self.tracker.list_keys():
            until(lambda key=key: self._emptied(key), f"group {key} to be empty")
            self.tracker.remove(key)
        self.tracker.close()

    def _emptied(self, key: str) -> bool:
        self.tracker.kill(key)
        return not self.tracker.pids(key)

    def processes(self) -> set[int]:
        """Return the PIDs of all processes that run the fake daemon in this folder, tracked or not."""
        found = subprocess.run(
            ["pgrep", "-f", f"{FAKE} .* {self.folder.name}|{FAKE}"], capture_output=True, text=True
        )
        return {int(pid) for pid in found.stdout.split() if str(self.folder) in _cwd(pid)}


def _cwd(pid: str) -> str:
    try:
        return str(Path(f"/proc/{pid}/cwd").readlink())
    except OSError:
        return ""


def lease_daemon(**changes: object) -> Daemon:
    values = {"gpu_uuid": "GPU-1", "port": free_port(), "lease_id": str(uuid.uuid4())}
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

    until(
        arrived, f"{daemon.key} to be {state}, it is {status_of(supervisor, daemon)}", patience=20
    )
    return status_of(supervisor, daemon)


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
