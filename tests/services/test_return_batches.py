# SPDX-License-Identifier: Apache-2.0
"""Returns that threads make at once share a transaction, and none of them notices it."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from sqlalchemy import event, select

from gsaas import exceptions
from gsaas.db import leases, models
from gsaas.db.database import Database
from gsaas.gpgpums import committer
from gsaas.objects.lease import Lease
from gsaas.objects.lifecycle import Event, Status
from gsaas.objects.request import Request
from tests.services.batches import (
    PART,
    WHOLE,
    assert_books_are_right,
    claim,
    commits,
    lock_gpus,
    return_together,
)
from tests.services.batches import attempts as attempts
from tests.services.batches import claims as claims
from tests.services.test_claims_race import (
    assert_all_returned,
    new_lease,
    open_claims,
    report_cloud,
)
from tests.support.scheduling import (
    batches_of,
    is_writing,
    lock_of,
    number_waiting,
)
from tests.support.waiting import PATIENCE, until

pytestmark = [
    pytest.mark.services,
    pytest.mark.parametrize("server", ["mariadb", "postgresql"], indirect=True),
]


def test_a_lease_whose_row_others_have_locked_keeps_no_other_return_waiting(database, claims):
    names = [claim(claims, f"lease-{number}", WHOLE).id for number in range(3)]

    with ThreadPoolExecutor(1) as threads:
        with database.writing() as connection:
            leases.lock(connection, names[0])
            waiting = threads.submit(return_together, database, claims, names)
            until(lambda: released(database) == {"last", *names[1:]})
            assert not waiting.done()
        waiting.result(PATIENCE)
    assert_all_returned(database, 4)


def test_returns_wait_for_a_batch_of_claims_and_are_one_transaction_at_one_moment(database, claims):
    names = [claim(claims, f"lease-{number}", PART).id for number in range(3)]
    batch = batches_of(claims)

    with ThreadPoolExecutor(4) as threads, commits(database) as committed:
        with lock_of(claims):
            claiming = threads.submit(claim, claims, "claiming", PART)
            until(lambda: is_writing(batches_of(claims)))
            returning = []
            for number, name in enumerate(names, start=1):
                returning.append(threads.submit(claims.release, name))
                until(lambda number=number: number_waiting(batch) == number)
            assert released(database) == set()
        for one in [claiming, *returning]:
            one.result(PATIENCE)
        assert len(committed) == 2  # the claim, and the returns

    with database.read() as session:
        lease = models.LeaseRow
        times = session.scalars(select(lease.released_at).where(lease.id.in_(names))).all()
    assert len(times) == 3
    assert len(set(times)) == 1
    assert_books_are_right(database, claims, held=1)


def released(database: Database) -> set[str]:
    with database.read() as session:
        ended = models.LeaseRow.released_at.is_not(None)
        return set(session.scalars(select(models.LeaseRow.id).where(ended)))


def test_the_queue_is_served_after_a_batch_although_its_first_return_was_refused(database, claims):
    plain = {"remoting": "lupine", "has_server": False}
    names = [claim(claims, f"lease-{number}", Request(4), **plain).id for number in range(2)]
    claims.queue.join(new_lease("waiting", Request(4)), Request(4))
    entered, go = threading.Event(), threading.Event()

    def stop(_: Lease) -> bool:
        entered.set()
        return not go.wait(PATIENCE)

    def refuse(_: Lease) -> bool:
        raise exceptions.LeaseReleased(id="lease-0")

    batch = batches_of(claims)
    with ThreadPoolExecutor(3) as threads:
        threads.submit(claims.terminate, names[0], if_=stop)
        assert entered.wait(PATIENCE)
        refused = threads.submit(claims.terminate, names[0], if_=refuse)
        until(lambda: number_waiting(batch) == 1)
        fine = threads.submit(claims.terminate, names[1])
        until(lambda: number_waiting(batch) == 2)
        go.set()

    assert isinstance(refused.exception(), exceptions.LeaseReleased)
    assert fine.result().id == names[1]
    with database.reading() as connection:
        assert leases.get(connection, "waiting").claims != ()


def test_a_lease_that_is_ended_twice_in_a_batch_is_ended_once(database, claims):
    name, other = (
        claim(claims, name, WHOLE, remoting="lupine", has_server=False).id
        for name in ("lease", "other")
    )
    entered, go = threading.Event(), threading.Event()

    def stop(_: Lease) -> bool:
        entered.set()
        return go.wait(PATIENCE)

    batch = batches_of(claims)
    with ThreadPoolExecutor(3) as threads:
        threads.submit(claims.terminate, other, if_=stop)
        assert entered.wait(PATIENCE)
        ended = []
        for number in range(1, 3):
            ended.append(threads.submit(claims.terminate, name))
            until(lambda number=number: number_waiting(batch) == number)
        go.set()

    assert ended[0].result().status == Status.RELEASED
    assert isinstance(ended[1].exception(), exceptions.IllegalTransition)
    with database.reading() as connection:
        events = [one.event for one in leases.events(connection, name)]
    assert (events.count(Event.RELEASE), events.count(Event.FINISH)) == (1, 1)
    assert_all_returned(database, 2)


def test_leases_that_wait_with_server_fields_leave_the_queue_in_a_batch(database, claims):
    claim(claims, "holder", Request(8), has_server=False, remoting="lupine")
    names = ["one", "two"]
    for name in names:
        waiting = new_lease(name, WHOLE).with_(server_request={"adminPass": "secret"})
        claims.queue.join(waiting, WHOLE)
    entered, go = threading.Event(), threading.Event()

    def stop(_: Lease) -> bool:
        entered.set()
        return not go.wait(PATIENCE)

    batch = batches_of(claims)
    with ThreadPoolExecutor(3) as threads:
        threads.submit(claims.terminate, "holder", if_=stop)
        assert entered.wait(PATIENCE)
        with commits(database) as committed:
            ended = []
            for number, name in enumerate(names, start=1):
                ended.append(threads.submit(claims.terminate, name))
                until(lambda number=number: number_waiting(batch) == number)
            go.set()
            assert [one.result(PATIENCE).status for one in ended] == [Status.RELEASED] * 2

    assert len(committed) == 1
    with database.reading() as connection:
        assert [leases.get(connection, name).server_request for name in names] == [{}, {}]
        assert leases.get(connection, "one").released_at is not None


def test_a_batch_waits_for_no_claims_of_other_leases(database, claims):
    """Of a table that is so small that the server might as well look at all of it."""
    names = [claim(claims, f"lease-{number}", PART).id for number in range(4)]
    between = [claim(claims, f"lease-{number}-and", PART).id for number in (0, 2)]
    theirs = models.ClaimRow.lease_id.in_(between)

    with ThreadPoolExecutor(1) as threads, database.writing() as connection:
        connection.execute(select(models.ClaimRow.lease_id).where(theirs).with_for_update())
        threads.submit(return_together, database, claims, names).result(PATIENCE)

    assert_books_are_right(database, claims, held=2)


def test_a_return_that_waits_for_a_gpu_keeps_no_other_return_waiting(database, claims, attempts):
    stuck, other = (claim(claims, name, WHOLE) for name in ("stuck", "other"))

    with ThreadPoolExecutor(1) as threads:
        with database.writing() as connection:
            lock_gpus(connection, [stuck.claims[0].gpu_uuid])
            waiting = threads.submit(claims.release, stuck.id)
            until(lambda: attempts == [*range(committer.TOGETHER)])  # now it waits alone
            claims.release(other.id)
            assert released(database) == {other.id}
        waiting.result(PATIENCE)
    assert_all_returned(database, 2)


def test_a_lease_whose_gpu_others_have_locked_keeps_no_other_return_waiting(
    database, claims, attempts
):
    made = [claim(claims, f"lease-{number}", WHOLE) for number in range(4)]
    names = [lease.id for lease in made]

    with ThreadPoolExecutor(2) as threads:
        with database.writing() as connection:
            lock_gpus(connection, [made[0].claims[0].gpu_uuid])
            waiting = threads.submit(return_together, database, claims, names[:3])
            until(lambda: attempts == [*range(committer.TOGETHER)])  # now it waits alone
            threads.submit(claims.release, names[3]).result(PATIENCE)
            assert released(database) == {"last", *names[1:]}
            assert not waiting.done()
        waiting.result(PATIENCE)
    assert_all_returned(database, 5)


@pytest.mark.parametrize("attempts", [2, 3])
def test_what_a_batch_leaves_out_is_returned_alone_however_few_attempts_there_are(
    database, attempts
):
    report_cloud(database, hosts=2, gpus_each=4)
    claims = open_claims(database, reserve_for=0, attempts=attempts)
    made = [claim(claims, f"lease-{number}", WHOLE) for number in range(2)]

    with ThreadPoolExecutor(1) as threads:
        with database.writing() as connection:
            lock_gpus(connection, [made[0].claims[0].gpu_uuid])
            names = [*(lease.id for lease in made), "unknown"]
            waiting = threads.submit(return_together, database, claims, names)
            until(lambda: released(database) == {"last", names[1]})
        waiting.result(PATIENCE)
    assert_all_returned(database, 3)


def test_a_return_with_a_single_attempt_waits_for_its_rows(database):
    report_cloud(database, hosts=1, gpus_each=1)
    claims = open_claims(database, attempts=1)
    made = claim(claims, "lease", WHOLE)
    locking = []

    with ThreadPoolExecutor(1) as threads:
        with database.writing() as connection:
            lock_gpus(connection, [made.claims[0].gpu_uuid])

            @event.listens_for(database.engine, "before_cursor_execute")
            def note(connection: Any, cursor: Any, statement: str, *_: Any) -> None:
                if "FROM gpus" in statement and "FOR UPDATE" in statement:
                    locking.append(statement)

            waiting = threads.submit(claims.release, made.id)
            until(lambda: locking)
        waiting.result(PATIENCE)
    assert_all_returned(database, 1)


def test_a_lease_that_was_left_out_of_a_batch_is_returned_with_the_next_one(
    database, claims, monkeypatch
):
    made = [claim(claims, f"lease-{number}", WHOLE) for number in range(3)]
    names = [lease.id for lease in made]
    claim(claims, "before", WHOLE, remoting="lupine", has_server=False)
    left_out, go = threading.Event(), threading.Event()

    def pause(_: int) -> None:
        left_out.set()
        assert go.wait(PATIENCE)

    monkeypatch.setattr(committer, "_pause", pause)
    batch = batches_of(claims)
    with ThreadPoolExecutor(3) as threads:
        with database.writing() as connection:
            lock_gpus(connection, [made[0].claims[0].gpu_uuid])
            returned = threads.submit(return_together, database, claims, names[:2])
            assert left_out.wait(PATIENCE)

        def decide(_: Lease) -> bool:
            threads.submit(claims.release, names[2])
            go.set()
            until(lambda: number_waiting(batch) == 2)
            return True

        with commits(database) as committed:
            claims.terminate("before", if_=decide)
            returned.result(PATIENCE)
    assert len(committed) == 2  # that of the one before, and that of names[0] with names[2]
    assert_all_returned(database, 5)
