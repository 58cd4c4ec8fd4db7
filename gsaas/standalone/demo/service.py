"""gsaas-standalone as the demonstration runs it: started, waited for, stopped, and all of it removed."""

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
CONFIGURATION = """\
# A daemon for each cGPU, so that the demonstration shows them come and go.
[daemons]
life = per-lease
"""
START_PATIENCE = 60
STOP_PATIENCE = 30
"""Seconds to wait for the process to be ready, and to end."""


class ServiceError(Exception):
    """It did not start, or did not stop, as it should; says what its log says."""


class Service:
    """One gsaas-standalone, with everything of it under *state_dir*.

    It runs in a session of its own, so that an interrupt at the keyboard reaches the demonstration
    alone, which then stops it in good order; and so that it can stay when the demonstration ends.
    """

    def __init__(self, state_dir: Path, prefix: str) -> None:
        self._state_dir = state_dir
        self._prefix = prefix
        self._log = state_dir / "standalone.log"
        self._pid_file = state_dir / "demo.pid"
        self._configuration = state_dir / "demo.conf"

    @property
    def admin(self) -> Path:
        """Credentials of the administrator."""
        return self._state_dir / "credentials.json"

    @property
    def tenant(self) -> Path:
        """Credentials of a tenant."""
        return self._state_dir / "credentials-demo.json"

    def start(self, listen: str) -> None:
        """Start it with its API at *listen* (`ip:port`, 0 for any port) and wait until it is ready."""
        self._state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._configuration.write_text(CONFIGURATION, encoding="utf-8")
        chosen = ["--prefix", self._prefix, "--listen", listen]
        with self._log.open("wb") as log:
            process = subprocess.Popen(
                [*self._command(), *chosen, "--config-file", str(self._configuration)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._pid_file.write_text(str(process.pid))
        deadline = time.monotonic() + START_PATIENCE
        while READY not in self._log.read_text(errors="replace"):
            if process.poll() is not None or time.monotonic() > deadline:
                raise ServiceError(f"gsaas-standalone did not start. {self._last_words()}")
            time.sleep(0.02)

    def remove(self) -> None:
        """Stop the process, even one that an earlier demonstration left, and remove all it made."""
        if (pid := self._running()) is not None:
            self._end(pid)
        cleaning = subprocess.run([*self._command(), "--clean"], capture_output=True, text=True)
        if cleaning.returncode:
            raise ServiceError(
                f"{self._state_dir} cannot be cleaned: {cleaning.stderr.strip().splitlines()[-1]}"
            )
        for file in (self._log, self._pid_file, self._configuration):
            file.unlink(missing_ok=True)
        with suppress(OSError):  # gone already, or with somebody else's files in it
            self._state_dir.rmdir()

    def _command(self) -> list[str]:
        program = Path(sys.executable).with_name("gsaas-standalone")
        return [str(program), "--state-dir", str(self._state_dir)]

    def _running(self) -> int | None:
        """The process that was started here, if that number still means it."""
        try:
            pid = int(self._pid_file.read_text())
            command = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
        except (FileNotFoundError, ProcessLookupError):
            return None
        return pid if set(self._command()) <= set(command) else None

    def _end(self, pid: int) -> None:
        try:
            process = os.pidfd_open(pid)
        except ProcessLookupError:
            return
        try:
            signal.pidfd_send_signal(process, signal.SIGTERM)
            ended, _, _ = select.select([process], [], [], STOP_PATIENCE)
        finally:
            os.close(process)
        if not ended:
            raise ServiceError(f"gsaas-standalone ({pid}) does not stop. {self._last_words()}")

    def _last_words(self) -> str:
        lines = self._log.read_text(errors="replace").strip().splitlines()
        return f"Its last words: {lines[-1]}" if lines else "It said nothing."
