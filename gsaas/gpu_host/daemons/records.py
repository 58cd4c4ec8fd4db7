# SPDX-License-Identifier: Apache-2.0
"""Records of daemons on disk, so that a monitor that was killed finds its daemons again.

A record is written before a daemon is started and removed after it is gone: every daemon that may run has one.
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


class RecordsUnusable(Exception):
    """The folder of records cannot be used; the message says why."""


@dataclass(frozen=True)
class DaemonRecord:
    """One daemon as it was last started. The field names are those of the JSON files."""

    daemon: Daemon
    pid: int | None = None
    """Its first process; None before it was started."""
    started: str | None = None
    """That process's start time, as `gsaas.gpu_host.daemons.processes.start_time` returns it."""
    restarts: int = 0


class DaemonRecords:
    """The records in *folder*, which one process at a time may use."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._lock: IO[str] | None = None

    def lock(self) -> None:
        """Make the folder if necessary, and lock it against other monitors; raises `RecordsUnusable`."""
        try:
            self.folder.mkdir(mode=0o711, parents=True, exist_ok=True)
            lock = (self.folder / "lock").open("a", encoding="utf-8")
        except OSError as error:
            raise RecordsUnusable(
                f"cannot use {self.folder} ({error.strerror}); see [daemons]state_dir"
            ) from None
        try:
            # The kernel releases this lock when the process ends, however it ends.
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.close()
            raise RecordsUnusable(
                f"another monitor uses {self.folder}; stop it, or set another [daemons]state_dir"
            ) from None
        self._lock = lock

    def close(self) -> None:
        """Release the lock."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def write(self, record: DaemonRecord) -> None:
        """Write or replace a record; after a crash there is the old one or the new one, and no part of it."""
        path = self._path(record.daemon.key)
        draft = path.with_suffix(".new")
        draft.write_text(json.dumps(asdict(record)), encoding="utf-8")
        os.replace(draft, path)  # noqa: PTH105

    def remove(self, key: str) -> None:
        """Remove a record; none there is no error."""
        self._path(key).unlink(missing_ok=True)

    def all(self) -> Iterator[DaemonRecord]:
        """Yield every record. A file that cannot be read as one is removed: the process tracker finds its processes."""
        for path in sorted(self.folder.glob("*.json")):
            try:
                data = json.loads(path.read_text(encoding="utf-8"))
                yield DaemonRecord(**{**data, "daemon": Daemon(**data["daemon"])})
            except (ValueError, TypeError, KeyError):
                path.unlink()

    def _path(self, key: str) -> Path:
        return self.folder / f"{key}.json"
