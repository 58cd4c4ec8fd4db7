# SPDX-License-Identifier: Apache-2.0
"""Logs of daemons: a folder for each lease, a file for each daemon, kept within bounds.

Daemons write to their files themselves, so they can write while no monitor runs. A file that grows beyond its bound is
copied and truncated; as it was opened for appending, its daemon goes on at the beginning. What a daemon writes between
the copy and the truncation is lost.
"""

from __future__ import annotations

import os
import shutil
import time
from contextlib import suppress
from pathlib import Path

from gsaas.objects.daemon import Daemon

_TAIL = 4096
_DAY = 86400.0


class Logs:
    """Log files below *folder*: of each daemon two of at most *limit* bytes, kept for *days* after the last output."""

    def __init__(self, folder: Path, limit: int, days: float) -> None:
        self._folder = folder
        self._limit = limit
        self._days = days

    def path(self, daemon: Daemon) -> Path:
        """Return the log file of a daemon, which may not exist."""
        if daemon.lease_id is None:
            return self._folder / "gpus" / f"{daemon.key}.log"
        return self._folder / daemon.lease_id / f"{daemon.position}.log"

    def open(self, daemon: Daemon) -> int:
        """Return a descriptor for a daemon to write to; raises `OSError`."""
        path = self.path(daemon)
        path.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
        return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o640)

    def last_line(self, daemon: Daemon) -> str:
        """Return the last line that a daemon printed, at most 200 characters; empty if it printed nothing."""
        with suppress(OSError), self.path(daemon).open("rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - _TAIL))
            lines = file.read().decode(errors="replace").split("\n")
            return next((line.strip() for line in reversed(lines) if line.strip()), "")[:200]
        return ""

    def trim(self, daemon: Daemon) -> None:
        """Copy and truncate the file of a daemon if it has grown beyond its bound."""
        path = self.path(daemon)
        with suppress(FileNotFoundError):
            if path.stat().st_size > self._limit:
                shutil.copyfile(path, path.with_suffix(".log.1"))
                os.truncate(path, 0)

    def sweep(self, now: float | None = None) -> None:
        """Remove files that have been kept for long enough; *now* in seconds since 1970, by default the present."""
        oldest = (time.time() if now is None else now) - self._days * _DAY
        for path in self._folder.glob("*/*.log*"):
            with suppress(FileNotFoundError):
                if path.stat().st_mtime < oldest:
                    path.unlink()
        for folder in self._folder.glob("*/"):
            with suppress(OSError):  # not empty
                folder.rmdir()
