# SPDX-License-Identifier: Apache-2.0
"""What moves write into the books, also of leases that have several cGPUs on one GPU."""

from __future__ import annotations

import datetime

import pytest

from gsaas import exceptions
from gsaas.db import gpus, hosts, leases, recount, usage
from gsaas.db.database import Database
from gsaas.gpgpums.claims import Claims
from gsaas.gpgpums.move_changes import Target
from gsaas.objects.gpu_report import GpuInfo
from gsaas.objects.lease import Lease
from gsaas.objects.lifecycle import Event
from gsaas.objects.move import Kind, Stage
from gsaas.objects.request import Request
from tests.unit.gpgpums.test_claims import new_lease, open_claims, report

TWO = Request(2, "shared", 1000)


@pytest.fixture
def claims(database: Database) -> Claims:
    """Two hosts with one GPU each, of which the first lease gets two parts of the first one."""
    report(database, "a", 8000)
    claims = open_claims(database)
    claims.gpus()
    return claims


def launch(database: Database, claims: Claims, request: Request = TWO) -> Lease:
    lease = claims.claim(new_lease(request), request)

    def boot(connection) -> None:
        leases.transition(connection, lease.id, Event.BOOT, server_id=lease.id, server_host="v")
        leases.transition(connection, lease.id, Event.ACTIVATE)

    database.change(boot)
    return lease


def counted(database: Database) -> dict[str, tuple[int, int]]:
    """Return the MiB in use and the number of leases of each GPU, which are what is claimed of it."""
    with database.reading() as connection:
        assert recount.miscounted(connection) == []
    claims = open_claims(database)
    return {gpu.uuid: (gpu.used_mb, gpu.leases) for gpu in claims.gpus()}


def read(database: Database, lease: Lease) -> Lease:
    with database.reading() as connection:
        return leases.get(connection, lease.id)


def end(database: Database, claims: Claims, lease: Lease) -> None:
    """Do what the engine does when nothing leads to the other claims any more."""
    database.change(lambda connection: leases.update(connection, lease.id, moving=Stage.ENDING))
    claims.end_move(lease.id)


def test_a_lease_counts_once_for_a_gpu_however_many_of_its_cgpus_are_there(database, claims):
    lease = launch(database, claims)
    assert counted(database) == {"a0": (2000, 1)}
    claims.release(lease.id)
    assert counted(database) == {"a0": (0, 0)}


def test_one_of_two_cgpus_of_a_gpu_goes_elsewhere_and_comes_back(database, claims):
    lease = launch(database, claims)
    report(database, "b", 8000)
    for target, mine in (("b", {"a0": (1000, 1), "b0": (1000, 1)}), ("a", {"a0": (2000, 1)})):
        claims.move(lease.id, Target(index=1, host=target), Kind.IDLE)
        counted(database)
        claims.switch(lease.id)
        counted(database)
        end(database, claims, lease)
        assert {"b0": (0, 0)} | mine == counted(database)
    claims.release(lease.id)
    assert counted(database) == {"a0": (0, 0), "b0": (0, 0)}


def test_a_move_that_is_undone_returns_what_it_has_claimed(database, claims):
    lease = launch(database, claims)
    report(database, "b", 8000)
    before, stored = counted(database), read(database, lease)
    claims.move(lease.id, Target(), Kind.IDLE)
    assert counted(database) == {"a0": (2000, 1), "b0": (2000, 1)}
    end(database, claims, lease)
    claims.switch(lease.id)  # too late: nothing becomes of it
    assert counted(database) == before
    assert read(database, lease).claims == stored.claims


def test_a_release_in_the_middle_returns_both(database, claims):
    lease = launch(database, claims)
    report(database, "b", 8000)
    claims.move(lease.id, Target(), Kind.IDLE)
    claims.switch(lease.id)
    claims.release(lease.id)
    assert counted(database) == {"a0": (0, 0), "b0": (0, 0)}
    after = read(database, lease)
    assert (after.claims, after.others, after.moving) == ((), (), None)


def test_a_move_overtakes_the_queue_and_serves_it_with_what_it_leaves(database, claims):
    lease = launch(database, claims)
    report(database, "b", 2000)
    large = Request(1, "shared", 7000)
    waiting = claims.queue.join(new_lease(large), large)
    claims.move(lease.id, Target(host="b"), Kind.IDLE)
    claims.switch(lease.id)
    assert read(database, waiting).claims == ()
    end(database, claims, lease)
    assert [claim.gpu_uuid for claim in read(database, waiting).claims] == ["a0"]


def test_a_gpu_without_room_is_refused_and_nothing_is_claimed(database, claims):
    lease = launch(database, claims)
    report(database, "b", 1500)
    before = counted(database)
    with pytest.raises(exceptions.LeaseNotMovable, match="fits"):
        claims.move(lease.id, Target(host="b"), Kind.CUT)
    assert counted(database) == before


def add_gpu(database: Database, host: str, model: str, memory_mb: int) -> None:
    with database.write() as session:
        infos = [GpuInfo(f"{host}0", 0, model, memory_mb, 8308)]
        gpus.register(session, host, f"192.0.2.{ord(host)}", infos)


HOUR = datetime.timedelta(hours=1)


def test_usage_is_of_the_gpus_that_a_lease_had_each_for_its_time(database, claims):
    """A share of 1000 of 8000 MiB, and then of 2000 of another model."""
    request = Request(1, "shared", 1000)
    lease = launch(database, claims, request)
    add_gpu(database, "b", "other", 2000)
    now = database.now()
    database.change(
        lambda connection: leases.update(connection, lease.id, claimed_at=now - 10 * HOUR)
    )
    claims.move(lease.id, Target(), Kind.IDLE)
    claims.switch(lease.id)
    moved = read(database, lease)
    assert moved.claimed_gpus == 0.5
    (model,) = {gpu.model for gpu in claims.gpus() if gpu.uuid == "a0"}

    def hours(first: float, last: float) -> dict[str, float]:
        period = (moved.usage_changed_at + hour * HOUR for hour in (first, last))
        with database.reading() as connection:
            (found,) = usage.by_project(
                connection, *period, moved.usage_changed_at + 100 * HOUR, by_model=True
            )
        assert found.gpu_hours == pytest.approx(sum(found.hours_by_model.values()))
        return {name: round(used, 3) for name, used in found.hours_by_model.items() if used > 1e-6}

    assert hours(-4, -2) == {model: 0.25}
    assert hours(2, 4) == {"other": 1.0}
    assert hours(-2, 4) == {model: 0.25, "other": 2.0}
    end(database, claims, lease)
    claims.move(lease.id, Target(), Kind.IDLE)
    claims.switch(lease.id)
    assert read(database, lease).claimed_gpus == 0.125
    assert [stint["gpus"] for stint in read(database, lease).past_usage] == [0.125, 0.5]


def test_a_move_that_changes_no_model_and_no_part_changes_no_usage(database, claims):
    lease = launch(database, claims)
    report(database, "b", 8000)
    before = read(database, lease)
    claims.move(lease.id, Target(host="b"), Kind.IDLE)
    claims.switch(lease.id)
    after = read(database, lease)
    assert (after.past_usage, after.claimed_gpus) == (None, before.claimed_gpus)


def test_a_share_goes_to_another_model_only_where_its_own_has_no_room(database, claims):
    lease = launch(database, claims)
    add_gpu(database, "b", "other", 80000)
    report(database, "c", 8000)
    assert claims.move(lease.id, Target(), Kind.IDLE).others[0].gpu_uuid == "c0"
    end(database, claims, lease)
    with database.write() as session:
        hosts.set_disabled(session, "c", True)
    assert claims.move(lease.id, Target(), Kind.IDLE).others[0].gpu_uuid == "b0"


def test_only_cgpus_on_gpus_that_are_to_be_left_move(database, claims):
    lease = launch(database, claims)
    report(database, "b", 8000)
    report(database, "c", 8000)
    claims.move(lease.id, Target(index=1, host="b"), Kind.IDLE)
    claims.switch(lease.id)
    end(database, claims, lease)
    leaving = Target(leaving=frozenset({"a0"}))
    moving = claims.move(lease.id, leaving, Kind.IDLE)
    assert [claim.position for claim in moving.others] == [0]
    assert claims.move(lease.id, leaving, Kind.IDLE) == moving
    claims.switch(lease.id)
    end(database, claims, lease)
    with pytest.raises(exceptions.LeaseNotMovable, match="it is there already"):
        claims.move(lease.id, leaving, Kind.IDLE)
