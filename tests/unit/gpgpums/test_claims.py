# SPDX-License-Identifier: Apache-2.0
"""Claims in a database: what is written, what is returned, and what is refused."""

from __future__ import annotations

import datetime
import itertools
from collections.abc import Callable, Iterator

import pytest
import sqlalchemy
from oslo_db import exception as db_exception
from sqlalchemy import event, select

from gsaas import exceptions
from gsaas.db import endpoints, gpus, hosts, leases, models
from gsaas.db.database import Database
from gsaas.gpgpums.changes import WaitPolicy
from gsaas.gpgpums.claims import Claims
from gsaas.limits import base as limits
from gsaas.objects.lease import Lease
from gsaas.objects.lifecycle import Status
from gsaas.objects.placement import Placement, Refusal, Share
from gsaas.objects.ports import PortRange
from gsaas.objects.request import Request
from tests.support import scheduling

WHOLE = Request(1)
PART = Request(1, "shared", 1000)

serial = itertools.count(1)


def report(database: Database, host: str, *memory_mb: int) -> None:
    """The monitor of *host* reports GPUs of these sizes."""
    infos = [
        gpus.GpuInfo(f"{host}{index}", index, "model", size, 8308)
        for index, size in enumerate(memory_mb)
    ]
    with database.write() as session:
        gpus.register(session, host, "192.0.2.1", infos)


def open_claims(database: Database, attempts: int = 3) -> Claims:
    return scheduling.open_claims(database, attempts=attempts, heartbeat_timeout=35)


def new_lease(request: Request) -> Lease:
    return Lease(
        status=Status.QUEUED,
        id=f"lease-{next(serial)}",
        project_id="project-1",
        user_id="user-1",
        name="training",
        remoting="rcuda",
        **request.to_dict(),
    )


def used(database: Database) -> dict[str, tuple[int, str | None]]:
    with database.read() as session:
        return {
            gpu.uuid: (gpu.used_mb, gpu.exclusive_lease_id)
            for gpu in session.scalars(select(models.GpuRow).where(models.GpuRow.used_mb > 0))
        }


def everything(database: Database) -> list[tuple]:
    """Every row of every table."""
    with database.read() as session:
        tables = models.Base.metadata.sorted_tables
        return [tuple(row) for table in tables for row in session.execute(select(table))]


@pytest.fixture
def cloud(database: Database) -> Database:
    """Host a with two GPUs, host b with one larger; b is a compute host too, c is nothing else."""
    report(database, "a", 4000, 4000)
    report(database, "b", 8000)
    with database.write() as session:
        endpoints.register(session, "b", {})
        endpoints.register(session, "c", {})
    return database


@pytest.fixture
def claims(cloud: Database) -> Claims:
    return open_claims(cloud)


# What is written


def test_a_lease_is_stored_with_its_claims_and_its_story(cloud, claims):
    request = Request(3, "shared", 3000)

    claims.claim(new_lease(request), request, "first-fit")

    with cloud.read() as session:
        lease = session.scalars(select(models.LeaseRow)).one()
        assert (lease.status, lease.policy, lease.count) == ("CLAIMED", "first-fit", 3)
        assert [
            (claim.position, claim.gpu_uuid, claim.memory_mb, claim.masked_ip, claim.masked_port)
            for claim in lease.claims
        ] == [
            (0, "a0", 3000, "169.254.71.1", 8308),
            (1, "a1", 3000, "169.254.71.2", 8308),
            (2, "b0", 3000, "169.254.71.3", 8308),
        ]
        story = session.scalars(select(models.LeaseEventRow)).one()
        assert (story.event, story.status) == ("claim", "CLAIMED")
    assert used(cloud) == {"a0": (3000, None), "a1": (3000, None), "b0": (3000, None)}


def test_an_exclusive_lease_holds_whole_gpus_in_its_name(cloud, claims):
    request = Request(2)

    lease = claims.claim(new_lease(request), request)

    assert used(cloud) == {"b0": (8000, lease.id), "a0": (4000, lease.id)}


def test_local_pins_the_host_and_remote_names_those_to_avoid(claims):
    local, remote = Request(1, locality="local"), Request(2, locality="remote")

    pinned = claims.claim(new_lease(local), local)
    kept_off = claims.claim(new_lease(remote), remote)

    assert (pinned.wanted_host, pinned.avoided_hosts) == ("b", [])
    assert (kept_off.wanted_host, kept_off.avoided_hosts) == (None, ["a"])


def test_checking_claims_nothing(cloud, claims):
    before = everything(cloud)

    assert claims.check(PART) == Placement((Share("b0", 1000),))
    assert isinstance(claims.check(Request(9)), Refusal)
    assert everything(cloud) == before


# What is given back


@pytest.mark.parametrize(
    "request_", [Request(3, "shared", 3000), Request(3)], ids=["shared", "exclusive"]
)
def test_a_released_lease_returns_exactly_what_it_took(cloud, claims, request_):
    other = claims.claim(new_lease(Request(1, "shared", 1)), Request(1, "shared", 1), "first-fit")
    claims.release(other.id)
    before = used(cloud)

    lease = claims.claim(new_lease(request_), request_)
    claims.release(lease.id)

    assert used(cloud) == before
    with cloud.read() as session:
        assert session.scalars(select(models.ClaimRow)).all() == []
        assert session.get(models.LeaseRow, lease.id).released_at is not None


def test_releasing_twice_or_what_never_was_changes_nothing(cloud, claims):
    gone = claims.claim(new_lease(PART), PART)
    claims.claim(new_lease(PART), PART)
    claims.release(gone.id)
    before = everything(cloud)

    claims.release(gone.id)
    claims.release("no such lease")

    assert everything(cloud) == before


# Who is refused


def test_a_request_that_has_to_wait_is_told_why_and_what_would_fit(cloud, claims):
    claims.claim(new_lease(Request(2)), Request(2))
    before = everything(cloud)

    with pytest.raises(exceptions.NoCapacity, match="2 of 3 GPUs are held exclusively") as refused:
        claims.claim(new_lease(Request(2)), Request(2))

    assert refused.value.facts["details"] == {
        "impossible": False,
        "reason": str(refused.value),
        "filters": [{"filter": "exclusive", "gpus": 2}],
        "nearest": {
            "count": 1,
            "mode": "exclusive",
            "memory_mb": None,
            "locality": "any",
            "kind": "cuda",
        },
        "relaxed": None,
    }
    assert everything(cloud) == before


def test_a_request_beyond_the_cloud_never_fits(claims):
    with pytest.raises(exceptions.NeverFits) as refused:
        claims.claim(new_lease(Request(4)), Request(4))

    assert refused.value.facts["details"]["impossible"] is True


def test_an_empty_cloud_says_so(database):
    with pytest.raises(exceptions.NeverFits, match="no GPU host has reported any GPU yet"):
        open_claims(database).claim(new_lease(WHOLE), WHOLE)


def test_more_cgpus_than_masked_addresses_cannot_be_told_to_a_vm(claims):
    request = Request(255, "shared", 1)

    with pytest.raises(exceptions.BadRequest, match="a VM can have 254"):
        claims.claim(new_lease(request), request)


def test_an_unknown_policy_is_no_reason_to_claim(cloud, claims):
    before = everything(cloud)

    with pytest.raises(exceptions.UnknownPolicy):
        claims.claim(new_lease(PART), PART, "best-guess")

    assert everything(cloud) == before


# What others change


def disable_gpu(session):
    gpus.set_disabled(session, "b0", True, "smells")


def disable_host(session):
    hosts.set_disabled(session, "b", True, "burns")


def silence_host(session):
    session.get(models.HostRow, "b").monitor_seen_at -= datetime.timedelta(seconds=36)


@pytest.mark.parametrize("withhold", [disable_gpu, disable_host, silence_host])
def test_what_is_withheld_is_noticed_and_so_is_its_return(cloud, claims, withhold):
    assert claims.check(WHOLE) == Placement((Share("b0", 8000),))

    with cloud.write() as session:
        withhold(session)
    assert claims.check(WHOLE) == Placement((Share("a0", 4000),))

    with cloud.write() as session:
        gpus.set_disabled(session, "b0", False)
        hosts.set_disabled(session, "b", False)
    report(cloud, "b", 8000)
    assert claims.check(WHOLE) == Placement((Share("b0", 8000),))


def test_gpus_that_come_grow_and_go_are_noticed(cloud, claims):
    assert claims.check(WHOLE) == Placement((Share("b0", 8000),))

    report(cloud, "a", 9000, 4000)
    assert claims.check(WHOLE) == Placement((Share("a0", 9000),))

    report(cloud, "d", 10000)
    assert claims.check(WHOLE) == Placement((Share("d0", 10000),))

    report(cloud, "d")
    report(cloud, "a")
    assert claims.check(WHOLE) == Placement((Share("b0", 8000),))


def test_compute_hosts_that_come_and_go_are_noticed(cloud, claims):
    local = Request(2, locality="local")
    assert claims.check(local).impossible

    with cloud.write() as session:
        endpoints.register(session, "a", {})
    assert claims.check(local).host == "a"

    with cloud.write() as session:
        session.delete(session.get(models.EndpointRow, "a"))
        endpoints.register(session, "d", {})
    assert claims.check(local).impossible


def test_a_compute_host_that_left_while_another_came_is_not_given(cloud, claims):
    """The number of compute hosts is the same as before, so only the claim itself can notice."""
    assert claims.check(Request(1, locality="local")).host == "b"
    with cloud.write() as session:
        session.delete(session.get(models.EndpointRow, "b"))
        endpoints.register(session, "a", {})

    lease = claims.claim(new_lease(WHOLE), Request(1, locality="local"))

    assert lease.wanted_host == "a"


def test_a_worker_returns_what_it_knows_only_as_it_was(cloud, claims):
    mine = claims.claim(new_lease(PART), PART, "best-fit")
    open_claims(cloud).claim(
        new_lease(PART), PART, "best-fit"
    )  # of the same GPU, unseen by the other worker
    claims.release(mine.id)
    assert [used_mb for used_mb, _ in used(cloud).values()] == [1000]
    answers = [worker.check(Request(8)) for worker in (claims, open_claims(cloud))]
    assert answers[0] == answers[1]


@pytest.mark.parametrize("request_", [WHOLE, PART, Request(2)])
def test_a_worker_need_not_read_what_it_returned_itself(cloud, claims, request_):
    lease = claims.claim(new_lease(request_), request_)
    claims.release(lease.id)
    read = []
    event.listen(
        cloud.engine,
        "before_cursor_execute",
        lambda *call: read.append(call[2:4]) if "gpus.used_mb" in call[2] else None,
    )
    claims.check(request_)
    with cloud.reading() as connection:
        [row] = connection.exec_driver_sql(*read.pop(0)).mappings()
    assert row["used_mb"] is None
    assert len(read) == 1  # what this test has read
    assert claims.check(request_) == open_claims(cloud).check(request_)


# Races that a test can lose on purpose; tests/services has those with real rivals


@pytest.fixture
def deadlock(cloud) -> Iterator[Callable[..., None]]:
    """`deadlock("INSERT", times=2)`: the next two statements that begin so lose a deadlock."""
    doomed = []

    @event.listens_for(cloud.engine, "before_cursor_execute")
    def lose(_connection, _cursor, statement, *_):
        if doomed and statement.startswith(doomed[0]):
            doomed.pop()
            raise db_exception.DBDeadlock

    yield lambda beginning, times=1: doomed.extend([beginning] * times)
    event.remove(cloud.engine, "before_cursor_execute", lose)


@pytest.mark.parametrize(
    "statement", ["UPDATE gpus", "INSERT INTO leases", "INSERT INTO lease_events"]
)
def test_a_claim_that_loses_a_deadlock_is_tried_again(cloud, claims, deadlock, statement):
    request = Request(3, "shared", 3000)
    deadlock(statement)

    lease = claims.claim(new_lease(request), request)

    with cloud.read() as session:
        assert len(session.scalars(select(models.ClaimRow)).all()) == 3
        assert len(session.scalars(select(models.LeaseEventRow)).all()) == 1
    claims.release(lease.id)
    assert used(cloud) == {}


@pytest.mark.parametrize("statement", ["UPDATE gpus", "DELETE FROM claims", "UPDATE leases"])
def test_a_release_that_loses_a_deadlock_is_tried_again(cloud, claims, deadlock, statement):
    lease = claims.claim(new_lease(WHOLE), WHOLE)
    deadlock(statement)

    claims.release(lease.id)

    assert used(cloud) == {}


def test_who_loses_every_time_gives_up_and_leaves_nothing(cloud, claims, deadlock):
    before = everything(cloud)
    deadlock("UPDATE gpus", times=3)

    with pytest.raises(exceptions.ClaimConflict, match="3 times in a row"):
        claims.claim(new_lease(PART), PART)

    assert everything(cloud) == before


def test_a_lease_that_is_stored_already_is_an_error_and_no_race(cloud, claims):
    lease = claims.claim(new_lease(PART), PART)
    twin = new_lease(PART).with_(id=lease.id)
    before = everything(cloud)

    with pytest.raises(db_exception.DBDuplicateEntry):
        claims.claim(twin, PART)

    assert everything(cloud) == before


def with_ports(database: Database, ports: str = "20000-20003", attempts: int = 3) -> Claims:
    return scheduling.open_claims(
        database,
        attempts=attempts,
        heartbeat_timeout=35,
        daemon_ports={"rcuda": PortRange.parse(ports)},
    )


def daemons_of(lease: models.LeaseRow) -> list[tuple[str | None, int | None]]:
    return [(claim.daemon_host, claim.daemon_port) for claim in lease.claims]


def test_each_cgpu_gets_a_port_of_its_own_on_the_host_of_its_gpu(database):
    report(database, "gpu1", 8192)
    report(database, "gpu2", 8192)
    claims = with_ports(database)
    leases = [claims.claim(new_lease(ask), ask) for ask in [Request(4, "shared", 1000)] * 2]
    placed = [place for lease in leases for place in daemons_of(lease)]
    assert len(set(placed)) == 8
    assert {port for _, port in placed} == set(range(20000, 20004))
    for lease in leases:
        for claim in lease.claims:
            assert claim.gpu_uuid.startswith(claim.daemon_host)


def test_cgpus_get_ports_with_room_for_all_that_a_daemon_has(database):
    report(database, "gpu1", 8192)
    claims = scheduling.open_claims(
        database,
        attempts=3,
        heartbeat_timeout=35,
        daemon_ports={"rcuda": PortRange(20000, 20005, 3)},
    )
    ask = Request(2, "shared", 1000)
    lease = claims.claim(new_lease(ask), ask)
    assert sorted(daemons_of(lease)) == [("gpu1", 20000), ("gpu1", 20003)]
    with pytest.raises(exceptions.NoDaemonPort, match="each of its ports 20000-20005"):
        claims.claim(new_lease(PART), PART)


def test_cgpus_that_one_daemon_serves_have_one_port_and_numbers_on_it(database):
    report(database, "gpu1", 8192, 8192)
    claims = with_ports(database, "20000-20000")
    ask = Request(2, "shared", 1000, one_daemon=True)
    new = new_lease(ask).with_(requirements=ask.stored_requirements())
    lease = claims.claim(new, ask)
    assert daemons_of(lease) == [("gpu1", 20000)] * 2
    assert [claim.daemon_device for claim in lease.claims] == [0, 1]
    assert {claim.daemon_key for claim in lease.claims} == {f"{lease.id}-0"}
    with pytest.raises(exceptions.NoDaemonPort):
        claims.claim(new_lease(PART), PART)


def test_the_database_gives_no_port_to_two_daemons(database):
    report(database, "gpu1", 8192, 8192)
    claims = with_ports(database)
    lease, other = (claims.claim(new_lease(PART), PART) for _ in range(2))
    (ours,) = lease.claims
    move = sqlalchemy.update(models.ClaimRow).where(models.ClaimRow.lease_id == other.id)
    with pytest.raises(db_exception.DBDuplicateEntry), database.write() as session:
        session.execute(move.values(daemon_host="gpu1", daemon_port=ours.daemon_port))


def test_a_lease_that_waited_is_served_by_one_daemon_too(database):
    report(database, "gpu1", 8192)
    report(database, "gpu2", 8192)
    claims = with_ports(database)
    ask = Request(2, "shared", 1000, one_daemon=True)
    new = new_lease(ask).with_(requirements=ask.stored_requirements())
    claims.queue.join(new, ask, None, limits.NO_LIMITS, WaitPolicy())
    report(database, "gpu3", 8192, 8192)
    claims.queue.advance()
    with database.reading() as connection:
        lease = leases.get(connection, new.id)
    assert sorted(claim.gpu_uuid for claim in lease.claims) == ["gpu30", "gpu31"]
    assert [claim.daemon_device for claim in lease.claims] == [0, 1]


def test_a_host_without_free_ports_is_refused_and_nothing_is_claimed(database):
    report(database, "gpu1", 8192)
    claims = with_ports(database, "20000-20001")
    first = Request(2, "shared", 1000)
    claimed = claims.claim(new_lease(first), first)
    with pytest.raises(exceptions.NoDaemonPort):
        claims.claim(new_lease(PART), PART)
    assert used(database) == {"gpu10": (2000, None)}
    claims.release(claimed.id)
    assert daemons_of(claims.claim(new_lease(first), first)) != [(None, None)] * 2


def test_a_middleware_whose_gpus_have_daemons_gets_no_ports(database):
    report(database, "gpu1", 8192)
    lease = open_claims(database).claim(new_lease(WHOLE), WHOLE)
    assert daemons_of(lease) == [(None, None)]


def test_the_port_of_a_gpus_own_daemon_is_never_given_to_a_lease(database):
    infos = [gpus.GpuInfo("gpu10", 0, "model", 8192, 20000)]
    with database.write() as session:
        gpus.register(session, "gpu1", "192.0.2.1", infos)
    lease = with_ports(database, "20000-20001").claim(new_lease(PART), PART)
    assert daemons_of(lease) == [("gpu1", 20001)]


def test_an_attempt_that_was_lost_leaves_no_trace_in_what_is_asked_next(cloud, deadlock):
    with cloud.read() as session:
        host = session.scalars(select(models.GpuRow.host_name)).first()
    claims = scheduling.open_claims(cloud, attempts=2, heartbeat_timeout=35, native=True)
    request = Request.from_dict(WHOLE.to_dict(), host)
    lease = new_lease(request).with_(has_server=False, consumer_host=host)
    deadlock("INSERT INTO leases", times=2)

    with pytest.raises(exceptions.ClaimConflict):
        claims.claim(lease, request)

    gpu = claims.claim(new_lease(WHOLE), WHOLE).claims[0].gpu_uuid
    claimed = claims.claim(lease, request)  # the same value, once more
    assert (claimed.remoting, claimed.access, len(claimed.claims)) == ("native", "native", 1)
    assert claimed.claims[0].gpu_uuid != gpu
