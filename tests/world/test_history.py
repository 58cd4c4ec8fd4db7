# SPDX-License-Identifier: Apache-2.0
"""Histories that cannot be are refused, and those like them that can be are not."""

from __future__ import annotations

from typing import Any

import pytest

from tests.world.history import Books, Call, History
from tests.world.models import GpuState

BUSY = {"errors": [{"code": "gsaas.capacity.busy"}]}
LAUNCH = {"cgpus": {"count": 1, "mode": "shared", "memory_mb": 4096}, "server": None}


def history(*calls: Call, books: tuple[Books, ...] = ()) -> History:
    """The history of a cloud with 8192 MiB, of which a project may have 2 cGPUs."""
    return History(8192, 2, list(calls), list(books))


def lease(lease_id: str, status: str = "ACTIVE", **changes: Any) -> dict[str, Any]:
    holds = status not in ("QUEUED", "RELEASED")
    found = {
        "id": lease_id,
        "project_id": "blue",
        "status": status,
        "queued_at": None if holds else "2027-01-04T08:00:00.000000Z",
        "wait_until": None,
        "devices": [{"memory_mb": 4096}] if holds else [],
    }
    return found | changes


def asked(what: str, start: float, end: float, status: int, answer: Any, key: Any = None) -> Call:
    method, path = what.split()
    body = {"lease": LAUNCH} if method == "POST" else None
    ended_at = f"2027-01-04 08:00:{end:02.0f}"
    return Call("member", method, path, body, key, start, end, ended_at, status, answer)


def launched(start: float, end: float, found: dict[str, Any], key: str | None = None) -> Call:
    return asked("POST /v1/leases", start, end, 202, {"lease": found}, key)


def refused(start: float, end: float, key: str | None = None) -> Call:
    return asked("POST /v1/leases", start, end, 409, BUSY, key)


def unanswered(start: float, key: str) -> Call:
    return Call("member", "POST", "/v1/leases", {"lease": LAUNCH}, key, start)


def shown(start: float, end: float, found: dict[str, Any]) -> Call:
    return asked(f"GET /v1/leases/{found['id']}", start, end, 200, {"lease": found})


def ended(start: float, end: float, lease_id: str) -> Call:
    found = {"lease": lease(lease_id, "RELEASED")}
    return asked(f"DELETE /v1/leases/{lease_id}", start, end, 202, found)


def broken(found: History) -> str:
    """Return the only thing that is broken."""
    [sentence] = found.judge()
    return sentence


def test_more_memory_than_there_is_was_never_seen_claimed_at_once():
    big = [{"memory_mb": 8192}]
    first = launched(0, 1, lease("a", devices=big))
    second = launched(2, 3, lease("b", devices=big))
    assert "pool of 8192 MiB" in broken(
        history(first, second, shown(4, 5, lease("a", devices=big)))
    )
    assert history(first, second).judge() == []  # the first may have ended by itself
    assert history(first, second, shown(2, 5, lease("a", devices=big))).judge() == []


def test_no_project_was_seen_with_more_cgpus_than_its_quota():
    small = [{"memory_mb": 1024}]
    calls = [launched(n, n + 1, lease(f"{n}", devices=small)) for n in (0, 2, 4)]
    late = [shown(6 + n, 7 + n, lease(f"{n}", devices=small)) for n in (0, 2, 4)]
    assert "quota of blue" in broken(history(*calls, *late))
    assert history(*calls, *late[1:]).judge() == []


def queued(start: float, lease_id: str, **changes: Any) -> Call:
    return launched(start, start + 1, lease(lease_id, "QUEUED", **changes))


def served(start: float, lease_id: str) -> Call:
    waited = lease(lease_id, queued_at="2027-01-04T08:00:00.000000Z")
    return shown(start, start + 1, waited)


def test_who_came_first_is_served_first():
    first, second = queued(0, "a"), queued(2, "b")
    assert "queue" in broken(history(first, second, served(4, "b"), queued_still(6, "a")))
    assert history(first, second, served(4, "a"), queued_still(6, "b")).judge() == []
    overlapping = launched(0, 3, lease("b", "QUEUED"))
    assert history(first, overlapping, served(4, "b"), queued_still(6, "a")).judge() == []


def queued_still(start: float, lease_id: str, **changes: Any) -> Call:
    return shown(start, start + 1, lease(lease_id, "QUEUED", **changes))


def test_no_launch_is_served_at_once_while_one_like_it_waits():
    passing = launched(2, 3, lease("b"))
    assert "queue" in broken(history(queued(0, "a"), passing, queued_still(4, "a")))
    assert history(queued(0, "a"), passing).judge() == []  # the first may have left


def test_whose_time_to_wait_is_over_may_be_passed():
    over = {"wait_until": "2027-01-04T08:00:01.500000Z"}
    calls = queued(0, "a", **over), launched(2, 3, lease("b")), queued_still(4, "a", **over)
    assert history(*calls).judge() == []


@pytest.mark.parametrize("change", ["priority", "cgpus"])
def test_leases_that_differ_may_pass_each_other(change: str):
    first, second = queued(0, "a"), launched(2, 3, lease("b"))
    value = 1 if change == "priority" else {"count": 2}
    second.body = {"lease": {**LAUNCH, change: value}}
    assert history(first, second, queued_still(4, "a")).judge() == []


def test_a_key_returns_what_it_has_made():
    first = launched(0, 1, lease("a", "QUEUED"), key="k")
    assert "key k" in broken(history(first, launched(2, 3, lease("b", "QUEUED"), key="k")))
    assert history(first, launched(2, 3, lease("a", "QUEUED"), key="k")).judge() == []


def test_a_key_that_has_made_a_lease_is_not_refused():
    first = launched(0, 1, lease("a", "QUEUED"), key="k")
    assert "key k" in broken(history(first, asked_badly(2, "k")))
    assert history(asked_badly(0, "k"), launched(2, 3, lease("a", "QUEUED"), key="k")).judge() == []


def asked_badly(start: float, key: str) -> Call:
    answer = {"errors": [{"code": "gsaas.quota.exceeded"}]}
    return asked("POST /v1/leases", start, start + 1, 403, answer, key)


def test_a_launch_that_was_not_answered_made_one_lease_or_none():
    lost = unanswered(0, "k")
    repeated = launched(2, 3, lease("a", "QUEUED"), key="k")
    assert history(lost, repeated).judge() == []
    assert history(lost, asked_badly(2, "k"), repeated).judge() == []
    other = launched(4, 5, lease("b", "QUEUED"), key="k")
    assert "key k" in broken(history(lost, repeated, other))


def test_a_lease_does_not_return_from_its_end():
    first = launched(0, 1, lease("a"))
    assert "lease a" in broken(history(first, ended(2, 3, "a"), shown(4, 5, lease("a"))))
    assert history(first, ended(2, 5, "a"), shown(3, 4, lease("a"))).judge() == []


def test_a_lease_that_was_launched_is_there():
    gone = asked("GET /v1/leases/a", 2, 3, 404, {"errors": [{"code": "gsaas.not-found"}]})
    assert "lease a" in broken(history(launched(0, 1, lease("a")), gone))
    gone.caller = "stranger"
    assert history(launched(0, 1, lease("a")), gone).judge() == []


LATE, EARLY = "2027-01-04 09:00:00", "2027-01-04 08:00:00"


def free(mb: int, *, is_offered: bool = True, silent_at: str = LATE) -> tuple[GpuState, ...]:
    return (GpuState("gpu1", 8192, mb, is_offered, silent_at),)


ROOM, NONE = free(4096), free(2048)


@pytest.mark.parametrize(
    "books",
    [
        (Books(0, NONE, 0),),
        (Books(0, ROOM, 0), Books(3, NONE, 0), Books(3, ROOM, 0)),
        (Books(0, ROOM, 1), Books(3, ROOM, 0)),
        (Books(0, free(4096, is_offered=False), 0),),
        (Books(0, free(4096, silent_at=EARLY), 0),),
    ],
    ids=["no room", "no room for a moment", "somebody waits", "not offered", "silent"],
)
def test_a_launch_may_be_refused_if_there_was_no_room_at_some_moment(books):
    found = history(refused(2, 4), books=books)
    assert found.judge() == []
    assert found.counted["history of a refusal"] == 1


@pytest.mark.parametrize(
    "books",
    [
        (Books(0, ROOM, 0),),
        (Books(0, NONE, 0), Books(1, ROOM, 0)),
        (Books(0, ROOM, 0), Books(5, NONE, 0)),
    ],
    ids=["always", "before", "after"],
)
def test_a_launch_is_not_refused_if_there_was_room_all_the_time(books):
    assert "there was room all the time" in broken(history(refused(2, 4), books=books))


@pytest.mark.parametrize(
    ("cgpus", "fits"),
    [
        ({"count": 3, "mode": "shared", "memory_mb": 4096}, True),
        ({"count": 4, "mode": "shared", "memory_mb": 4096}, False),
        ({"count": 2, "mode": "shared", "memory_mb": 4096, "hosts": "one"}, True),
        ({"count": 3, "mode": "shared", "memory_mb": 4096, "hosts": "one"}, False),
        ({"count": 2, "mode": "shared", "memory_mb": 2048, "hosts": "spread"}, True),
        ({"count": 3, "mode": "shared", "memory_mb": 2048, "hosts": "spread"}, False),
        ({"count": 1}, True),
        ({"count": 2}, False),
    ],
)
def test_room_is_counted_by_gpu_and_by_host(cgpus: dict[str, Any], fits: bool):
    gpus = (
        GpuState("gpu1", 8192, 8192, True, LATE),
        GpuState("gpu2", 8192, 4096, True, LATE),
        GpuState("gpu2", 8192, 3072, True, LATE),
    )
    call = refused(2, 4)
    call.body = {"lease": {"cgpus": cgpus}}
    assert bool(history(call, books=(Books(0, gpus, 0),)).judge()) == fits
