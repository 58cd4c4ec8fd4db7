# SPDX-License-Identifier: Apache-2.0
"""An engine that starts reconciles the leases whose servers changed while no engine ran, and no others."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
from oslo_db import exception as db_exception
from oslo_utils import timeutils

from gsaas import rpc
from gsaas.cloud.base import Owner, ServerChange, ServerStatus
from gsaas.engine.reconciler import LeaseReconciler
from gsaas.engine.service import Engine
from gsaas.objects.lifecycle import Status
from tests.support.waiting import until
from tests.unit.engine.world import HOST


@contextmanager
def running(world, reconciler: LeaseReconciler) -> Iterator[Engine]:
    """An engine that reconciles one lease after the other."""
    world.conf.set_override("workers", 1, "engine")
    bus = rpc.connect(world.conf, rpc.IN_PROCESS)
    engine = Engine(
        world.conf,
        database=world.database,
        bus=bus,
        reconciler=reconciler,
        claims=world.claims,
    )
    engine.start()
    try:
        yield engine
    finally:
        engine.stop()
        bus.cleanup()


def test_only_leases_whose_servers_are_not_where_they_were_are_looked_at(world):
    stayed, moved, gone = (world.launch() for _ in range(3))
    for lease_id in (stayed, moved, gone):
        world.reconcile(lease_id)
    servers = world.cloud.servers
    servers[moved] = replace(servers[moved], host="compute2")
    del servers[gone]
    world.cloud.server_hosts = lambda: {server.id: server.host for server in servers.values()}
    world.cloud.server_changes = lambda _since: []
    asked = []
    find = world.cloud.find
    world.cloud.find = lambda owner: asked.append(owner.lease_id) or find(owner)

    with running(world, world.engine()):
        until(lambda: world.lease(gone).status == Status.RELEASED)
    assert set(asked) == {moved, gone}
    assert world.lease(stayed).bound_host == HOST


@pytest.mark.parametrize("before", [[], ["another"]], ids=["quiet cloud", "busy cloud"])
def test_a_change_is_found_although_the_clock_of_the_engine_is_ahead(world, before):
    """It counts what the cloud's clock says, which is an hour behind that of the engine."""

    def at() -> datetime.datetime:
        return timeutils.utcnow() - datetime.timedelta(hours=1)

    def server_changes(since: datetime.datetime | None) -> list[ServerChange]:
        asked.append(since)
        return [each for each in changes if since is None or each.at >= since]

    lease_id = world.launch()
    world.reconcile(lease_id)
    world.conf.set_override("audit_interval", 0.1, "engine")
    asked: list[datetime.datetime | None] = []
    changes = [ServerChange(server_id, at=at()) for server_id in before]
    world.cloud.server_changes = server_changes
    world.cloud.server_hosts = lambda: {each.id: HOST for each in world.cloud.servers.values()}

    with running(world, world.engine()):
        until(lambda: len(asked) > 1)
        server = world.cloud.servers.pop(lease_id)
        changes.append(ServerChange(server.id, at=at()))
        until(lambda: world.lease(lease_id).status == Status.RELEASED)
    assert max(asked[1:]) < at()


def test_the_second_server_of_a_lease_is_deleted_when_the_cloud_tells_of_it(world):
    """Two engines have requested one, and the answer of the former comes late."""
    lease_id, other = world.launch(), world.launch()
    for each in (lease_id, other):
        world.reconcile(each)
    own = world.cloud.servers[lease_id].id
    deleted = []

    def delete_second(owner: Owner, server_id: str) -> bool:
        deleted.append((owner.lease_id, owner.server_id, server_id))
        return True

    world.cloud.delete_second = delete_second
    with running(world, world.engine()) as engine:
        engine._notified(
            [
                ServerChange("second", lease_id),
                ServerChange(own, lease_id),
                ServerChange("nobody's"),
                ServerChange("tagged", "no lease"),
            ]
        )
    assert deleted == [(lease_id, own, "second")]


def test_a_message_that_comes_in_the_moment_in_which_a_worker_begins_is_not_lost(world):
    class ToldMeanwhile(set):
        """Leases of which one is told of as soon as a worker has looked whether it was."""

        def __contains__(self, lease_id):
            known = super().__contains__(lease_id)
            self.add(lease_id)
            return known

        def remove(self, lease_id):
            try:
                super().remove(lease_id)
            finally:
                if not turns:
                    self.add(lease_id)

    turns = []
    reconciler = world.engine()
    reconciler.reconcile = lambda _lease_id, *, told: turns.append(told)
    with running(world, reconciler) as engine:
        engine._told = ToldMeanwhile()
        engine._queue.add("a lease")
        until(lambda: len(turns) == 1)
        engine._queue.add("a lease")
        until(lambda: len(turns) == 2)
    assert turns == [False, True]


def test_a_lease_whose_reconciliation_fails_is_tried_again_although_nobody_tells(world):
    """As one that is ACTIVE, whose server was deleted while the database was away."""
    turns = []

    def reconcile(lease_id, *, told):
        turns.append(lease_id)
        if len(turns) == 1:
            raise db_exception.DBConnectionError

    world.conf.set_override("audit_interval", 0.1, "engine")
    reconciler = world.engine()
    reconciler.reconcile = reconcile
    with running(world, reconciler) as engine:
        engine._queue.add("a lease")
        until(lambda: len(turns) == 2)
    assert turns == ["a lease", "a lease"]


def test_an_engine_that_stops_leaves_what_it_watches_to_the_others(world):
    world.cloud.initial_status = ServerStatus.BUILD
    own, of_another = world.launch(), world.launch()
    world.engine("another").reconcile(of_another)
    reconciler = world.engine("one")
    reconciler.reconcile(own)
    assert world.lease(own).driven_by == "watched by one"
    before = world.lease(own).updated_at
    with running(world, reconciler):
        pass
    assert (world.lease(own).driven_by, world.lease(own).driven_until) == (None, None)
    assert world.lease(own).updated_at == before
    assert world.lease(of_another).driven_by == "watched by another"


def test_an_engine_stops_although_the_database_is_down(world):
    with running(world, world.engine("one")) as engine:

        def refuse():
            raise db_exception.DBConnectionError

        engine._database.check = refuse
    assert not any(thread.is_alive() for thread in engine._threads)
