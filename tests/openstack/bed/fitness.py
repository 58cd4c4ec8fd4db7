# SPDX-License-Identifier: Apache-2.0
"""Can this machine carry the bed? Told before anything is installed or started."""

from __future__ import annotations

import os
import platform
import shutil
from pathlib import Path

from tests.openstack.bed import commands, settings

MEMORY_MB = 7000
"""MiB of memory that the cloud and two guests take; a machine sold with 8 GB has a little less than that."""
DISK_GB = 5
"""GB for what is installed and made once; afterwards a tenth of it."""


def lacks() -> str | None:
    """What this machine has not that the bed needs, as the end of "... needs"; None if it will do."""
    release = platform.freedesktop_os_release()
    if (release["ID"], release.get("VERSION_ID")) != ("debian", "12"):
        return f"Debian 12, and this is {release['PRETTY_NAME']}"
    if platform.machine() != "x86_64":
        return f"an x86-64 processor, and this is {platform.machine()}"
    if os.geteuid() != 0:
        return "root, for its bridges, namespaces and virtual machines"
    if not commands.succeeds("unshare", "--net", "--mount", "--uts", "true"):
        return "network and mount namespaces, and may not make them here"
    if not commands.succeeds("grep", "--quiet", " cgroup2 ", "/proc/mounts"):
        return "control groups of version 2, for a machine with systemd, and there are none"
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20
    if memory < MEMORY_MB:
        return f"{MEMORY_MB} MiB of memory, and there are {memory}"
    room = shutil.disk_usage(_existing(settings.DIR)).free // 10**9
    if not settings.CACHE.exists() and room < DISK_GB:
        return f"{DISK_GB} GB of room in {settings.DIR}, and there are {room}"
    return None


def _existing(path: Path) -> Path:
    return path if path.exists() else _existing(path.parent)
