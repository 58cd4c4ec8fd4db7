# SPDX-License-Identifier: Apache-2.0
"""A lock that only one monitor of a host can hold at a time."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path


class LockUnusable(Exception):
    """The lock could not be acquired; the message says why."""


def acquire(folder: Path) -> None:
    """Make *folder* if necessary, and lock it against other monitors until this process ends.

    The lock is on the folder itself, so that no file of another user stays in it. Raises `LockUnusable`.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise LockUnusable(
            f"cannot use {folder} ({error.strerror}); see [daemons]state_dir"
        ) from None
    try:
        # The kernel releases this lock when the process ends, however it ends; so the descriptor stays open.
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise LockUnusable(
            f"another monitor uses {folder}; stop it, or set another [daemons]state_dir"
        ) from None
