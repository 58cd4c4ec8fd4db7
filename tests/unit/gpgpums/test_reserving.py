# SPDX-License-Identifier: Apache-2.0
"""Reservations in a database: made, kept from others, used by their own project, and given back."""

from __future__ import annotations

import datetime
import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest
from oslo_utils import timeutils
from sqlalchemy import event, select

from gsaas import exceptions
from gsaas.db import gpus as gpu_rows
from gsaas.db import hosts, models
from gsaas.db import reservations as rows
from gsaas.db.database import Database
from gsaas.gpgpums.claims import Claims
from gsaas.gpgpums.reservation_manager import ReservationManager
from gsaas.objects.lease import Lease
from gsaas.objects.request import Request
from gsaas.objects.reservation import Reservation, ReservationStatus, ReservedShare
from tests.unit.gpgpums.test_claims import new_lease, open_claims, report

HOUR = datetime.timedelta(hours=1)
PART = Request(1, "shared", 3000)
serial = itertools.count(1)


@pytest.fixture
def cloud(database: Database) -> Database:
    """One host with two GPUs."""
    report(database, "a", 4000, 4000)
    return database


@pytest.fixture
def claims(cloud: Database) -> Claims:
    return open_claims(cloud)


@pytest.fixture
def made(cloud: Database, claims: Claims) -> ReservationManager:
    return claims.reservations


def reserve(made: ReservationManager, request: Request, begins: float, ends: float) -> str:
    now = timeutils.utcnow()
    wanted = Reservation(
        *(f"r-{next(serial)}", "project-1", "user-1", "course", ReservationStatus.PENDING),
        *(request.to_dict(), now + begins * HOUR, now + ends * HOUR, now),
    )
    return made.create(wanted, request).id


def within(claims: Claims, reservation_id: str, request: Request) -> Lease:
    return claims.claim(new_lease(request).with_(reservation_id=reservation_id), request)


def memory(cloud: Database) -> dict[str, tuple[int, int]]:
    """UUID -> MiB that leases have, and MiB that reservations keep."""
    with cloud.read() as session:
        found = session.scalars(select(models.GpuRow))
        return {gpu.uuid: (gpu.used_mb, gpu.reserved_mb) for gpu in found}


@contextmanager
def recorded(cloud: Database) -> Iterator[list[tuple[str, Sequence[object]]]]:
    """Collect the statements that are executed meanwhile, with their parameters."""
    executed: list[tuple[str, Sequence[object]]] = []

    def note(connection, cursor, statement, parameters, *_) -> None:
        executed.append((statement, parameters))

    event.listen(cloud.engine, "before_cursor_execute", note)
    yield executed
    event.remove(cloud.engine, "before_cursor_execute", note)


def shown(cloud: Database, reservation_id: str) -> Reservation:
    with cloud.reading() as connection:
        return rows.get(connection, reservation_id)


def test_what_is_reserved_for_later_may_be_used_until_then(cloud, made, claims):
    reserve(made, Request(2), 3, 5)
    made.audit()
    assert memory(cloud) == {"a0": (0, 0), "a1": (0, 0)}
    claims.claim(new_lease(Request(2)), Request(2))


def test_reservations_that_overlap_never_get_the_same_gpu(made):
    reserve(made, Request(2), 3, 5)
    with pytest.raises(exceptions.NoCapacity, match="kept for reservations"):
        reserve(made, Request(1), 4, 6)
    reserve(made, Request(1), 5, 6)


def test_what_it_keeps_is_claimed_by_nobody_else(cloud, made, claims):
    reserve(made, Request(1), 0.5, 2)
    made.audit()
    assert sorted(memory(cloud).values()) == [(0, 0), (0, 4000)]
    claims.claim(new_lease(PART), PART)
    with pytest.raises(exceptions.NoCapacity) as refusal:
        claims.claim(new_lease(PART), PART)
    assert {"filter": "reservation", "gpus": 1} in refusal.value.facts["details"]["filters"]


def test_what_leases_use_is_kept_as_soon_as_they_return_it(cloud, made, claims):
    lease = claims.claim(new_lease(Request(2)), Request(2))
    reservation_id = reserve(made, Request(2), 0.5, 2)
    made.audit()
    assert [share.kept for share in shown(cloud, reservation_id).shares] == [False, False]
    claims.release(lease.id)
    made.audit()
    assert memory(cloud) == {"a0": (0, 4000), "a1": (0, 4000)}


def test_what_a_reservation_waits_for_is_not_given_to_a_lease_in_the_queue(cloud, made, claims):
    lease = claims.claim(new_lease(Request(2)), Request(2))
    reserve(made, Request(2), 0.5, 2)
    made.audit()
    claims.queue.join(new_lease(PART), PART)
    claims.release(lease.id)
    assert memory(cloud) == {"a0": (0, 4000), "a1": (0, 4000)}


@pytest.mark.parametrize("how", ["its end", "its cancellation"])
def test_what_a_reservation_kept_goes_to_the_next_before_the_queue(cloud, made, claims, how):
    first = reserve(made, Request(2), 0, 0.5)
    reserve(made, Request(2), 0.5, 2)
    made.audit()
    claims.queue.join(new_lease(PART), PART)
    if how == "its end":
        end(cloud, made, first)
    else:
        made.cancel(first)
    assert memory(cloud) == {"a0": (0, 4000), "a1": (0, 4000)}


def test_a_claim_of_another_process_that_has_not_seen_the_reservation_is_overtaken(cloud, made):
    other = open_claims(cloud)
    other.check(PART)
    reserve(made, Request(2), 0.5, 2)
    made.audit()
    with pytest.raises(exceptions.NoCapacity):
        other.claim(new_lease(PART), PART)


@pytest.mark.parametrize("request_", [Request(1), PART], ids=["whole GPUs", "shares"])
def test_its_project_launches_in_it_and_returns_to_it(cloud, made, claims, request_):
    size = request_.memory_mb or 4000
    reservation_id = reserve(made, request_.with_(count=2), 0, 2)
    made.audit()
    assert shown(cloud, reservation_id).status == ReservationStatus.ACTIVE

    first, second = (within(claims, reservation_id, request_) for _ in range(2))
    assert sum(used for used, _ in memory(cloud).values()) == 2 * size
    assert sum(kept for _, kept in memory(cloud).values()) == 0
    with pytest.raises((exceptions.NoCapacity, exceptions.NeverFits)):
        within(claims, reservation_id, request_)

    claims.release(first.id)
    assert sum(kept for _, kept in memory(cloud).values()) == size
    within(claims, reservation_id, request_)
    assert {share.lease_id for share in shown(cloud, reservation_id).shares} >= {second.id}


def test_others_do_not_launch_in_it(made, claims):
    reservation_id = reserve(made, Request(1), 0, 2)
    made.audit()
    foreign = new_lease(Request(1)).with_(reservation_id=reservation_id, project_id="other")
    with pytest.raises(exceptions.NotFound):
        claims.claim(foreign, Request(1))


def test_nobody_launches_in_it_before_its_beginning(made, claims):
    reservation_id = reserve(made, Request(1), 0.5, 2)
    made.audit()
    with pytest.raises(exceptions.ReservationNotActive):
        within(claims, reservation_id, Request(1))


def test_a_lease_in_it_has_the_size_that_was_reserved(made, claims):
    reservation_id = reserve(made, PART, 0, 2)
    made.audit()
    with pytest.raises(exceptions.BadRequest):
        within(claims, reservation_id, Request(1, "shared", 1000))


def end(cloud: Database, made: ReservationManager, reservation_id: str) -> None:
    """Let its end have come."""
    past = timeutils.utcnow() - datetime.timedelta(seconds=1)
    with cloud.write() as session:
        row = session.get(models.ReservationRow, reservation_id)
        row.start_at, row.end_at = past - HOUR, past
    made.audit()


@pytest.mark.parametrize("how", ["its end", "its cancellation"])
def test_after_it_everybody_gets_what_it_kept_and_its_leases_go_on(cloud, made, claims, how):
    reservation_id = reserve(made, Request(2), 0, 2)
    made.audit()
    lease = within(claims, reservation_id, Request(1))
    if how == "its end":
        end(cloud, made, reservation_id)
    else:
        made.cancel(reservation_id)
    assert shown(cloud, reservation_id).status not in ("PENDING", "ACTIVE")
    assert sorted(memory(cloud).values()) == [(0, 0), (4000, 0)]
    claims.release(lease.id)
    assert memory(cloud) == {"a0": (0, 0), "a1": (0, 0)}


def test_a_claim_without_a_reservation_executes_no_statement_more(cloud, made, claims):
    def statements() -> int:
        with recorded(cloud) as executed:
            claims.release(claims.claim(new_lease(PART), PART).id)
        assert not any("FROM reserv" in statement for statement, _ in executed)
        return len(executed)

    statements()
    before = statements()
    reserve(made, Request(1), 0.5, 2)
    made.audit()
    statements()
    assert statements() == before


def test_all_reservations_of_a_project_together_are_within_its_quota(cloud, made):
    quota = {"cgpus": 3, "gpu_memory_mb": -1, "leases": 1}
    now = timeutils.utcnow()

    def attempt(project: str, begins: int) -> None:
        wanted = Reservation(
            *(f"r-{next(serial)}", project, "user-1", "course", ReservationStatus.PENDING),
            *(Request(2).to_dict(), now + begins * HOUR, now + (begins + 1) * HOUR, now),
        )
        made.create(wanted, Request(2), quota=quota)

    attempt("project-1", 2)
    with pytest.raises(exceptions.QuotaExceeded, match="2 cGPUs asked for, 2 of at most 3 in use"):
        attempt("project-1", 5)
    attempt("project-2", 5)


def test_an_audit_leaves_alone_what_has_all_that_it_needs(cloud, made):
    def statements() -> int:
        with recorded(cloud) as executed:
            made.audit()
        return len(executed)

    part = Request(1, "shared", 1000)
    reserve(made, part, 0, 2)
    made.audit()
    before = statements()
    for begins in (0, 0.5, 3):
        reserve(made, part, begins, 4)
    made.audit()
    assert statements() == before


@pytest.mark.slow
def test_no_statement_has_as_many_parameters_as_there_are_reservations(cloud, made):
    now = timeutils.utcnow()
    wanted = [
        Reservation(
            *(f"r-{next(serial)}", "project-1", "user-1", "course", ReservationStatus.PENDING),
            *(PART.to_dict(), now + HOUR, now + 2 * HOUR, now),
            (ReservedShare(0, "a0", 1),),
        )
        for _ in range(1100)
    ]
    with cloud.writing() as connection:
        for one in wanted:
            rows.store(connection, one)
    with recorded(cloud) as executed, cloud.reading() as connection:
        found = rows.live(connection)
    assert {one.id: one.shares for one in found} == {one.id: one.shares for one in wanted}
    assert max(len(parameters) for _, parameters in executed) <= 500


def test_of_reservations_that_are_over_a_project_has_the_newest_only(cloud, made, monkeypatch):
    monkeypatch.setattr(rows, "OVER_KEPT", 2)
    first, *others = [reserve(made, PART, hour, hour + 1) for hour in range(2, 6)]
    for reservation in (first, *others):
        made.cancel(reservation)
    live = reserve(made, PART, 2, 3)
    with cloud.reading() as connection:
        over = rows.page(
            connection, project_id="project-1", statuses=[ReservationStatus.CANCELLED], limit=1000
        )
        assert {one.id for one in over} == set(others[1:])
        assert [one.id for one in rows.live(connection)] == [live]
        kept = connection.execute(select(models.ReservedShareRow.reservation_id)).scalars()
        assert set(kept) == {*others[1:], live}


def test_a_host_that_was_forgotten_comes_back_with_nothing_kept(cloud, made, claims):
    reservation_id = reserve(made, Request(2), 0, 2)
    made.audit()
    with cloud.write() as session:
        hosts.forget(session, "a", timeout=None, servers_stay=True)
    assert [share.kept for share in shown(cloud, reservation_id).shares] == [False, False]
    report(cloud, "a", 4000, 4000)
    with pytest.raises((exceptions.NoCapacity, exceptions.NeverFits)):
        within(claims, reservation_id, Request(1))
    made.audit()
    within(claims, reservation_id, Request(1))
    made.cancel(reservation_id)
    assert sorted(memory(cloud).values()) == [(0, 0), (4000, 0)]


@pytest.mark.parametrize("size", [3990, 4010])
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_whole_gpu_stays_one_when_its_driver_finds_other_memory(cloud, made, claims, size, when):
    reservation_id = reserve(made, Request(2), 0, 2)
    if when == "before":
        report(cloud, "a", size, size)
    made.audit()
    if when == "after":
        report(cloud, "a", size, size)
    lease = within(claims, reservation_id, Request(2))
    claims.release(lease.id)
    made.cancel(reservation_id)
    report(cloud, "a", size, size)
    with cloud.read() as session:
        found = [gpu.memory_mb for gpu in session.scalars(select(models.GpuRow))]
    assert found == [size, size]
    assert memory(cloud) == {"a0": (0, 0), "a1": (0, 0)}


def test_what_is_kept_is_not_free(cloud, made):
    reserve(made, PART, 0.5, 2)
    made.audit()
    with cloud.read() as session:
        totals = gpu_rows.totals(session)
    assert (totals["free_mb"], totals["idle"]) == (5000, 1)


def disable(cloud: Database, uuid: str, disabled: bool = True) -> None:
    with cloud.write() as session:
        gpu_rows.set_disabled(session, uuid, disabled)


def places(cloud: Database, reservation_id: str) -> list[tuple[str, bool]]:
    """The GPU of each share, and whether it is kept."""
    return [(share.gpu_uuid, share.kept) for share in shown(cloud, reservation_id).shares]


@pytest.mark.parametrize("begins", [0, 0.5, 3], ids=["during it", "before it", "long before it"])
def test_what_is_on_a_gpu_that_goes_out_of_service_moves_to_another(cloud, made, begins):
    reservation_id = reserve(made, Request(1), begins, 5)
    made.audit()
    [(before, kept)] = places(cloud, reservation_id)
    [after] = {"a0", "a1"} - {before}
    disable(cloud, before)
    made.audit()
    assert places(cloud, reservation_id) == [(after, kept)]
    assert memory(cloud) == {before: (0, 0), after: (0, 4000 if kept else 0)}


def test_what_fits_nowhere_stays_and_moves_once_there_is_room(cloud, made, claims):
    reservation_id = reserve(made, Request(1), 0, 5)
    made.audit()
    [(before, _)] = places(cloud, reservation_id)
    lease = claims.claim(new_lease(PART), PART)
    disable(cloud, before)
    for _ in range(2):
        made.audit()
        assert places(cloud, reservation_id) == [(before, True)]
    claims.release(lease.id)
    made.audit()
    [(after, kept)] = places(cloud, reservation_id)
    assert (after != before, kept) == (True, True)
    assert within(claims, reservation_id, Request(1)).claims[0].gpu_uuid == after


def test_a_gpu_that_is_back_before_there_is_room_elsewhere_still_has_its_share(cloud, made):
    reservation_id = reserve(made, Request(2), 0, 5)
    made.audit()
    disable(cloud, "a0")
    made.audit()
    disable(cloud, "a0", False)
    made.audit()
    assert sorted(places(cloud, reservation_id)) == [("a0", True), ("a1", True)]
    assert memory(cloud) == {"a0": (0, 4000), "a1": (0, 4000)}


def test_what_a_lease_returns_on_a_gpu_out_of_service_moves(cloud, made, claims):
    reservation_id = reserve(made, Request(1), 0, 5)
    made.audit()
    lease = within(claims, reservation_id, Request(1))
    [(before, _)] = places(cloud, reservation_id)
    disable(cloud, before)
    made.audit()
    assert places(cloud, reservation_id) == [(before, True)]
    claims.release(lease.id)
    made.audit()
    assert places(cloud, reservation_id)[0][0] != before


def test_what_was_on_a_gpu_that_is_gone_moves(cloud, made):
    reservation_id = reserve(made, Request(2), 3, 5)
    report(cloud, "a", 4000)
    report(cloud, "b", 4000)
    made.audit()
    assert sorted(uuid for uuid, _ in places(cloud, reservation_id)) == ["a0", "b0"]
