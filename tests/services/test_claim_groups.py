# SPDX-License-Identifier: Apache-2.0
"""Claims and returns that threads make at once share a transaction, and none of them notices it.

A claim waits in front of a scheduler that is stopped; those that come after it are one group when it goes on.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

import pytest
from oslo_db import exception as db_exception
from sqlalchemy import event, func, insert, select

from gsaas import exceptions
from gsaas.db import claims as claim_rows
from gsaas.db import clock, gpus, leases, models
from gsaas.db.database import Database
from gsaas.gpgpums import claim_groups, group_commit, policies, retry, returns
from gsaas.gpgpums.addresses import MaskedAddresses
from gsaas.gpgpums.allocation import Allocator
from gsaas.gpgpums.claims import Claims
from gsaas.gpgpums.group_commit import GroupCommit
from gsaas.gpgpums.policies.base import Policy
from gsaas.limits import base as limits
from gsaas.objects.lease import Lease
from gsaas.objects.lifecycle import Event, Status
from gsaas.objects.ports import PortRange
from gsaas.objects.request import Request
from tests.services.test_claims_race import (
    BOOKS,
    Dawdler,
    assert_all_returned,
    new_lease,
    open_claims,
    report_cloud,
)

pytestmark = [
    pytest.mark.services,
    pytest.mark.parametrize("server", ["mariadb", "postgresql"], indirect=True),
]

Done = TypeVar("Done")
PATIENCE = 30
MANY = 6
WHOLE = Request(1)
PART = Request(1, "shared", 100)


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody loses patience, however busy the machine is."""
    monkeypatch.setattr(group_commit, "PATIENCE", PATIENCE)


@pytest.fixture
def claims(database: Database) -> Claims:
    """Claims that have read the pool of two hosts with four GPUs each, of 1000 MiB."""
    report_cloud(database, hosts=2, gpus_each=4)
    claims = open_claims(database, reserve_for=0)
    claims.check(WHOLE)
    return claims


def together(
    claims: Claims,
    group: GroupCommit[Any, Any],
    first: Callable[[], object],
    calls: Sequence[Callable[[], Done]],
) -> list[Future[Done]]:
    """Start *first*, and then *calls*, in this order, while the scheduler is stopped; then wait for all of them."""
    with ThreadPoolExecutor(len(calls) + 1) as threads:
        with claims.scheduler.lock:
            started = [threads.submit(first)]
            until(lambda: group._leaders and not group._waiting)
            for number, call in enumerate(calls, start=1):
                started.append(threads.submit(call))
                until(lambda number=number: len(group._waiting) == number)
        return started[1:]


def claim_together(
    claims: Claims, *wanted: tuple[str, Request] | tuple[str, Request, Any]
) -> list[Future[Lease]]:
    """Claim for leases in one group; each of *wanted* is the arguments of `claim`."""

    def first() -> None:
        with pytest.raises(exceptions.NeverFits):
            claims.claim(new_lease("first", Request(999)), Request(999))

    calls = [lambda one=one: claim(claims, *one) for one in wanted]
    return together(claims, claims._groups._group, first, calls)


def claim(
    claims: Claims,
    name: str,
    request: Request,
    policy: str | None = None,
    quota: limits.Amounts = limits.NO_LIMITS,
    **fields: Any,
) -> Lease:
    return claims.claim(new_lease(name, request).with_(**fields), request, policy, quota)


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


@contextmanager
def commits(database: Database) -> Iterator[list[object]]:
    """Yield a list that gets an element for each commit of a transaction that has written."""
    wrote, committed = set[int](), list[object]()

    def note(connection: Any, cursor: Any, statement: str, *_: Any) -> None:
        if not statement.startswith(("SELECT", "SET")):
            wrote.add(id(connection.connection.dbapi_connection))

    def commit(connection: Any) -> None:
        if id(connection.connection.dbapi_connection) in wrote:
            wrote.remove(id(connection.connection.dbapi_connection))
            committed.append(connection)

    event.listen(database.engine, "before_cursor_execute", note)
    event.listen(database.engine, "commit", commit)
    yield committed
    event.remove(database.engine, "before_cursor_execute", note)
    event.remove(database.engine, "commit", commit)


def assert_books_are_right(database: Database, claims: Claims, held: int) -> None:
    """Check the GPUs against their claims in the database, and what the process knows of them."""
    with database.read() as session:
        rows = session.execute(BOOKS).all()
        assert session.scalar(select(func.count()).select_from(models.ClaimRow)) == held
    for row in rows:
        assert row.claimed_mb == row.used_mb <= row.memory_mb
        assert row.leases == row.holders
        if row.exclusive_lease_id is not None:
            assert (row.holders, row.used_mb) == (1, row.memory_mb)
    assert shown(claims) == stored(database)


def shown(claims: Claims) -> dict[str, tuple[Any, ...]]:
    with claims.scheduler.lock:
        return {
            gpu.uuid: (gpu.used_mb, gpu.exclusive, gpu.generation, gpu.leases, gpu.given)
            for gpu in claims.scheduler._cache.pool
        }


def stored(database: Database) -> dict[str, tuple[Any, ...]]:
    gpu = models.GpuRow
    columns = (gpu.uuid, gpu.used_mb, gpu.exclusive_lease_id, gpu.generation, gpu.leases, gpu.given)
    with database.read() as session:
        return {
            uuid: (used, holder is not None, *rest)
            for uuid, used, holder, *rest in session.execute(select(*columns))
        }


def test_claims_made_at_once_are_one_transaction_and_so_are_their_returns(database, claims):
    with commits(database) as committed:
        made = claim_together(claims, *((f"lease-{number}", WHOLE) for number in range(MANY)))
    names = [one.result().id for one in made]

    assert len(committed) == 1
    assert len({one.result().claims[0].gpu_uuid for one in made}) == MANY
    assert_books_are_right(database, claims, held=MANY)

    with commits(database) as committed:
        return_together(database, claims, names)

    assert (
        len(committed) == 3
    )  # the claim and the return of the lease that the group waited for, and the group
    assert_all_returned(database, MANY + 1)


def test_a_server_that_cannot_skip_locked_rows_gets_each_claim_in_its_own_transaction(
    database, claims, monkeypatch
):
    monkeypatch.setattr(Database, "can_skip_locked", False)

    with commits(database) as committed, ThreadPoolExecutor(MANY) as threads:
        made = [threads.submit(claim, claims, f"lease-{number}", WHOLE) for number in range(MANY)]

    assert len(committed) == len({one.result().claims[0].gpu_uuid for one in made}) == MANY


def return_together(database: Database, claims: Claims, names: Sequence[str]) -> None:
    """Return the claims of these leases in one group, after that of another one."""
    claim(claims, "last", PART, remoting="lupine", has_server=False)
    group = claims.returns._group
    entered, go = threading.Event(), threading.Event()

    def decide(_: Lease) -> bool:
        entered.set()
        return go.wait(PATIENCE)

    with ThreadPoolExecutor(len(names) + 1) as threads:
        started = [threads.submit(claims.returns.terminate, "last", if_=decide)]
        assert entered.wait(PATIENCE)
        for number, name in enumerate(names, start=1):
            started.append(threads.submit(claims.returns.release, name))
            until(lambda number=number: len(group._waiting) == number)
        go.set()
    for one in started:
        one.result()


def test_a_grouped_lease_is_stored_as_one_that_was_claimed_alone(database, claims):
    alone = claim(claims, "alone", PART, "best-fit", keepalive=60)

    [grouped, _] = claim_together(
        claims, ("grouped", PART, "best-fit"), ("other", PART, "best-fit")
    )

    same = {"count", "mode", "memory_mb", "policy", "status", "access", "claimed_mb", "bound_host"}
    assert {name: getattr(grouped.result(), name) for name in same} == {
        name: getattr(alone, name) for name in same
    }
    with database.reading() as connection:
        assert leases.get(connection, "grouped") == grouped.result()
        events = [
            [(one.event, one.status) for one in leases.events(connection, name)]
            for name in ("alone", "grouped")
        ]
    assert events[0] == events[1] != []


def test_leases_of_a_group_share_a_gpu_and_return_it_at_once(database, claims):
    made = claim_together(
        claims, *((f"lease-{number}", PART, "best-fit") for number in range(MANY))
    )

    assert len({one.result().claims[0].gpu_uuid for one in made}) == 1
    assert_books_are_right(database, claims, held=MANY)
    return_together(database, claims, [one.result().id for one in made])
    assert_all_returned(database, MANY + 1)


def test_leases_of_a_group_with_several_cgpus_on_one_gpu(database, claims):
    several = Request(3, "shared", 100)

    made = claim_together(
        claims, *((f"lease-{number}", several, "best-fit") for number in range(3))
    )

    assert_books_are_right(database, claims, held=9)
    return_together(database, claims, [one.result().id for one in made])
    assert_all_returned(database, 4)


def test_daemons_of_one_group_have_different_ports(database, claims):
    made = claim_together(
        claims, *((f"lease-{number}", PART, "best-fit") for number in range(MANY))
    )

    daemons = {
        (share.daemon_host, share.daemon_port) for one in made for share in one.result().claims
    }
    assert len(daemons) == MANY
    assert None not in {port for _, port in daemons}


def test_a_group_that_asks_for_more_than_there_is_gets_all_that_there_is(database, claims):
    made = claim_together(claims, *((f"lease-{number}", WHOLE) for number in range(10)))

    assert [one.exception() for one in made[:8]] == [None] * 8
    assert [type(one.exception()) for one in made[8:]] == [exceptions.NoCapacity] * 2
    assert_books_are_right(database, claims, held=8)


def test_a_group_gets_no_more_than_the_quota_of_its_project(database, claims):
    quota = {**limits.NO_LIMITS, "cgpus": 4}

    made = claim_together(
        claims, *((f"lease-{number}", Request(1 + number % 2), None, quota) for number in range(6))
    )

    refused = [isinstance(one.exception(), exceptions.QuotaExceeded) for one in made]
    assert refused == [False, False, False, True, True, True]  # 1 and 2 and 1 cGPUs of 4
    assert_books_are_right(database, claims, held=4)


def test_a_claim_of_a_group_that_is_refused_takes_nothing_from_the_others(database, claims):
    made = claim_together(
        claims,
        ("fine", WHOLE),
        ("unknown", WHOLE, "no-such-policy"),
        ("huge", Request(1, "shared", 10_000)),
        ("fine, too", WHOLE),
    )

    assert [type(one.exception()) for one in made] == [
        type(None),
        exceptions.UnknownPolicy,
        exceptions.NeverFits,
        type(None),
    ]
    assert_books_are_right(database, claims, held=2)


def test_two_requests_of_a_group_with_one_key_make_one_lease_and_the_others_theirs(
    database, claims
):
    calls = [
        lambda name=name, key=key: claim(claims, name, WHOLE, request_key=key, request_digest="d")
        for name, key in (("one", "k"), ("again", "k"), ("other", None), ("another", "l"))
    ]

    def first() -> None:
        with pytest.raises(exceptions.NeverFits):
            claim(claims, "first", Request(999))

    made = together(claims, claims._groups._group, first, calls)

    errors = [type(one.exception()) for one in made]
    assert {*errors[:2]} == {type(None), db_exception.DBDuplicateEntry}
    assert errors[2:] == [type(None)] * 2
    assert_books_are_right(database, claims, held=3)


def test_a_request_whose_key_has_made_a_lease_before_does_not_break_its_group(database, claims):
    claim(claims, "known", WHOLE, request_key="k", request_digest="d")
    calls = [
        lambda name=name, key=key: claim(claims, name, WHOLE, request_key=key, request_digest="d")
        for name, key in (("one", "l"), ("again", "k"), ("other", "m"))
    ]

    def first() -> None:
        with pytest.raises(exceptions.NeverFits):
            claim(claims, "first", Request(999))

    with commits(database) as committed:
        made = together(claims, claims._groups._group, first, calls)

    errors = [type(one.exception()) for one in made]
    assert errors == [type(None), db_exception.DBDuplicateEntry, type(None)]
    assert len(committed) == 1
    assert_books_are_right(database, claims, held=3)


def test_a_claim_of_a_group_whose_gpu_others_took_meanwhile_gets_another_in_the_same_transaction(
    database, claims, monkeypatch
):
    rival = open_claims(database)
    dawdler = Dawdler(lambda: claim(rival, "quick", Request(2)))
    monkeypatch.setitem(policies.installed(), dawdler.name, dawdler)

    with commits(database) as committed:
        made = claim_together(
            claims, *((f"lease-{number}", WHOLE, dawdler.name) for number in range(3))
        )

    assert [one.exception() for one in made] == [None] * 3
    assert len(committed) == 2  # the rival's, and the group's
    claims.check(WHOLE)
    assert_books_are_right(database, claims, held=5)


class Fixed(Policy):
    """Has some GPUs in mind for each size of a cGPU; the first time it thinks, somebody else acts."""

    name = "fixed"

    def __init__(self, other: Callable[[], object], wanted: dict[int | None, list[str]]) -> None:
        self.others = iter([other])
        self.wanted = wanted

    def order(self, candidates, request):
        next(self.others, lambda: None)()
        by_uuid = {gpu.uuid: gpu for gpu in candidates}
        return [by_uuid[uuid] for uuid in self.wanted[request.memory_mb] if uuid in by_uuid]


def test_a_claim_that_lost_its_gpu_shares_another_with_a_later_claim_of_its_group(
    database, claims, monkeypatch
):
    rival = open_claims(database)
    wanted = {500: ["GPU-0-0", "GPU-0-1"], 300: ["GPU-0-1"], 100: ["GPU-0-0"]}
    policy = Fixed(lambda: claim(rival, "quick", PART, Fixed.name), wanted)
    monkeypatch.setitem(policies.installed(), policy.name, policy)

    made = claim_together(
        claims,
        ("loser", Request(1, "shared", 500), policy.name),
        ("winner", Request(1, "shared", 300), policy.name),
    )

    assert {one.result().claims[0].gpu_uuid for one in made} == {"GPU-0-1"}
    claims.check(WHOLE)
    assert_books_are_right(database, claims, held=3)
    assert stored(database)["GPU-0-1"][0] == 800


def test_claims_of_a_group_that_lose_gpu_after_gpu_stay_in_it(database, claims, monkeypatch):
    rival = open_claims(database)
    choices = [f"GPU-{host}-{number}" for host in range(2) for number in range(4)]
    policy = Fixed(lambda: None, {None: choices, 100: choices})
    rivals = iter(range(2))

    def order(candidates: Any, request: Request) -> Any:
        if request.mode == "exclusive" and (number := next(rivals, None)) is not None:
            claim(rival, f"quick-{number}", PART, "best-fit")
            rival.check(WHOLE)
        return Fixed.order(policy, candidates, request)

    monkeypatch.setattr(policy, "order", order)
    monkeypatch.setitem(policies.installed(), policy.name, policy)

    with commits(database) as committed:
        made = claim_together(claims, *((f"lease-{n}", WHOLE, policy.name) for n in range(2)))

    assert [one.exception() for one in made] == [None] * 2
    assert len(committed) == 3  # the rival's two, and the group's
    claims.check(WHOLE)
    assert_books_are_right(database, claims, held=4)


def test_nobody_is_refused_for_gpus_that_another_claim_of_the_group_has_lost(
    database, claims, monkeypatch
):
    def disable() -> None:
        with database.write() as session:
            gpus.set_disabled(session, "GPU-0-0", True, "smells")

    dawdler = Dawdler(disable)
    monkeypatch.setitem(policies.installed(), dawdler.name, dawdler)

    made = claim_together(
        claims, *((f"lease-{number}", Request(4), dawdler.name) for number in range(3))
    )

    outcomes = [one.exception() for one in made]
    assert sum(one is None for one in outcomes) == 1
    assert sum(isinstance(one, exceptions.NoCapacity) for one in outcomes) == 2
    claims.check(WHOLE)
    assert_books_are_right(database, claims, held=4)


def test_the_pool_shows_nothing_of_a_group_whose_transaction_has_failed(
    database, claims, monkeypatch
):
    def break_down(*_: object) -> None:
        raise RuntimeError

    before = shown(claims)
    seen = list[dict[str, tuple[Any, ...]]]()
    write_alone = claims._write_alone

    def look(*arguments: Any) -> Lease:
        seen.append(shown(claims))
        return write_alone(*arguments)

    monkeypatch.setattr(Allocator, "write_group", break_down)
    monkeypatch.setattr(claims, "_write_alone", look)

    made = claim_together(claims, *((f"lease-{number}", WHOLE) for number in range(MANY)))

    assert seen[0] == before
    assert [one.exception() for one in made] == [None] * MANY
    assert_books_are_right(database, claims, held=MANY)


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


def released(database: Database) -> set[str]:
    with database.read() as session:
        ended = models.LeaseRow.released_at.is_not(None)
        return set(session.scalars(select(models.LeaseRow.id).where(ended)))


def test_the_queue_is_served_after_a_group_although_its_first_return_was_refused(database, claims):
    plain = {"remoting": "lupine", "has_server": False}
    names = [claim(claims, f"lease-{number}", Request(4), **plain).id for number in range(2)]
    claims.queue.join(new_lease("waiting", Request(4)), Request(4))
    entered, go = threading.Event(), threading.Event()

    def stop(_: Lease) -> bool:
        entered.set()
        return not go.wait(PATIENCE)

    def refuse(_: Lease) -> bool:
        raise exceptions.LeaseReleased(id="lease-0")

    group = claims.returns._group
    with ThreadPoolExecutor(3) as threads:
        threads.submit(claims.returns.terminate, names[0], if_=stop)
        assert entered.wait(PATIENCE)
        refused = threads.submit(claims.returns.terminate, names[0], if_=refuse)
        until(lambda: len(group._waiting) == 1)
        fine = threads.submit(claims.returns.terminate, names[1])
        until(lambda: len(group._waiting) == 2)
        go.set()

    assert isinstance(refused.exception(), exceptions.LeaseReleased)
    assert fine.result().id == names[1]
    with database.reading() as connection:
        assert leases.get(connection, "waiting").claims != ()


def test_a_lease_that_is_ended_twice_in_a_group_is_ended_once(database, claims):
    name, other = (
        claim(claims, name, WHOLE, remoting="lupine", has_server=False).id
        for name in ("lease", "other")
    )
    entered, go = threading.Event(), threading.Event()

    def stop(_: Lease) -> bool:
        entered.set()
        return go.wait(PATIENCE)

    group = claims.returns._group
    with ThreadPoolExecutor(3) as threads:
        threads.submit(claims.returns.terminate, other, if_=stop)
        assert entered.wait(PATIENCE)
        ended = []
        for number in range(1, 3):
            ended.append(threads.submit(claims.returns.terminate, name))
            until(lambda number=number: len(group._waiting) == number)
        go.set()

    assert ended[0].result().status == Status.RELEASED
    assert isinstance(ended[1].exception(), exceptions.IllegalTransition)
    with database.reading() as connection:
        events = [one.event for one in leases.events(connection, name)]
    assert (events.count(Event.RELEASE), events.count(Event.FINISH)) == (1, 1)
    assert_all_returned(database, 2)


def test_leases_that_wait_with_server_fields_leave_the_queue_in_a_group(database, claims):
    claim(claims, "holder", Request(8), has_server=False, remoting="lupine")
    names = ["one", "two"]
    for name in names:
        waiting = new_lease(name, WHOLE).with_(server_request={"adminPass": "secret"})
        claims.queue.join(waiting, WHOLE)
    entered, go = threading.Event(), threading.Event()

    def stop(_: Lease) -> bool:
        entered.set()
        return not go.wait(PATIENCE)

    group = claims.returns._group
    with ThreadPoolExecutor(3) as threads:
        threads.submit(claims.returns.terminate, "holder", if_=stop)
        assert entered.wait(PATIENCE)
        with commits(database) as committed:
            ended = []
            for number, name in enumerate(names, start=1):
                ended.append(threads.submit(claims.returns.terminate, name))
                until(lambda number=number: len(group._waiting) == number)
            go.set()
            assert [one.result(PATIENCE).status for one in ended] == [Status.RELEASED] * 2

    assert len(committed) == 1
    with database.reading() as connection:
        assert [leases.get(connection, name).server_request for name in names] == [{}, {}]
        assert leases.get(connection, "one").released_at is not None


def test_nobody_is_refused_while_a_gpu_has_room_that_a_claim_before_it_moved_away_from(
    database, claims, monkeypatch
):
    rival = open_claims(database)
    small = {number: Request(1, "shared", number) for number in (100, 400, 600, 700)}
    order = {400: ["GPU-0-1"], 100: ["GPU-0-0"], 600: ["GPU-0-0", "GPU-0-1"], 700: ["GPU-0-0"]}
    policy = Fixed(lambda: None, order)
    monkeypatch.setitem(policies.installed(), policy.name, policy)
    claim(claims, "before", small[400], policy.name)  # leaves 600 of 1000 MiB
    policy.others = iter([lambda: claim(rival, "quick", small[100], policy.name)])

    made = claim_together(
        claims, ("moves", small[600], policy.name), ("fits then", small[700], policy.name)
    )

    assert [one.result().claims[0].gpu_uuid for one in made] == ["GPU-0-1", "GPU-0-0"]
    claims.check(WHOLE)
    assert_books_are_right(database, claims, held=4)


def test_nobody_is_refused_for_the_quota_of_a_claim_that_was_not_written(database, monkeypatch):
    report_cloud(database, hosts=2, gpus_each=2)
    claims, rival = (
        Claims(
            database,
            attempts=20,
            heartbeat_timeout=3600,
            masked=MaskedAddresses("169.254.71.0/24", 8308),
            daemon_ports={"rcuda": PortRange(20000, 20000)},  # one for each host
        )
        for _ in range(2)
    )
    claims.check(WHOLE)
    plain = {"remoting": "lupine", "has_server": False}
    order = {500: ["GPU-0-0", "GPU-1-0"], 100: ["GPU-0-0"], 200: ["GPU-1-1"], 300: ["GPU-1-0"]}
    policy = Fixed(lambda: None, order)
    monkeypatch.setitem(policies.installed(), policy.name, policy)
    claim(claims, "has the port", Request(1, "shared", 200), policy.name, project_id="p")
    others = {"project_id": "p", **plain}
    policy.others = iter([lambda: claim(rival, "quick", PART, policy.name, **others)])
    quota = {**limits.NO_LIMITS, "cgpus": 1}

    def first() -> None:
        with pytest.raises(exceptions.NeverFits):
            claim(claims, "first", Request(999))

    made = together(
        claims,
        claims._groups._group,
        first,
        [
            lambda: claim(claims, "no port", Request(1, "shared", 500), policy.name, quota),
            lambda: claim(claims, "fine", Request(1, "shared", 300), policy.name, quota, **plain),
        ],
    )

    # Whichever tries again first; before, both were refused although the project had nothing.
    assert [one.exception() is None for one in made].count(True) == 1
    assert_books_are_right(database, claims, held=3)


def test_a_group_keeps_what_the_pool_learns_of_utilisation(database, claims):
    with database.writing() as connection:
        now = clock.now(connection)
        connection.execute(
            insert(models.GpuReadingRow),
            [{"gpu_uuid": gpu, "at": now, "mean_utilisation": 80.0} for gpu in stored(database)],
        )

    claim_together(claims, ("one", PART, "best-fit"), ("two", WHOLE, "best-fit-utilisation"))

    assert {gpu.utilisation for gpu in claims.scheduler._cache.pool} == {80.0}


def test_a_group_of_claims_has_no_gpu_locked_while_it_waits_for_its_number(
    database, claims, monkeypatch
):
    waited, number = list[bool](), claim_groups.change_number

    def wait(connection: Any) -> int:
        with database.writing() as other:
            free = claim_rows.lock_free(other, stored(database))
        waited.append(free.keys() == stored(database).keys())
        return number(connection)

    monkeypatch.setattr(claim_groups, "change_number", wait)

    claim_together(claims, *((f"lease-{number}", WHOLE) for number in range(3)))

    assert waited == [True]


def test_a_return_that_waits_for_a_gpu_keeps_no_other_return_waiting(database, claims, monkeypatch):
    monkeypatch.setattr(group_commit, "PATIENCE", 0.1)
    stuck, other = (claim(claims, name, WHOLE) for name in ("stuck", "other"))

    with ThreadPoolExecutor(1) as threads:
        with database.writing() as connection:
            claim_rows.lock_free(connection, [stuck.claims[0].gpu_uuid])
            waiting = threads.submit(claims.returns.release, stuck.id)
            until(lambda: claims.returns._group._leaders == 1)
            claims.returns.release(other.id)
            assert released(database) == {other.id}
        waiting.result(PATIENCE)
    assert_all_returned(database, 2)


def test_a_lease_whose_gpu_others_have_locked_keeps_no_other_return_waiting(
    database, claims, monkeypatch
):
    monkeypatch.setattr(group_commit, "PATIENCE", 3600)
    attempts = list[int]()
    monkeypatch.setattr(retry, "_pause", attempts.append)
    made = [claim(claims, f"lease-{number}", WHOLE) for number in range(4)]
    names = [lease.id for lease in made]

    with ThreadPoolExecutor(2) as threads:
        with database.writing() as connection:
            claim_rows.lock_free(connection, [made[0].claims[0].gpu_uuid])
            waiting = threads.submit(return_together, database, claims, names[:3])
            until(lambda: attempts == [*range(returns.TOGETHER)])  # now it waits alone
            threads.submit(claims.returns.release, names[3]).result(PATIENCE)
            assert released(database) == {"last", *names[1:]}
            assert not waiting.done()
        waiting.result(PATIENCE)
    assert_all_returned(database, 5)


@pytest.mark.parametrize("attempts", [2, 3])
def test_what_a_group_leaves_out_is_returned_alone_however_few_attempts_there_are(
    database, attempts
):
    report_cloud(database, hosts=2, gpus_each=4)
    claims = open_claims(database, reserve_for=0, attempts=attempts)
    made = [claim(claims, f"lease-{number}", WHOLE) for number in range(2)]

    with ThreadPoolExecutor(1) as threads:
        with database.writing() as connection:
            claim_rows.lock_free(connection, [made[0].claims[0].gpu_uuid])
            names = [*(lease.id for lease in made), "unknown"]
            waiting = threads.submit(return_together, database, claims, names)
            until(lambda: released(database) == {"last", names[1]})
        waiting.result(PATIENCE)
    assert_all_returned(database, 3)


def test_a_lease_that_was_left_out_of_a_group_is_returned_with_the_next_one(
    database, claims, monkeypatch
):
    made = [claim(claims, f"lease-{number}", WHOLE) for number in range(3)]
    names = [lease.id for lease in made]
    claim(claims, "before", WHOLE, remoting="lupine", has_server=False)
    left_out, go = threading.Event(), threading.Event()

    def pause(_: int) -> None:
        left_out.set()
        assert go.wait(PATIENCE)

    monkeypatch.setattr(retry, "_pause", pause)
    group = claims.returns._group
    with ThreadPoolExecutor(3) as threads:
        with database.writing() as connection:
            claim_rows.lock_free(connection, [made[0].claims[0].gpu_uuid])
            returned = threads.submit(return_together, database, claims, names[:2])
            assert left_out.wait(PATIENCE)

        def decide(_: Lease) -> bool:
            threads.submit(claims.returns.release, names[2])
            go.set()
            until(lambda: len(group._waiting) == 2)
            return True

        with commits(database) as committed:
            claims.returns.terminate("before", if_=decide)
            returned.result(PATIENCE)
    assert len(committed) == 2  # that of the one before, and that of names[0] with names[2]
    assert_all_returned(database, 5)
