# SPDX-License-Identifier: Apache-2.0
"""The gsaas-standalone process of the demonstration: start it, wait until it is ready, stop it, remove everything."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

READY = "ready:"
"""What gsaas-standalone prints when it is ready."""
SIMULATED = """\
# A daemon for each cGPU, so that the demonstration shows daemons start and end with their leases.
[daemons]
life = per-lease
"""
COMPUTING = """\
[remoting]
driver = tvm
[daemons]
start_timeout = 60
tmp_mb = 64
[standalone]
inventory = {inventory}
"""
INVENTORY = """\
gpu_network = "192.168.50.0/24"
[[hosts]]
name = "gpu1"
gpu_address = "192.168.50.11"
kind = "cpu"
model = "CPU device"
gpus = 2
memory_mb = 1024
[[hosts]]
name = "gpu2"
gpu_address = "192.168.50.12"
kind = "cpu"
model = "CPU device"
gpus = 2
memory_mb = 1024
[[hosts]]
name = "compute1"
gpu_address = "192.168.50.21"
"""
START_TIMEOUT = 60
"""Seconds that the process may take to be ready."""
STOP_TIMEOUT = 30
"""Seconds that the process may take to end."""


class ProcessError(Exception):
    """The demonstration cannot start, stop or clean up gsaas-standalone; the text says why."""


class StandaloneProcess:
    """One gsaas-standalone with the state folder *state_dir*, whose namespaces' names begin with *prefix*.

    It runs in a session of its own. So Ctrl-C reaches only the demonstration, which then stops it in an orderly way;
    and it can go on running when the demonstration ends.
    """

    def __init__(self, state_dir: Path, prefix: str) -> None:
        self._state_dir = state_dir
        self._prefix = prefix
        self._log = state_dir / "standalone.log"
        self._pid_file = state_dir / "demo.pid"
        self._configuration = state_dir / "demo.conf"
        self._inventory = state_dir / "inventory.toml"

    @property
    def admin_credentials(self) -> Path:
        """The file with the credentials of the administrator."""
        return self._state_dir / "credentials.json"

    @property
    def tenant_credentials(self) -> Path:
        """The file with the credentials of a tenant."""
        return self._state_dir / "credentials-demo.json"

    def start(self, listen: str, *, computes: bool) -> None:
        """Start it with its API at *listen* (`ip:port`, port 0 takes a free one), and wait until it is ready.

        Its devices compute, or are simulated GPUs.

        Raises `ProcessError` if it ends, or is not ready within `START_TIMEOUT` seconds.
        """
        self._state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._inventory.write_text(INVENTORY, encoding="utf-8")
        configuration = COMPUTING.format(inventory=self._inventory) if computes else SIMULATED
        self._configuration.write_text(configuration, encoding="utf-8")
        options = ["--prefix", self._prefix, "--listen", listen]
        with self._log.open("wb") as log:
            process = subprocess.Popen(
                [*self._command(), *options, "--config-file", str(self._configuration)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        # A later `./dev demo --clean` ends the process by this number.
        self._pid_file.write_text(str(process.pid))
        deadline = time.monotonic() + START_TIMEOUT
        while READY not in self._log.read_text(errors="replace"):
            if process.poll() is not None or time.monotonic() > deadline:
                raise ProcessError(f"gsaas-standalone did not start. {self._last_log_line()}")
            time.sleep(0.02)

    def remove(self) -> None:
        """Stop the process, even one that an earlier demonstration left, and remove everything that it made.

        Raises `ProcessError` if it does not stop, or something cannot be removed.
        """
        if (pid := self._running()) is not None:
            self._end(pid)
        cleaning = subprocess.run([*self._command(), "--clean"], capture_output=True, text=True)
        if cleaning.returncode:
            raise ProcessError(
                f"{self._state_dir} cannot be cleaned: {cleaning.stderr.strip().splitlines()[-1]}"
            )
        for file in (self._log, self._pid_file, self._configuration, self._inventory):
            file.unlink(missing_ok=True)
        with suppress(OSError):  # it is gone already, or has files of other programs in it
            self._state_dir.rmdir()

    def _command(self) -> list[str]:
        program = Path(sys.executable).with_name("gsaas-standalone")
        return [str(program), "--state-dir", str(self._state_dir)]

    def _running(self) -> int | None:
        """Return the process id in the file, unless that process has ended or is now another program's."""
        try:
            pid = int(self._pid_file.read_text())
            command = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
        except (FileNotFoundError, ProcessLookupError):
            return None
        return pid if set(self._command()) <= set(command) else None

    def _end(self, pid: int) -> None:
        """Send SIGTERM and wait. A pidfd cannot come to mean another process, as a number can."""
        try:
            process = os.pidfd_open(pid)
        except ProcessLookupError:
            return
        try:
            signal.pidfd_send_signal(process, signal.SIGTERM)
            ended, _, _ = select.select([process], [], [], STOP_TIMEOUT)
        finally:
            os.close(process)
        if not ended:
            raise ProcessError(f"gsaas-standalone ({pid}) does not stop. {self._last_log_line()}")

    def _last_log_line(self) -> str:
        lines = self._log.read_text(errors="replace").strip().splitlines()
        return f"The last line of its log: {lines[-1]}" if lines else "Its log is empty."
