# SPDX-License-Identifier: Apache-2.0
"""The queue in a database: which leases wait, which is served next, and how a wait ends."""

from __future__ import annotations

import datetime
import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from oslo_db import exception as db_exception
from oslo_utils import timeutils
from sqlalchemy import event, select

from gsaas import exceptions
from gsaas.conf import load
from gsaas.db import gpus, models, queue
from gsaas.db.database import Database
from gsaas.gpgpums.changes import WaitPolicy
from gsaas.gpgpums.rules import MaskedAddresses
from gsaas.limits.configured import ConfiguredLimits
from gsaas.objects.lease import Lease
from gsaas.objects.lifecycle import Status
from gsaas.objects.placement import Refusal
from gsaas.objects.ports import PortRange
from gsaas.objects.request import Request
from tests.support.scheduling import open_claims

WHOLE = Request(1)
FOR_EVER = WaitPolicy()

serial = itertools.count(1)


@pytest.fixture
def cloud(database: Database) -> Database:
    """One host with two GPUs, one twice as large as the other."""
    infos = [
        gpus.GpuInfo("small", 0, "model", 4000, 8308),
        gpus.GpuInfo("large", 1, "model", 8000, 8308),
    ]
    with database.write() as session:
        gpus.register(session, "a", "192.0.2.1", infos)
    return database


class Cloud:
    """Claims that note what they announce, and a shorter way to ask."""

    def __init__(self, database: Database, **more: Any) -> None:
        self.left: list[str] = []
        """Leases that left the queue, in this order."""
        self.database = database
        self.claims = open_claims(
            database,
            attempts=3,
            heartbeat_timeout=35,
            announce=lambda lease_id, *_: self.left.append(lease_id),
            **more,
        )

    def __getattr__(self, name: str) -> Any:
        return getattr(self.claims, name)

    def take(self, name: str, request: Request = WHOLE, **columns: Any) -> models.LeaseRow:
        return self.claims.claim(new_lease(name, request, **columns), request)

    def enqueue(
        self, name: str, request: Request = WHOLE, policy: WaitPolicy = FOR_EVER, **columns: Any
    ) -> str:
        """Have a new lease join the queue; return its status right after."""
        self.queue.join(new_lease(name, request, **columns), request, policy=policy)
        return self.status(name)

    def status(self, name: str) -> str:
        with self.database.read() as session:
            return session.scalar(select(models.LeaseRow.status).where(models.LeaseRow.id == name))

    def places(self) -> list[str]:
        with self.database.read() as session:
            return [row.id for row in queue.waiting(session.connection(), 60)]


def new_lease(name: str, request: Request, **columns: Any) -> Lease:
    defaults = {"project_id": "blue", "user_id": "user", "name": name, "remoting": "rcuda"}
    return Lease(status=Status.QUEUED, id=name, **(defaults | columns), **request.to_dict())


@pytest.fixture
def claims(cloud: Database) -> Cloud:
    return Cloud(cloud)


def test_a_release_serves_who_came_first(claims):
    claims.take("active-1")
    claims.take("active-2")
    assert [claims.enqueue("first"), claims.enqueue("second")] == ["QUEUED", "QUEUED"]

    claims.release("active-1")

    assert (claims.left, claims.places()) == (["first"], ["second"])
    assert claims.status("first") == "CLAIMED"


def test_one_release_serves_as_many_as_it_has_room_for(claims):
    both = Request(2)
    claims.take("active", both)
    for name in ("first", "second", "third"):
        claims.enqueue(name)

    claims.release("active")

    assert (claims.left, claims.places()) == (["first", "second"], ["third"])


def test_higher_priority_goes_first_and_within_one_who_came_first(claims):
    claims.take("active", Request(2))
    claims.enqueue("low", priority=-1)
    claims.enqueue("usual-1")
    claims.enqueue("usual-2")
    claims.enqueue("high", priority=7)

    assert claims.places() == ["high", "usual-1", "usual-2", "low"]


def test_a_new_request_overtakes_no_lease_even_if_a_gpu_is_free(claims):
    claims.take("active")
    claims.enqueue("wants both", Request(2))

    with pytest.raises(exceptions.NoCapacity, match="1 request waits in the queue"):
        claims.take("impatient")

    assert isinstance(claims.check(WHOLE), Refusal)
    assert claims.status("impatient") is None
    assert claims.enqueue("patient") == "QUEUED"


def test_who_has_a_higher_priority_than_all_that_wait_goes_before_them(claims):
    claims.take("active")
    claims.enqueue("wants both", Request(2))

    assert claims.take("urgent", priority=1).status == "CLAIMED"


def test_the_head_is_never_starved_by_small_requests(claims):
    claims.take("active-1")
    claims.take("active-2")
    claims.enqueue("wants both", Request(2))
    for number in range(5):
        claims.enqueue(f"small-{number}")

    claims.release("active-1")
    assert claims.left == []
    claims.release("active-2")

    assert claims.left == ["wants both"]


def test_with_backfill_a_lease_is_served_first_whose_gpus_no_lease_before_it_could_use(cloud):
    claims = Cloud(cloud, backfill=True)
    claims.take("lease of large", Request(1, "shared", 8000))
    claims.take("lease of small", Request(1, "shared", 4000))
    claims.enqueue("wants large", Request(1, "shared", 6000))
    claims.enqueue("wants little", Request(1, "shared", 1000))
    claims.enqueue("wants a whole one")

    claims.release("lease of small")

    assert claims.left == ["wants little"]


def test_a_head_whose_project_has_used_up_its_quota_is_passed_and_keeps_its_place(cloud, tmp_path):
    settings = tmp_path / "gsaas.conf"
    settings.write_text("[quotas]\ncgpus = 1\n")
    claims = Cloud(cloud, quotas=ConfiguredLimits(load(files=[str(settings)])))
    claims.take("blue-1")
    claims.take("red-1", project_id="red")
    claims.enqueue("blue-2")
    claims.enqueue("green-1", project_id="green")

    claims.release("red-1")
    assert (claims.left, claims.places()) == (["green-1"], ["blue-2"])

    claims.release("blue-1")
    assert claims.places() == []


def test_what_a_project_could_never_hold_is_not_queued(claims):
    quota = {"cgpus": 1, "gpu_memory_mb": -1, "leases": -1}
    both = Request(2)

    with pytest.raises(exceptions.QuotaExceeded):
        claims.queue.join(new_lease("greedy", both), both, quota=quota)

    assert claims.status("greedy") is None


def test_a_project_has_no_more_requests_in_the_queue_than_it_may(claims):
    claims.take("active", Request(2))
    wait_policy = WaitPolicy(max_waiting=1)
    claims.enqueue("first", policy=wait_policy)

    with pytest.raises(exceptions.QueueFull, match="has 1 requests"):
        claims.enqueue("second", policy=wait_policy)

    assert claims.enqueue("another's", policy=wait_policy, project_id="red") == "QUEUED"


def test_leaving_lets_the_next_one_in(claims):
    claims.take("active")
    claims.enqueue("wants both", Request(2))
    claims.enqueue("small")

    assert claims.queue.leave("wants both", "its client went away")

    assert claims.left == ["wants both", "small"]
    with claims.database.read() as session:
        lease = session.get(models.LeaseRow, "wants both")
    assert (lease.status, lease.fault_step) == ("RELEASED", "queue")
    assert lease.fault_message == "its client went away"
    assert not claims.queue.leave("wants both")


def test_who_has_waited_for_as_long_as_he_wanted_is_not_served(claims):
    claims.take("active-1")
    claims.take("active-2")
    over = timeutils.utcnow() - datetime.timedelta(seconds=1)
    claims.enqueue("too late", policy=WaitPolicy(until=over))
    claims.enqueue("in time")

    claims.release("active-1")

    assert claims.left == ["in time"]
    assert claims.status("too late") == "QUEUED"  # until the next audit


def test_who_asked_in_vain_before_he_queued_up_holds_nothing_while_he_waits(cloud, claims):
    """His attempt had chosen GPUs, and then lost a deadlock each time."""
    lease = new_lease("late", WHOLE)
    with lost_deadlocks(cloud, "INSERT INTO leases"), pytest.raises(exceptions.ClaimConflict):
        claims.claim(lease, WHOLE)
    claims.take("active", Request(2))

    claims.queue.join(lease, WHOLE)

    with cloud.read() as session:
        stored = session.get(models.LeaseRow, "late")
        assert (stored.status, stored.claims, stored.claimed_at) == ("QUEUED", [], None)
    claims.release("active")
    assert claims.left == ["late"]


def test_a_lease_without_free_ports_for_its_daemons_does_not_block_the_queue(cloud):
    claims = Cloud(cloud, daemon_ports={"rcuda": PortRange(20000, 20001)})
    claims.take("active", Request(2))
    claims.enqueue("too many", Request(3, "shared", 100))
    claims.enqueue("next", Request(1, "shared", 100))

    claims.release("active")

    assert claims.left[0] == "too many"
    with cloud.read() as session:
        lease = session.get(models.LeaseRow, "too many")
    assert (lease.status, lease.fault_step) == ("RELEASED", "queue")
    assert lease.fault_message.startswith("it was next in the queue, but ")
    assert "20000-20001" in lease.fault_message
    assert claims.left[1:] == ["next"]


def test_a_lease_for_whose_vm_there_are_too_few_masked_addresses_now_does_not_block_the_queue(
    cloud,
):
    """An operator has made their network smaller while it waited."""
    before = Cloud(cloud)
    before.take("active", Request(2))
    before.enqueue("too many", Request(3, "shared", 100))
    before.enqueue("next", Request(1, "shared", 100))

    claims = Cloud(cloud, masked=MaskedAddresses("169.254.71.0/30", 8308))
    claims.release("active")

    assert claims.left == ["too many", "next"]
    assert (claims.status("too many"), claims.status("next")) == ("RELEASED", "CLAIMED")


def test_leaving_the_queue_is_tried_again_after_a_lost_deadlock(cloud, claims):
    claims.take("active", Request(2))
    claims.enqueue("waiting")

    with lost_deadlocks(cloud, "UPDATE leases", times=2):
        assert claims.queue.leave("waiting")

    assert (claims.left, claims.status("waiting")) == (["waiting"], "RELEASED")


def test_an_audit_ends_the_other_leases_when_one_of_them_cannot_be_ended(cloud, claims, caplog):
    """Of leases whose time to wait is over, whose client waits no more, and whose keepalive has run out."""
    before = timeutils.utcnow() - datetime.timedelta(hours=1)
    for name in ("kept-1", "kept-2"):
        claims.take(name, keepalive=60)
        with cloud.write() as session:
            session.get(models.LeaseRow, name).kept_until = before
    for name in ("overdue-1", "overdue-2"):
        claims.enqueue(name, Request(2), WaitPolicy(until=before))
    for name in ("silent-1", "silent-2"):
        claims.enqueue(name, Request(2), WaitPolicy(attended=True))
        with cloud.write() as session:
            session.get(models.LeaseRow, name).waiter_seen_at = before
    claims.enqueue("patient", Request(1))

    with (
        lost_deadlocks(cloud, "UPDATE leases", "overdue-1"),
        lost_deadlocks(cloud, "UPDATE leases", "silent-1"),
        lost_deadlocks(cloud, "UPDATE leases", "kept-1"),
    ):
        assert claims.run_audit() == ["kept-2"]

    assert {claims.status(f"{name}-1") for name in ("overdue", "silent")} == {"QUEUED"}
    assert {claims.status(f"{name}-2") for name in ("overdue", "silent")} == {"RELEASED"}
    assert (claims.status("kept-1"), claims.status("kept-2")) == ("CLAIMED", "RELEASING")
    assert [each for each in ("overdue-1", "silent-1", "kept-1") if each not in caplog.text] == []
    assert claims.run_audit() == ["kept-1"]
    assert {claims.status(f"{name}-1") for name in ("overdue", "silent")} == {"RELEASED"}


@contextmanager
def lost_deadlocks(
    cloud: Database, beginning: str, lease_id: str = "", times: int = 1000
) -> Iterator[None]:
    """The next statements that begin so, of a lease if one is named, lose a deadlock."""
    left = itertools.count(times, -1)

    @event.listens_for(cloud.engine, "before_cursor_execute")
    def lose(_connection, _cursor, statement, parameters, *_):
        if statement.startswith(beginning) and lease_id in str(parameters) and next(left) > 0:
            raise db_exception.DBDeadlock

    yield
    event.remove(cloud.engine, "before_cursor_execute", lose)
