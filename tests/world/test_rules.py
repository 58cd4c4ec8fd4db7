# SPDX-License-Identifier: Apache-2.0
"""Whom the rules of worlds let pass others that wait, and whom not."""

from __future__ import annotations

from typing import Any

import pytest

from gsaas.objects.lifecycle import Status
from tests.world import rules
from tests.world.snapshot import Row, Stored

NOW = "2027-01-04 08:01:00.000000"
QUOTA = 2
ASKED_AT = {"waits": 1.0, "comes": 5.0}


def lease(name: str, status: Status, **changes: Any) -> Row:
    row = {"id": name, "name": name, "status": status, "project_id": name, "priority": 0}
    row |= {"count": 1, "reservation_id": None, "waiter_seen_at": None}
    return row | {"wait_until": "2027-01-04 08:05:00.000000", "ends_at": None} | changes


def stored(*leases: Row) -> Stored:
    claims = [
        {"lease_id": row["id"], "position": 0} for row in leases if row["status"] == Status.CLAIMED
    ]
    return Stored({row["id"]: row for row in leases}, tuple(claims), {}, {}, {}, {})


def passed(
    waiting: dict[str, Any] | None = None, known_since: float = 2.0, **served: Any
) -> list[str]:
    """What is broken if a lease is served at once, and another one waits."""
    waits = lease("waits", Status.QUEUED, **(waiting or {}))
    comes = lease("comes", Status.CLAIMED, **served)
    known = {"waits": known_since}
    after = stored(waits, comes)
    return list(rules.served_past_others(stored(waits), after, known, ASKED_AT, NOW, QUOTA))


def test_nobody_is_served_while_another_waits_that_was_there_before():
    assert len(passed()) == 1


@pytest.mark.parametrize(
    ("waiting", "served"),
    [
        pytest.param({"priority": -1}, {}, id="it has a lower priority"),
        pytest.param({"wait_until": NOW}, {}, id="its time is over"),
        pytest.param({"waiter_seen_at": NOW}, {}, id="its client may be silent"),
        pytest.param({"count": QUOTA + 1}, {}, id="its quota does not allow it"),
        pytest.param({"reservation_id": "one"}, {}, id="it waits for its reservation"),
        pytest.param({}, {"reservation_id": "one"}, id="the other has GPUs that were kept for it"),
    ],
)
def test_one_that_waits_is_passed_if(waiting, served):
    assert passed(waiting, **served) == []


def test_one_that_may_have_joined_later_is_not_compared():
    assert passed(known_since=5.0) == []


def test_nobody_is_served_past_one_of_the_queue_that_joined_before():
    waits, comes = lease("waits", Status.QUEUED), lease("comes", Status.QUEUED)
    after = stored(waits, lease("comes", Status.CLAIMED))
    found = rules.served_past_others(
        stored(waits, comes), after, {"waits": 2.0, "comes": 6.0}, ASKED_AT, NOW, QUOTA
    )
    assert len(list(found)) == 1
