# SPDX-License-Identifier: Apache-2.0
"""Claims that threads make at once share a transaction, and none of them notices it."""

from __future__ import annotations

from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from oslo_db import exception as db_exception
from sqlalchemy import insert

from gsaas import exceptions
from gsaas.db import claims as claim_rows
from gsaas.db import clock, gpus, leases, models
from gsaas.db.database import Database
from gsaas.gpgpums import ledger, policies
from gsaas.gpgpums.policies.base import Policy
from gsaas.limits import base as limits
from gsaas.objects.ports import PortRange
from gsaas.objects.request import Request
from tests.services.batches import (
    PART,
    WHOLE,
    assert_books_are_right,
    claim,
    claim_together,
    commits,
    return_together,
    shown,
    stored,
    together,
)
from tests.services.batches import claims as claims
from tests.services.test_claims_race import Dawdler, assert_all_returned, open_claims, report_cloud
from tests.support import scheduling
from tests.support.scheduling import batches_of, pool_of

pytestmark = [
    pytest.mark.services,
    pytest.mark.parametrize("server", ["mariadb", "postgresql"], indirect=True),
]

MANY = 6


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
    )  # the claim and the return of the lease that the batch waited for, and the batch
    assert_all_returned(database, MANY + 1)


def test_claims_share_a_transaction_also_if_they_were_opened_before_the_first_connection(
    database, claims
):
    url = database.engine.url.render_as_string(hide_password=False)
    unconnected = Database.open(url, max_retries=0)  # as the API opens it, which may be forked
    claims = open_claims(unconnected, reserve_for=0)
    claims.check(WHOLE)

    with commits(unconnected) as committed:
        claim_together(claims, *((f"lease-{number}", WHOLE) for number in range(MANY)))

    assert len(committed) == 1
    unconnected.close()


def test_a_server_that_cannot_skip_locked_rows_gets_each_claim_in_its_own_transaction(
    database, claims, monkeypatch
):
    monkeypatch.setattr(Database, "can_skip_locked", False)
    claims = open_claims(database, reserve_for=0)

    with commits(database) as committed, ThreadPoolExecutor(MANY) as threads:
        made = [threads.submit(claim, claims, f"lease-{number}", WHOLE) for number in range(MANY)]

    assert len(committed) == len({one.result().claims[0].gpu_uuid for one in made}) == MANY


def test_a_batched_lease_is_stored_as_one_that_was_claimed_alone(database, claims):
    alone = claim(claims, "alone", PART, "best-fit", keepalive=60)

    [batched, _] = claim_together(
        claims, ("batched", PART, "best-fit"), ("other", PART, "best-fit")
    )

    same = {"count", "mode", "memory_mb", "policy", "status", "access", "claimed_mb", "bound_host"}
    assert {name: getattr(batched.result(), name) for name in same} == {
        name: getattr(alone, name) for name in same
    }
    with database.writing() as connection:
        assert leases.lock(connection, "batched") == batched.result()
        events = [
            [(one.event, one.status) for one in leases.events(connection, name)]
            for name in ("alone", "batched")
        ]
    assert events[0] == events[1] != []


def test_leases_of_a_batch_share_a_gpu_and_return_it_at_once(database, claims):
    made = claim_together(
        claims, *((f"lease-{number}", PART, "best-fit") for number in range(MANY))
    )

    assert len({one.result().claims[0].gpu_uuid for one in made}) == 1
    assert_books_are_right(database, claims, held=MANY)
    return_together(database, claims, [one.result().id for one in made])
    assert_all_returned(database, MANY + 1)


def test_leases_of_a_batch_with_several_cgpus_on_one_gpu(database, claims):
    several = Request(3, "shared", 100)

    made = claim_together(
        claims, *((f"lease-{number}", several, "best-fit") for number in range(3))
    )

    assert_books_are_right(database, claims, held=9)
    return_together(database, claims, [one.result().id for one in made])
    assert_all_returned(database, 4)


def test_a_batch_may_claim_more_gpus_than_one_statement_writes(database, claims, monkeypatch):
    monkeypatch.setattr(claim_rows, "AT_ONCE", 3)

    made = claim_together(
        claims,
        ("whole", WHOLE, "best-fit"),
        ("two", Request(2), "best-fit"),
        ("part", PART, "best-fit"),
        ("other-part", PART, "best-fit"),
        ("many", Request(3, "shared", 600)),
        ("last", WHOLE),
    )

    used = {uuid for one in made for uuid in {claim.gpu_uuid for claim in one.result().claims}}
    assert len(used) == 8
    assert_books_are_right(database, claims, held=9)


def test_daemons_of_one_batch_have_different_ports(database, claims):
    made = claim_together(
        claims, *((f"lease-{number}", PART, "best-fit") for number in range(MANY))
    )

    daemons = {
        (share.daemon_host, share.daemon_port) for one in made for share in one.result().claims
    }
    assert len(daemons) == MANY
    assert None not in {port for _, port in daemons}


def test_a_batch_that_asks_for_more_than_there_is_gets_all_that_there_is(database, claims):
    made = claim_together(claims, *((f"lease-{number}", WHOLE) for number in range(10)))

    assert [one.exception() for one in made[:8]] == [None] * 8
    assert [type(one.exception()) for one in made[8:]] == [exceptions.NoCapacity] * 2
    assert_books_are_right(database, claims, held=8)


def test_a_batch_gets_no_more_than_the_quota_of_its_project(database, claims):
    quota = {**limits.NO_LIMITS, "cgpus": 4}

    made = claim_together(
        claims, *((f"lease-{number}", Request(1 + number % 2), None, quota) for number in range(6))
    )

    refused = [isinstance(one.exception(), exceptions.QuotaExceeded) for one in made]
    assert refused == [False, False, False, True, True, True]  # 1 and 2 and 1 cGPUs of 4
    assert_books_are_right(database, claims, held=4)


def test_a_claim_of_a_batch_that_is_refused_takes_nothing_from_the_others(database, claims):
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


def test_two_requests_of_a_batch_with_one_key_make_one_lease_and_the_others_theirs(
    database, claims
):
    calls = [
        lambda name=name, key=key: claim(claims, name, WHOLE, request_key=key, request_digest="d")
        for name, key in (("one", "k"), ("again", "k"), ("other", None), ("another", "l"))
    ]

    def first() -> None:
        with pytest.raises(exceptions.NeverFits):
            claim(claims, "first", Request(999))

    made = together(claims, batches_of(claims), first, calls)

    errors = [type(one.exception()) for one in made]
    assert {*errors[:2]} == {type(None), db_exception.DBDuplicateEntry}
    assert errors[2:] == [type(None)] * 2
    assert_books_are_right(database, claims, held=3)


def test_a_request_whose_key_has_made_a_lease_before_does_not_break_its_batch(database, claims):
    claim(claims, "known", WHOLE, request_key="k", request_digest="d")
    calls = [
        lambda name=name, key=key: claim(claims, name, WHOLE, request_key=key, request_digest="d")
        for name, key in (("one", "l"), ("again", "k"), ("other", "m"))
    ]

    def first() -> None:
        with pytest.raises(exceptions.NeverFits):
            claim(claims, "first", Request(999))

    with commits(database) as committed:
        made = together(claims, batches_of(claims), first, calls)

    errors = [type(one.exception()) for one in made]
    assert errors == [type(None), db_exception.DBDuplicateEntry, type(None)]
    assert len(committed) == 1
    assert_books_are_right(database, claims, held=3)


def test_a_claim_of_a_batch_whose_gpu_others_took_meanwhile_gets_another_in_the_same_transaction(
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
    assert len(committed) == 2  # the rival's, and the batch's
    claims.check(WHOLE)
    assert_books_are_right(database, claims, held=5)


@pytest.fixture
def given_up(claims, monkeypatch) -> list[str]:
    """The GPUs that claims do not begin at any more, which the pool has as they were before."""
    found: list[str] = []
    pool = pool_of(claims)

    def begin_elsewhere(uuids: Collection[str]) -> None:
        assert not any(pool[uuid].used_mb for uuid in uuids)
        found.extend(uuids)

    monkeypatch.setattr(pool, "begin_elsewhere", begin_elsewhere)
    return found


@pytest.mark.parametrize("is_overtaken", [True, False])
def test_a_batch_whose_gpu_others_took_meanwhile_begins_elsewhere(
    database, claims, monkeypatch, given_up, is_overtaken
):
    rival = open_claims(database)
    dawdler = Dawdler(lambda: is_overtaken and claim(rival, "quick", Request(2)))
    monkeypatch.setitem(policies.installed(), dawdler.name, dawdler)

    made = claim_together(
        claims, *((f"lease-{number}", WHOLE, dawdler.name) for number in range(3))
    )

    assert [one.exception() for one in made] == [None] * 3
    with database.reading() as connection:
        taken = leases.get(connection, "quick").claims if is_overtaken else ()
    assert {*given_up} == {one.gpu_uuid for one in taken}


def test_a_batch_that_is_not_committed_begins_elsewhere(database, claims, monkeypatch, given_up):
    """As in a Galera cluster, where another node has changed one of its GPUs first: nothing says which."""
    record, refused = leases.record_events_of, iter([True])

    def refuse_once(*arguments: Any) -> Any:
        if next(refused, False):
            raise db_exception.DBDeadlock
        return record(*arguments)

    monkeypatch.setattr(leases, "record_events_of", refuse_once)

    made = claim_together(claims, *((f"lease-{number}", WHOLE) for number in range(2)))

    assert [one.exception() for one in made] == [None] * 2
    assert {*given_up} == {one.gpu_uuid for lease in made for one in lease.result().claims}


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


def test_a_claim_that_lost_its_gpu_shares_another_with_a_later_claim_of_its_batch(
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


def test_claims_of_a_batch_that_lose_gpu_after_gpu_stay_in_it(database, claims, monkeypatch):
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
    assert len(committed) == 3  # the rival's two, and the batch's
    claims.check(WHOLE)
    assert_books_are_right(database, claims, held=4)


def test_nobody_is_refused_for_gpus_that_another_claim_of_the_batch_has_lost(
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


def test_the_pool_shows_nothing_of_a_batch_whose_transaction_has_failed(
    database, claims, monkeypatch
):
    before, write = shown(claims), ledger.write
    seen = list[dict[str, tuple[Any, ...]]]()

    def break_down(connection: Any, draft: Any) -> Any:
        if len(draft.entries) > 1:
            raise RuntimeError
        seen.append(shown(claims))
        return write(connection, draft)

    monkeypatch.setattr(ledger, "write", break_down)

    made = claim_together(claims, *((f"lease-{number}", WHOLE) for number in range(MANY)))

    assert seen[0] == before
    assert [one.exception() for one in made] == [None] * MANY
    assert_books_are_right(database, claims, held=MANY)


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
        scheduling.open_claims(
            database, daemon_ports={"rcuda": PortRange(20000, 20000)}
        )  # one for each host
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
        batches_of(claims),
        first,
        [
            lambda: claim(claims, "no port", Request(1, "shared", 500), policy.name, quota),
            lambda: claim(claims, "fine", Request(1, "shared", 300), policy.name, quota, **plain),
        ],
    )

    # Whichever tries again first; before, both were refused although the project had nothing.
    assert [one.exception() is None for one in made].count(True) == 1
    assert_books_are_right(database, claims, held=3)


def test_a_batch_keeps_what_the_pool_learns_of_utilisation(database, claims):
    with database.writing() as connection:
        now = clock.now(connection)
        connection.execute(
            insert(models.GpuReadingRow),
            [{"gpu_uuid": gpu, "at": now, "mean_utilisation": 80.0} for gpu in stored(database)],
        )

    claim_together(claims, ("one", PART, "best-fit"), ("two", WHOLE, "best-fit-utilisation"))

    assert {gpu.utilisation for gpu in pool_of(claims)} == {80.0}


def test_a_batch_of_claims_has_no_gpu_locked_while_it_waits_for_its_number(
    database, claims, monkeypatch
):
    waited, number = list[bool](), ledger.change_number

    def wait(connection: Any) -> int:
        with database.writing() as other:
            free = claim_rows.lock_gpus(other, stored(database), waits=False)
        waited.append({gpu.uuid for gpu in free} == stored(database).keys())
        return number(connection)

    monkeypatch.setattr(ledger, "change_number", wait)

    claim_together(claims, *((f"lease-{number}", WHOLE) for number in range(3)))

    assert waited == [True] * 2  # the claim that the batch waits for, and the batch
