"""What is noted on disk of each daemon, so that a monitor that was killed finds its daemons again.

A record is written before a daemon is started and removed after it is gone: what may run is always noted.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

from gsaas.objects.daemon import Daemon


class Unusable(Exception):
    """The folder cannot be used; the message says why."""


@dataclass(frozen=True)
class Record:
    """One daemon as it was started last."""

    daemon: Daemon
    pid: int | None = None
    """Its first process; None before it was started."""
    started: str | None = None
    """That process's start, as `gsaas.gpu_host.daemons.processes.started` has it."""
    restarts: int = 0


class Records:
    """The records in one folder, which one process at a time may use."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._lock: IO[str] | None = None

    def hold(self) -> None:
        """Make the folder if need be, and keep others out; raises `Unusable`."""
        try:
            self.folder.mkdir(mode=0o711, parents=True, exist_ok=True)
            lock = (self.folder / "lock").open("a", encoding="utf-8")
        except OSError as error:
            raise Unusable(
                f"cannot use {self.folder} ({error.strerror}); see [daemons]state_dir"
            ) from None
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.close()
            raise Unusable(
                f"another monitor uses {self.folder}; stop it, or set another [daemons]state_dir"
            ) from None
        self._lock = lock

    def close(self) -> None:
        """Let others use the folder."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def write(self, record: Record) -> None:
        """Replace a record as a whole: a crash leaves the old one or the new one."""
        path = self._path(record.daemon.key)
        draft = path.with_suffix(".new")
        draft.write_text(json.dumps(asdict(record)), encoding="utf-8")
        os.replace(draft, path)  # noqa: PTH105

    def remove(self, key: str) -> None:
        self._path(key).unlink(missing_ok=True)

    def all(self) -> Iterator[Record]:
        """Every record; what is none is left out, for its processes are found by their group."""
        for path in sorted(self.folder.glob("*.json")):
            try:
                data = json.loads(path.read_text(encoding="utf-8"))
                yield Record(**{**data, "daemon": Daemon(**data["daemon"])})
            except (ValueError, TypeError, KeyError):
                path.unlink()

    def _path(self, key: str) -> Path:
        return self.folder / f"{key}.json"
