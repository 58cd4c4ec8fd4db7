# SPDX-License-Identifier: Apache-2.0
"""A disk that can lose its power, or fail, under a process that writes to it: see `disk.c`."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path


class Disk:
    """What processes with this *environment* have on the disk; *folder* is for what the disk itself needs."""

    def __init__(self, folder: Path) -> None:
        self._kept, self._failing = folder / "kept", folder / "failing"
        self._kept.mkdir(parents=True)
        library = folder / "disk.so"
        source = Path(__file__).with_name("disk.c")
        subprocess.run(
            ["cc", "-shared", "-fPIC", "-O1", "-Wall", "-Werror", source, "-o", library], check=True
        )
        self.environment = {
            "LD_PRELOAD": str(library),
            "DISK_KEPT": str(self._kept),
            "DISK_FAILS": str(self._failing),
        }

    def fail(self) -> None:
        """Let each sync fail from now on."""
        self._failing.touch()

    def mend(self) -> None:
        """Let each sync succeed from now on."""
        self._failing.unlink()

    def after_a_power_cut(self, folder: Path) -> Path:
        """Return a new *folder* with the files as they were when each was synced last."""
        return Path(shutil.copytree(self._kept, folder))
