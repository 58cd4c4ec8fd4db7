# SPDX-License-Identifier: Apache-2.0
"""Steps that are done once for given inputs, and remembered: installations, images, schemas."""

from __future__ import annotations

import fcntl
from collections.abc import Callable
from pathlib import Path

from tests.openstack.bed import files


def once(stamp: Path, made_from: str, do: Callable[[], object]) -> None:
    """Call *do* unless the file *stamp* says that it was done for *made_from*.

    *do* has to bear being called again after it was interrupted. One of several processes calls it; the others wait.
    """
    stamp.parent.mkdir(parents=True, exist_ok=True)
    with stamp.with_name(f"{stamp.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if stamp.exists() and stamp.read_text() == made_from:
            return
        stamp.unlink(missing_ok=True)
        do()
        files.write(stamp, made_from)
