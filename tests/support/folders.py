# SPDX-License-Identifier: Apache-2.0
"""Folders of tests outside those of pytest, for servers of other users and for machines.

Each is locked while the process lives that made it. The next process that makes one removes what a killed one has left,
which may be much.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from pathlib import Path

PREFIX = "gsaas-tests-"
PLACE = Path(tempfile.gettempdir())
LARGE = Path("/var/tmp")  # noqa: S108
"""On a disk, and seen by units with a /tmp of their own."""


def make(purpose: str, place: Path = PLACE) -> Path:
    """Return a new folder in *place* that only this user may enter; whoever has asked for it removes it."""
    lock = os.open(place, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for folder in place.glob(f"{PREFIX}*"):
            with contextlib.suppress(OSError):  # it is being removed, or is no folder
                if os.getuid() in (0, folder.lstat().st_uid) and _lock(folder):
                    shutil.rmtree(folder, ignore_errors=True)
        made = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{purpose}-", dir=place))
        _lock(made)
        return made
    finally:
        os.close(lock)


def _lock(folder: Path) -> bool:
    """Lock *folder* until this process ends; return False if another one has."""
    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        return False
    return True
