# SPDX-License-Identifier: Apache-2.0
"""Decides which leases begin to move away from GPUs that they are to leave, and says of the others why not yet. Pure.

1. What nobody notices comes first: a lease without open connections moves at once, and so does one whose owner consents
   to cuts. Others wait until no connection is open, or until the time from which on these may be cut.
2. `AT_ONCE` leases move at once: each of them has two GPUs meanwhile, and daemons of its host to be started.
3. Whoever decides may have been started just now, and others may decide the same: what moves already is in the leases
   themselves, and a move that is asked for twice is made once.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from gsaas.objects import move
from gsaas.objects.lease import Lease
from gsaas.objects.lifecycle import Status
from gsaas.objects.move import Kind

AT_ONCE = 8
"""Leases that leave one host at once."""
MOVES = "it moves"
"""Why a lease is still there that moves."""
AGAIN = datetime.timedelta(minutes=1)
"""How long after the beginning of a move that was undone the same is tried again. Readings are no more frequent."""


@dataclass(frozen=True)
class Staying:
    """A lease that has something of GPUs which it is to leave."""

    lease: Lease
    connections: int | None = None
    """Those of its programs that were open at the last report of their endpoint; None: that is not known."""
    refused: str | None = None
    """Why a move of it was refused a moment ago; None: it was not."""


@dataclass(frozen=True)
class Plan:
    """What is to be done now."""

    moves: Mapping[str, Kind]
    """The leases that are to move, by id, and how; in this order."""
    waits: Mapping[str, str]
    """Why each of the others is still there."""


def plan(
    staying: Iterable[Staying], cut_from: datetime.datetime | None, now: datetime.datetime
) -> Plan:
    """Return the plan for the leases *staying*; from *cut_from* on, their connections may be cut; None: never."""
    moves: dict[str, tuple[Kind, bool]] = {}
    waits: dict[str, str] = {}
    under_way = 0
    for one in staying:
        lease = one.lease
        under_way += lease.moving in move.SERVED
        is_due = cut_from is not None and now >= cut_from
        kind = move.consented(lease, Kind.CUT if is_due else Kind.IDLE)
        reason = _reason(one, kind, cut_from, now)
        if reason is None:
            moves[lease.id] = kind, bool(one.connections)
        else:
            waits[lease.id] = reason
    # Sorting is stable: among equals, the oldest one is first.
    ordered = sorted(moves, key=lambda lease_id: moves[lease_id][1])
    free = max(0, AT_ONCE - under_way)
    waits |= dict.fromkeys(ordered[free:], "other leases move first")
    return Plan({lease_id: moves[lease_id][0] for lease_id in ordered[:free]}, waits)


def _reason(
    one: Staying, kind: Kind, cut_from: datetime.datetime | None, now: datetime.datetime
) -> str | None:
    """Return why a lease does not begin to move now; None if it does."""
    lease = one.lease
    if lease.status in (Status.RELEASING, Status.ERROR):
        return f"it is {lease.status}, and returns its GPUs"
    if lease.moving is not None:
        return MOVES if lease.moving in move.SERVED else "its hosts confirm the end of its move"
    if (refusal := move.refusal(lease, None)) is not None:
        return refusal
    if one.connections and kind == Kind.IDLE:
        many = one.connections
        open_ = "1 connection is open" if many == 1 else f"{many} connections are open"
        until = "" if cut_from is None else f"; cut at {cut_from:%Y-%m-%d %H:%M:%S} UTC"
        return f"{open_}{until}"
    if one.refused is not None:
        return one.refused
    tried = lease.moving_since
    if tried is not None and lease.move_kind == kind and now - tried < AGAIN:
        return "its last move was undone, for the reason among its events; it is tried again"
    return None
