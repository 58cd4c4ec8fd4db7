# SPDX-License-Identifier: Apache-2.0
"""For whom the bed is up.

Tests have it brought up for themselves and take it down again. If they are killed before that, whoever comes next
finds it lent to a process that is gone, and it is theirs to take down.
"""

from __future__ import annotations

import json

from tests.openstack.bed import files, processes, settings

NOTE = settings.DIR / "lent"


def lend(pid: int) -> None:
    """The bed is up for the process *pid*."""
    files.write(NOTE, json.dumps({"pid": pid, "began": processes.began_at(pid)}))


def keep() -> None:
    """The bed is up for nobody in particular, until somebody says `down`."""
    NOTE.unlink(missing_ok=True)


def is_of(pid: int) -> bool:
    """Whether the bed is up for *pid*, or was for a process that is gone."""
    if not NOTE.exists():
        return False
    borrower = json.loads(NOTE.read_text())
    return borrower["pid"] == pid or not processes.lives(**borrower)
