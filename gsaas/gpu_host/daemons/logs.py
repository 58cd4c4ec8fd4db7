"""What daemons print: a folder for each lease, a file for each daemon, kept within bounds.

Daemons write into their files themselves, so nothing of ours has to live for them to be able to. A file that grows
beyond its bound is copied and emptied; as it was opened for appending, its daemon goes on at the beginning. What is
written between the two is lost, which is what a bound means.
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
    """Files below *folder* of at most *limit* bytes, twice; kept for *days* after they were last written to."""

    def __init__(self, folder: Path, limit: int, days: float) -> None:
        self._folder = folder
        self._limit = limit
        self._days = days

    def path(self, daemon: Daemon) -> Path:
        if daemon.lease_id is None:
            return self._folder / "gpus" / f"{daemon.key}.log"
        return self._folder / daemon.lease_id / f"{daemon.position}.log"

    def open(self, daemon: Daemon) -> int:
        """A descriptor for a daemon to write to; raises `OSError`."""
        path = self.path(daemon)
        path.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
        return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o640)

    def last_line(self, daemon: Daemon) -> str:
        """The last thing that a daemon said; empty if it said nothing."""
        with suppress(OSError), self.path(daemon).open("rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - _TAIL))
            lines = file.read().decode(errors="replace").split("\n")
            return next((line.strip() for line in reversed(lines) if line.strip()), "")[:200]
        return ""

    def trim(self, daemon: Daemon) -> None:
        """Keep the file of a daemon within its bound."""
        path = self.path(daemon)
        with suppress(FileNotFoundError):
            if path.stat().st_size > self._limit:
                shutil.copyfile(path, path.with_suffix(".log.1"))
                os.truncate(path, 0)

    def sweep(self, now: float | None = None) -> None:
        """Remove what was kept for long enough; *now* in seconds since 1970."""
        oldest = (time.time() if now is None else now) - self._days * _DAY
        for path in self._folder.glob("*/*.log*"):
            with suppress(FileNotFoundError):
                if path.stat().st_mtime < oldest:
                    path.unlink()
        for folder in self._folder.glob("*/"):
            with suppress(OSError):  # there is still something in it
                folder.rmdir()
