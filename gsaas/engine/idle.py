# SPDX-License-Identifier: Apache-2.0
"""Decides what happens to a lease that nothing uses, by the operator's policy. Pure.

1. A lease is warned once it has been idle for `IdlePolicy.warn_after`, and reclaimed no sooner than
   `IdlePolicy.reclaim_after` after that, whatever happened to the engines meanwhile.
2. A lease that is in use again, or of which nobody knows whether it is, is no longer warned. So hosts that do not
   report cannot make anybody lose a lease, and after a gap in the readings, which ends with one that counts as use
   (`gsaas.db.readings`), there is a new warning.
"""

from __future__ import annotations

import datetime
import enum
from dataclasses import dataclass

from gsaas.objects.lease import Lease
from gsaas.objects.lifecycle import Status

NONE, SHELVE, RELEASE = "none", "shelve", "release"
"""The values of `[engine]idle_action`."""


@dataclass(frozen=True)
class IdlePolicy:
    """What the operator has configured."""

    action: str
    warn_after: datetime.timedelta
    reclaim_after: datetime.timedelta
    """From the warning."""
    exempt_projects: frozenset[str] = frozenset()


class Decision(enum.Enum):
    """What is to happen to a lease now."""

    NOTHING = enum.auto()
    WARN = enum.auto()
    WITHDRAW = enum.auto()
    """The warning is withdrawn."""
    RECLAIM = enum.auto()


def decide(
    policy: IdlePolicy, lease: Lease, idle_since: datetime.datetime | None, now: datetime.datetime
) -> Decision:
    """Return what is to happen to an ACTIVE lease; *idle_since* is None if it is in use, or that is not known."""
    spared = policy.action == NONE or lease.project_id in policy.exempt_projects
    if spared or idle_since is None or now - idle_since < policy.warn_after:
        return Decision.NOTHING if lease.reclaim_at is None else Decision.WITHDRAW
    if lease.reclaim_at is None:
        return Decision.WARN
    return Decision.RECLAIM if now >= lease.reclaim_at else Decision.NOTHING


def warned(lease: Lease, reclaim_at: datetime.datetime | None) -> Lease:
    """Return *lease* with a warning that it is reclaimed at this time; None: without a warning."""
    return lease.with_(reclaim_at=reclaim_at)


def is_as_decided(lease: Lease, read: Lease) -> bool:
    """Return whether what was decided of a lease as it was *read* holds for it as it is now."""
    return lease.status == Status.ACTIVE and lease.reclaim_at == read.reclaim_at
