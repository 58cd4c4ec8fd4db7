# SPDX-License-Identifier: Apache-2.0
"""Leases of servers that their owners have made: found, wired and given back, and the servers left alone."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from gsaas import exceptions, rpc
from gsaas.cloud.base import Port, Server, ServerChange, ServerStatus
from gsaas.db import leases
from gsaas.db.stored_leases import StoredLeases
from gsaas.engine.service import Engine
from gsaas.gpgpums.changes import WaitPolicy
from gsaas.gpgpums.plain_servers import PlainServers
from gsaas.limits.configured import NoLimits
from gsaas.objects.lifecycle import Status
from gsaas.remoting.drivers import Drivers
from tests.support.waiting import until
from tests.unit.engine.world import HOST, SHARE, World


@pytest.fixture
def make_plain(world) -> Callable[..., PlainServers]:
    """Makes what gives plain servers their leases."""

    def make_plain(
        wait: WaitPolicy | None = None, allowed: bool = True, min_share_mb: int = 1
    ) -> PlainServers:
        return PlainServers(
            world.database,
            world.claims,
            world.cloud,
            Drivers(world.conf),
            quotas=NoLimits(),
            stored=StoredLeases(world.database, -1),
            may_launch=lambda owner: allowed and "member" in owner.roles,
            from_metadata=True,
            wait=wait,
            min_share_mb=min_share_mb,
        )

    return make_plain


def boot(world: World, status: ServerStatus = ServerStatus.ACTIVE) -> str:
    """Have a tenant make a server with Nova, and return its id."""
    server_id, port_id = str(uuid.uuid4()), str(uuid.uuid4())
    port = Port(port_id, f"tap{port_id[:11]}", "fa:16:3e:00:00:05", "10.0.0.5")
    world.cloud.plain[server_id] = Server(server_id, status, HOST, port)
    return server_id


def become(world: World, server_id: str, **changes: Any) -> None:
    world.cloud.plain[server_id] = replace(world.cloud.plain[server_id], **changes)


def lease_of(world: World, server_id: str) -> Any:
    with world.database.reading() as connection:
        return leases.of_server(connection, server_id)


def failed(world: World, make_plain: Callable[..., PlainServers]) -> tuple[str, str]:
    """Return the id of a server that failed, and of its lease, which is in ERROR."""
    server_id = boot(world, ServerStatus.BUILD)
    lease = make_plain().equip(server_id)
    become(world, server_id, status=ServerStatus.ERROR, fault="No valid host was found.")
    world.reconcile(lease.id)
    assert world.lease(lease.id).status == Status.ERROR
    return server_id, lease.id


def test_a_plain_server_is_wired_and_followed_like_one_of_ours(world, make_plain):
    server_id = boot(world)
    lease = make_plain().equip(server_id)
    assert world.reconcile(lease.id) is None
    found = world.lease(lease.id)
    assert (found.status, found.server_id, found.bound_host) == (Status.ACTIVE, server_id, HOST)
    assert world.events(lease.id) == ["claim", "boot", "activate"]
    become(world, server_id, status=ServerStatus.BUILD)
    assert world.reconcile(lease.id) is None
    assert world.lease(lease.id).status == Status.ACTIVE


def test_its_cgpus_are_given_back_when_its_owner_deletes_it(world, make_plain):
    server_id = boot(world)
    lease = make_plain().equip(server_id)
    world.reconcile(lease.id)
    del world.cloud.plain[server_id]
    world.reconcile(lease.id)
    world.check_nothing_is_left(lease.id, Status.RELEASED)
    assert world.cloud.deleted == []


@pytest.mark.parametrize("moment", [Status.CLAIMED, Status.BOOTING, Status.ACTIVE])
def test_a_lease_that_ends_leaves_the_server_to_its_owner(world, make_plain, moment):
    server_id = boot(world)
    if moment is Status.BOOTING:
        become(world, server_id, status=ServerStatus.BUILD)
    lease = make_plain().equip(server_id)
    if moment is not Status.CLAIMED:
        world.reconcile(lease.id)
    assert world.lease(lease.id).status == moment
    world.release(lease.id)
    world.reconcile(lease.id)
    world.check_nothing_is_left(lease.id, Status.RELEASED)
    assert world.cloud.deleted == []
    assert make_plain().equip(server_id).status == Status.RELEASED


def test_a_server_that_fails_to_boot_gives_its_cgpus_back_and_stays(world, make_plain):
    server_id = boot(world, ServerStatus.BUILD)
    lease = make_plain().equip(server_id)
    world.reconcile(lease.id)
    become(world, server_id, status=ServerStatus.ERROR, fault="No valid host was found.")
    world.reconcile(lease.id)
    found = world.lease(lease.id)
    assert (found.status, found.server_id, found.claims) == (Status.ERROR, None, ())
    assert "No valid host" in found.fault_message
    assert world.cloud.deleted == []


def test_a_lease_that_failed_ends_by_itself_when_its_server_is_deleted(world, make_plain):
    server_id, lease_id = failed(world, make_plain)
    assert world.reconcile(lease_id) is None
    assert world.lease(lease_id).status == Status.ERROR
    del world.cloud.plain[server_id]
    world.cloud.is_down = True
    assert world.reconcile(lease_id) is not None  # it asks again
    world.cloud.is_down = False
    world.reconcile(lease_id)
    world.check_nothing_is_left(lease_id, Status.RELEASED)
    assert world.lease(lease_id).fault_message


def test_a_server_that_is_gone_before_its_first_step_holds_nothing(world, make_plain):
    server_id = boot(world)
    lease = make_plain().equip(server_id)
    del world.cloud.plain[server_id]
    world.reconcile(lease.id)
    world.check_nothing_is_left(lease.id, Status.RELEASED)


def test_a_shelved_server_gives_its_cgpus_back(world, make_plain):
    server_id = boot(world)
    lease = make_plain().equip(server_id)
    world.reconcile(lease.id)
    become(world, server_id, status=ServerStatus.SHELVED, host=None)
    world.reconcile(lease.id)
    world.check_nothing_is_left(lease.id, Status.RELEASED)
    assert world.cloud.deleted == []


def test_an_unshelved_server_gets_no_other_lease(world, make_plain):
    server_id = boot(world)
    lease = make_plain().equip(server_id)
    world.reconcile(lease.id)
    become(world, server_id, status=ServerStatus.SHELVED, host=None)
    world.reconcile(lease.id)
    become(world, server_id, status=ServerStatus.ACTIVE, host=HOST)
    assert make_plain().equip(server_id).id == lease.id
    assert world.reconcile(lease.id) is None
    world.check_nothing_is_left(lease.id, Status.RELEASED)
    assert server_id in world.cloud.plain


def full(world: World) -> list[str]:
    """Fill every GPU; return the leases."""
    return [world.alloc() for _ in range(4)]


def end(world: World, lease_id: str) -> None:
    world.claims.terminate(lease_id, if_=lambda _lease: True)
    world.reconcile(lease_id)


def test_a_server_that_waits_is_wired_when_it_is_served(world, make_plain):
    others = full(world)
    server_id = boot(world)
    lease = make_plain(WaitPolicy()).equip(server_id)
    assert lease.status == Status.QUEUED
    assert world.reconcile(lease.id) is None
    assert world.lease(lease.id).status == Status.QUEUED
    end(world, others[0])
    world.reconcile(lease.id)
    assert world.lease(lease.id).status == Status.ACTIVE


@pytest.mark.parametrize(
    "changes", [None, {"status": ServerStatus.ERROR}, {"status": ServerStatus.SHELVED}]
)
def test_a_server_that_waits_and_is_gone_leaves_the_queue(world, make_plain, changes):
    full(world)
    server_id = boot(world)
    lease = make_plain(WaitPolicy()).equip(server_id)
    if changes is None:
        del world.cloud.plain[server_id]
    else:
        become(world, server_id, **changes)
    world.reconcile(lease.id)
    found = world.lease(lease.id)
    assert found.status == Status.RELEASED
    assert found.fault_message
    assert world.cloud.deleted == []


def test_while_the_cloud_is_silent_a_server_keeps_its_place_in_the_queue(world, make_plain):
    full(world)
    lease = make_plain(WaitPolicy()).equip(boot(world))
    world.cloud.is_down = True
    world.reconcile(lease.id)
    assert world.lease(lease.id).status == Status.QUEUED


def test_a_plain_server_gets_no_share_below_the_operators_least(world, make_plain):
    server_id = boot(world)
    asked = int(SHARE["gsaas:poolmem"])
    with pytest.raises(exceptions.BadRequest, match="less than the smallest share of this cloud"):
        make_plain(min_share_mb=asked + 1).equip(server_id)
    assert make_plain(min_share_mb=asked).equip(server_id).memory_mb == asked


def test_without_known_roles_no_more_than_those_of_a_member_are_assumed(world, make_plain):
    server_id = boot(world)
    assert make_plain(allowed=False).equip(server_id) is None
    assert lease_of(world, server_id) is None
    assert make_plain().equip(server_id).status == Status.CLAIMED


@pytest.mark.slow
def test_an_engine_that_is_killed_at_any_point_leaves_a_lease_that_another_one_completes(
    make_world,
):
    for effects in range(1, 40):
        world = make_world()
        server_id = boot(world)
        plain = PlainServers(
            world.database,
            world.claims,
            world.cloud,
            Drivers(world.conf),
            quotas=NoLimits(),
            stored=StoredLeases(world.database, -1),
            may_launch=lambda _owner: True,
            from_metadata=True,
            wait=None,
        )
        lease = plain.equip(server_id)
        killed = world.drive_until_killed(lease.id, effects)
        world.reconcile(lease.id)
        assert world.lease(lease.id).status == Status.ACTIVE
        if not killed:
            return
    raise AssertionError("a launch has more effects than this test knows")


@contextmanager
def engine(world: World, plain: PlainServers | None) -> Iterator[Engine]:
    world.conf.set_override("audit_interval", 0.1, "engine")
    bus = rpc.connect(world.conf, rpc.IN_PROCESS)
    running = Engine(
        world.conf,
        database=world.database,
        bus=bus,
        reconciler=world.engine(),
        claims=world.claims,
        plain_servers=plain,
    )
    running.start()
    try:
        yield running
    finally:
        running.stop()
        bus.cleanup()


def test_a_notification_has_the_server_equipped_and_its_lease_driven(world, make_plain):
    server_id = boot(world)
    with engine(world, make_plain()) as running:
        running._notified([ServerChange(server_id, asks=True)])
        until(lambda: lease_of(world, server_id).status == Status.ACTIVE)


def test_the_lease_of_a_failed_server_ends_at_the_notification_of_its_deletion(world, make_plain):
    server_id, lease_id = failed(world, make_plain)
    with engine(world, make_plain()) as running:
        running._notified([ServerChange(server_id, asks=True)])
        del world.cloud.plain[server_id]
        running._notified([ServerChange(server_id, asks=True)])
        until(lambda: world.lease(lease_id).status == Status.RELEASED)


def test_the_lease_of_a_failed_server_that_was_deleted_without_an_engine_ends(world, make_plain):
    server_id, lease_id = failed(world, make_plain)
    del world.cloud.plain[server_id]
    world.cloud.server_changes = lambda _since: []
    with engine(world, make_plain()):
        until(lambda: world.lease(lease_id).status == Status.RELEASED)


def test_a_server_whose_notification_was_lost_is_found_by_looking(world, make_plain):
    server_id = boot(world)
    rounds: list[object] = []

    def server_changes(since: object) -> list[ServerChange]:
        rounds.append(since)
        world.cloud.is_down = len(rounds) == 1  # and does not answer when it is asked for more
        return [ServerChange(server_id, asks=True)] if since is None else []

    world.cloud.server_changes = server_changes
    with engine(world, make_plain()):
        until(lambda: (found := lease_of(world, server_id)) and found.status == Status.ACTIVE)
    assert rounds[:2] == [None, None]


@pytest.mark.parametrize(
    "change",
    [
        {"asks": False},
        {"asks": True, "lease_id": "of-another"},
    ],
)
def test_servers_that_ask_for_nothing_or_are_ours_are_not_looked_up(world, make_plain, change):
    asked: list[str] = []
    world.cloud.plain_server = lambda server_id: asked.append(server_id)
    with engine(world, make_plain()) as running:
        running._notified([ServerChange("s", **change)])
    with engine(world, None) as running:
        running._notified([ServerChange("s", asks=True)])
    assert asked == []


def test_a_server_about_which_something_goes_wrong_harms_no_other(world, make_plain):
    broken, fine = boot(world), boot(world)
    look_up = world.cloud.plain_server

    def plain_server(server_id: str) -> Any:
        if server_id == broken:
            raise RuntimeError("a defect")
        return look_up(server_id)

    world.cloud.plain_server = plain_server
    with engine(world, make_plain()) as running:
        running._notified([ServerChange(each, asks=True) for each in (broken, fine)])
    assert lease_of(world, broken) is None
    assert lease_of(world, fine) is not None


def test_a_refused_server_harms_no_other(world, make_plain):
    full(world)
    refused = boot(world)
    with engine(world, make_plain()) as running:
        running._notified([ServerChange(str(uuid.uuid4()), asks=True)])
        running._notified([ServerChange(refused, asks=True)])
    found = lease_of(world, refused)
    assert (found.status, found.fault_step) == (Status.RELEASED, "claim")
    with world.database.write() as session:
        past = leases.events(session.connection(), found.id)
    assert [event.event for event in past] == ["refuse"]
