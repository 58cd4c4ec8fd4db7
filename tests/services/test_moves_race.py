# SPDX-License-Identifier: Apache-2.0
"""Moves on real database servers, at once with others of the same lease, with claims and with releases."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

from gsaas import exceptions
from gsaas.db import gpus, hosts, leases, migration, recount
from gsaas.db.database import Database
from gsaas.engine.drains import Drains
from gsaas.gpgpums.claims import Claims
from gsaas.gpgpums.move_changes import Target
from gsaas.objects.lease import Lease
from gsaas.objects.lifecycle import Event, Status
from gsaas.objects.move import Kind, Stage
from gsaas.objects.ports import PortRange
from gsaas.objects.request import Request
from tests.support.scheduling import database_of, open_claims

pytestmark = pytest.mark.services

CLIENTS = 4
TURNS = 12
SHARE = Request(1, "shared", 1000)
PORTS = PortRange(20000, 20015)
HOSTS = ("a", "b", "c")
LOST = (exceptions.LeaseNotMovable, exceptions.ClaimConflict, exceptions.NoCapacity)
serial = itertools.count(1)


@pytest.fixture(params=["sqlite", "mariadb", "postgresql"])
def cloud(request: pytest.FixtureRequest) -> Iterator[Callable[[], Claims]]:
    """Makes clients, each with a connection pool and a copy of the GPUs of its own; three hosts have one GPU each."""
    server = request.getfixturevalue(f"{request.param}_server")
    name = server.unused_name()
    server.create(name)
    url = server.url(name)
    migration.upgrade(url)
    opened: list[Database] = []

    def client() -> Claims:
        opened.append(Database.open(url))
        return open_claims(opened[-1], attempts=50, daemon_ports={"simulated": PORTS})

    client()
    with opened[0].write() as session:
        for number, host in enumerate(HOSTS):
            infos = [gpus.GpuInfo(f"GPU-{host}", 0, "model", 8000, 8308)]
            gpus.register(session, host, f"192.0.2.{number + 1}", infos)
    yield client
    for database in opened:
        database.close()
    server.drop(name)


def launch(claims: Claims) -> str:
    """Return a lease that is ACTIVE."""
    lease = Lease(
        status=Status.QUEUED,
        id=f"lease-{next(serial)}",
        project_id="p",
        user_id="u",
        name="n",
        remoting="simulated",
        **SHARE.to_dict(),
    )
    lease_id = claims.claim(lease, SHARE).id

    def boot(connection) -> None:
        leases.transition(connection, lease_id, Event.BOOT, server_id=lease_id, server_host="v")
        leases.transition(connection, lease_id, Event.ACTIVATE)

    database_of(claims).change(boot)
    return lease_id


def stop_using(claims: Claims, lease_id: str) -> None:
    """Do what the engine does when nothing leads to the other claims of a lease, and their daemons are gone."""

    def write(connection) -> None:
        lease = leases.lock(connection, lease_id)
        if lease.status == Status.ACTIVE and lease.moving is not None:
            leases.write(connection, lease.with_(moving=Stage.ENDING), "moving")

    database_of(claims).change(write)
    claims.end_move(lease_id)


def release(claims: Claims, lease_id: str) -> None:
    with suppress(exceptions.IllegalTransition):
        claims.terminate(lease_id)
    claims.release(lease_id)


def check(claims: Claims) -> list[Lease]:
    """Check the books; return the leases that have claims."""
    with database_of(claims).reading() as connection:
        assert recount.miscounted(connection) == []
        found = [one for one in leases.page(connection, limit=1000) if one.all_claims]
    daemons = [
        (claim.daemon_host, claim.daemon_port) for lease in found for claim in lease.all_claims
    ]
    assert len(daemons) == len(set(daemons))
    for lease in found:
        assert len(lease.claims) == 1
        assert bool(lease.others) == (lease.moving is not None)
        for claim in lease.all_claims:
            assert claim.daemon_host == claim.gpu.host_name
    return found


def at_once(*calls: Callable[[], object]) -> list[Exception | None]:
    """Make all calls at once; return what each of them raised."""

    def outcome(call: Callable[[], object]) -> Exception | None:
        try:
            call()
        except LOST as error:
            return error
        return None

    with ThreadPoolExecutor(len(calls)) as threads:
        return list(threads.map(outcome, calls))


def race_moves(first: Claims, second: Claims) -> None:
    lease_id = launch(first)
    (lease,) = check(first)
    one, other = (host for host in HOSTS if host != lease.claims[0].gpu.host_name)
    errors = at_once(
        lambda: first.move(lease_id, Target(host=one), Kind.IDLE),
        lambda: second.move(lease_id, Target(host=other), Kind.IDLE),
    )
    assert {type(error) for error in errors} == {type(None), exceptions.LeaseNotMovable}
    (lease,) = check(second)
    assert lease.others[0].gpu.host_name == (one, other)[errors.index(None)]
    release(first, lease_id)
    assert check(second) == []


def race_with_release(first: Claims, second: Claims) -> None:
    lease_id = launch(first)
    at_once(
        lambda: first.move(lease_id, Target(), Kind.IDLE),
        lambda: release(second, lease_id),
    )
    assert check(first) == []


@pytest.mark.parametrize("race", [race_moves, race_with_release])
def test_of_two_changes_of_a_lease_at_once_the_books_have_one_after_the_other(cloud, race):
    first, second = cloud(), cloud()
    for _ in range(TURNS):
        race(first, second)


def act(claims: Claims, known: list[str], chance: random.Random) -> None:
    """Do one thing with one of the *known* leases, or launch another one."""
    lease_id, host = chance.choice(known), chance.choice((None, *HOSTS))
    acts: tuple[Callable[[], object], ...] = (
        lambda: claims.move(lease_id, Target(host=host), chance.choice([*Kind])),
        lambda: claims.switch(lease_id),
        lambda: stop_using(claims, lease_id),
        lambda: known.append(launch(claims)),
        lambda: release(claims, lease_id),
    )
    with suppress(*LOST):
        chance.choices(acts, (6, 4, 4, 1, 1))[0]()


def test_the_books_are_right_whatever_many_do_at_once(cloud):
    clients = [cloud() for _ in range(CLIENTS)]
    known = [launch(clients[0]) for _ in range(6)]

    def work(number: int) -> None:
        chance = random.Random(number)  # noqa: S311 - it chooses what a test does
        for _ in range(TURNS):
            act(clients[number], known, chance)

    with ThreadPoolExecutor(CLIENTS) as threads:
        list(threads.map(work, range(CLIENTS)))
    check(clients[0])
    for lease_id in known:
        release(clients[1], lease_id)
    assert check(clients[0]) == []
    assert {gpu.used_mb for gpu in clients[0].gpus()} == {0}


def test_engines_that_drain_a_host_at_once_move_each_lease_once(cloud):
    first, second = cloud(), cloud()
    known = [launch(first) for _ in range(9)]
    with database_of(first).write() as session:
        hosts.set_disabled(session, "a", True, None, hosts.Draining())
    with database_of(first).reading() as connection:
        there = {one.id for one in leases.on_gpus_of(connection, "a")}
    assert there
    engines = [Drains(database_of(claims), claims) for claims in (first, second)]
    while there:
        at_once(*(engine.audit for engine in engines))
        for lease_id in known:
            first.switch(lease_id)
            stop_using(second, lease_id)
        with database_of(first).reading() as connection:
            there = {one.id for one in leases.on_gpus_of(connection, "a")}
    check(first)
    with database_of(first).reading() as connection:
        for lease_id in known:
            began = [each.event for each in leases.events(connection, lease_id)].count("move")
            assert began <= 1
    for engine in engines:
        assert engine.audit() == []
