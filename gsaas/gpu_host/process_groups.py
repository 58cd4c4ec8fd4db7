# SPDX-License-Identifier: Apache-2.0
"""Which control groups a process is in, as the kernel numbers them."""

from __future__ import annotations

from pathlib import Path

from gsaas.gpu_host.fence import control_group


def groups_of(pid: int) -> frozenset[int]:
    """Return the numbers of the control group (version 2) of process *pid* and of all that contain it.

    Empty if there is no such process, or this process cannot see its group.
    """
    try:
        # Names of mounts and groups may be any bytes.
        mounts = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape")
        groups = Path(f"/proc/{pid}/cgroup").read_text(encoding="utf-8", errors="surrogateescape")
        folder, level = control_group.locate(mounts, groups)
        numbers = [folder.stat().st_ino]
        for _, parent in zip(range(level - 1), folder.parents, strict=False):
            numbers.append(parent.stat().st_ino)
    except OSError:  # it has ended meanwhile, or is not visible
        return frozenset()
    return frozenset(numbers)
