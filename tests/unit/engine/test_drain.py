# SPDX-License-Identifier: Apache-2.0
"""Which leases leave a host that is drained, and what the others wait for: a table of what is found and decided."""

from __future__ import annotations

import datetime
from typing import Any

import pytest

from gsaas.engine.drain import AGAIN, AT_ONCE, Plan, Staying, plan
from gsaas.objects.lease import Lease
from gsaas.objects.lifecycle import Status
from gsaas.objects.move import Kind, Stage

NOW = datetime.datetime(2026, 12, 1, 12)
MINUTE = datetime.timedelta(minutes=1)
SOON, BEFORE = NOW + MINUTE, NOW - MINUTE


def lease(name: str = "a", **fields: Any) -> Lease:
    plain = {
        "project_id": "p",
        "user_id": "u",
        "name": name,
        "status": Status.ACTIVE,
        "count": 1,
        "mode": "shared",
        "memory_mb": 1024,
        "locality": "any",
        "access": "masked",
    }
    return Lease(id=name, **plain | fields)


def staying(connections: int | None = None, refused: str | None = None, **fields: Any) -> Staying:
    return Staying(lease(**fields), connections, refused)


@pytest.mark.parametrize(
    ("found", "cut_from", "decided"),
    [
        pytest.param(staying(0), None, Kind.IDLE, id="idle"),
        pytest.param(staying(None), None, Kind.IDLE, id="nobody knows: the engine asks first"),
        pytest.param(staying(2), None, "2 connections are open", id="in use"),
        pytest.param(
            staying(1),
            SOON,
            "1 connection is open; cut at 2026-12-01 12:01:00 UTC",
            id="in use until the time given",
        ),
        pytest.param(staying(1), BEFORE, Kind.CUT, id="in use at the time given"),
        pytest.param(staying(0), NOW, Kind.CUT, id="idle at the time given"),
        pytest.param(staying(1, movable=Kind.CUT), None, Kind.CUT, id="its owner consents"),
        pytest.param(staying(1, movable=Kind.IDLE), None, "1 connection is open", id="or not"),
        pytest.param(staying(0, moving=Stage.STARTING), BEFORE, "it moves", id="it moves already"),
        pytest.param(
            staying(0, moving=Stage.ENDING),
            None,
            "its hosts confirm the end of its move",
            id="it has moved",
        ),
        pytest.param(
            staying(0, status=Status.RELEASING),
            BEFORE,
            "it is RELEASING, and returns its GPUs",
            id="it ends",
        ),
        pytest.param(staying(0, refused="no room"), BEFORE, "no room", id="no other GPU fits"),
        pytest.param(
            staying(0, moving_since=NOW - AGAIN / 2, move_kind=Kind.IDLE),
            None,
            "its last move was undone, for the reason among its events; it is tried again",
            id="it was tried a moment ago",
        ),
        pytest.param(
            staying(0, moving_since=NOW - AGAIN, move_kind=Kind.IDLE),
            None,
            Kind.IDLE,
            id="it was tried a while ago",
        ),
        pytest.param(
            staying(1, moving_since=NOW, move_kind=Kind.IDLE),
            NOW,
            Kind.CUT,
            id="it was tried otherwise a moment ago",
        ),
    ],
)
def test_a_lease_moves_or_says_what_it_waits_for(found, cut_from, decided):
    expected = Plan({"a": decided}, {}) if isinstance(decided, Kind) else Plan({}, {"a": decided})
    assert plan([found], cut_from, NOW) == expected


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"status": Status.BOOTING}, "BOOTING"),
        ({"access": "native"}, "devices of their own host"),
        ({"access": "direct"}, "real addresses"),
        ({"reservation_id": "r"}, "reservation"),
    ],
)
def test_a_lease_that_cannot_move_stays_whatever_may_be_cut(fields, why):
    decided = plan([staying(0, **fields)], BEFORE, NOW)
    assert decided.moves == {}
    assert why in decided.waits["a"]


def test_what_nobody_notices_moves_first_and_then_the_oldest():
    names = ("old", "idle", "young", "idle too")
    found = [staying(int(not name.startswith("idle")), name=name) for name in names]
    assert [*plan(found, NOW, NOW).moves] == ["idle", "idle too", "old", "young"]


def test_no_more_move_at_once_than_a_host_can_start_daemons_for():
    moving = [staying(0, name=f"moving {n}", moving=Stage.SWITCHED) for n in range(AT_ONCE - 2)]
    left = [staying(0, name=f"left {n}", moving=Stage.ENDING) for n in range(AT_ONCE)]
    others = [staying(0, name=name) for name in "abc"]
    decided = plan([*moving, *left, *others], None, NOW)
    assert [*decided.moves] == ["a", "b"]
    assert decided.waits["c"] == "other leases move first"
