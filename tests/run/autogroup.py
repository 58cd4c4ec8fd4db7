# SPDX-License-Identifier: Apache-2.0
"""Has the kernel share the processors by the niceness of processes, while lists of tests run side by side.

With autogroups (sched(7)), niceness counts only within a session, and sessions have equal shares. Each daemon of the
cloud, and each server of a test, is a session; so the tests on OpenStack would get no more than all others.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SETTING = Path("/proc/sys/kernel/sched_autogroup_enabled")
RESTORE = 'cat >/dev/null; echo 1 >"$1"'


@contextmanager
def disabled(setting: Path = SETTING) -> Iterator[None]:
    """Disable autogroups for the block, where there are any; they are enabled again however this process ends."""
    try:
        enabled = setting.read_text().strip() == "1"
        if enabled:
            setting.write_text("0")
    except OSError:  # a kernel without them, or a container that may not change them
        enabled = False
    if not enabled:
        yield
        return
    # Its standard input ends with this process.
    with subprocess.Popen(
        ("sh", "-c", RESTORE, "restore", setting), stdin=subprocess.PIPE, start_new_session=True
    ):
        yield
