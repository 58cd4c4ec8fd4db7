# SPDX-License-Identifier: Apache-2.0
"""A host is drained: its leases leave it by moves, whatever happens to the engines meanwhile."""

from __future__ import annotations

import datetime
import time

import pytest

from gsaas.db import clock, gpus, hosts, leases, readings
from gsaas.db.hosts import Draining
from gsaas.db.readings import PathReading
from gsaas.engine import moves as moves_module
from gsaas.engine.drains import Drains
from gsaas.engine.gpu_losses import GpuLosses
from gsaas.objects.move import Kind
from tests.unit.engine.test_kill import kill_after_every_effect
from tests.unit.engine.test_moves import OTHER, Moving, launched
from tests.unit.engine.test_moves import make_world as make_world
from tests.unit.engine.test_moves import world as world
from tests.unit.engine.world import GPU_HOST

HOUR = datetime.timedelta(hours=1)
PLAINLY = Draining()


def drain(world: Moving, host: str = GPU_HOST, how: Draining | None = PLAINLY) -> None:
    with world.database.write() as session:
        hosts.set_disabled(session, host, True, "fans", how)


def look(world: Moving) -> list[str]:
    """What an engine begins that has just started."""
    return Drains(world.database, world.claims).audit()


def waits(world: Moving, host: str = GPU_HOST) -> dict[str, str]:
    with world.database.read() as session:
        return hosts.get(session, host).drain_waits


def connect(world: Moving, lease_id: str, number: int = 1) -> None:
    """Programs of a lease have so many open connections, which its endpoint has reported."""
    world.endpoint.open_connections = number
    with world.database.writing() as connection:
        reading = PathReading(lease_id, 1000, 1000, number, 0)
        readings.add_paths(connection, [reading], clock.now(connection))


def test_a_lease_without_connections_leaves_at_once_and_nothing_new_comes(world):
    lease_id = launched(world)
    drain(world)
    assert look(world) == [lease_id]
    assert waits(world) == {lease_id: "it moves"}
    world.reconcile(lease_id)
    world.check_settled(lease_id, OTHER)
    assert look(world) == []
    assert waits(world) == {}
    assert world.events(lease_id)[-3:] == ["drain", "move", "moved"]
    another = world.launch()
    assert world.lease(another).claims[0].gpu.host_name == OTHER


def test_several_engines_and_an_engine_that_starts_again_move_a_lease_once(world):
    lease_id = launched(world)
    before = world.events(lease_id).count("move")
    drain(world)
    first, second = Drains(world.database, world.claims), Drains(world.database, world.claims)
    for one in (first, second, first, Drains(world.database, world.claims)):
        one.audit()
    assert world.events(lease_id).count("move") == before + 1
    world.reconcile(lease_id)
    world.check_settled(lease_id, OTHER)


def test_open_connections_are_waited_for(world):
    lease_id = launched(world)
    connect(world, lease_id)
    drain(world)
    assert look(world) == []
    assert waits(world) == {lease_id: "1 connection is open"}
    connect(world, lease_id, 0)
    assert look(world) == [lease_id]
    world.reconcile(lease_id)
    world.check_settled(lease_id, OTHER)


@pytest.mark.parametrize("how", ["force", "by", "consent"])
def test_open_connections_are_cut_when_an_operator_or_the_owner_says_so(world, how):
    lease_id = launched(world)
    connect(world, lease_id)
    if how == "consent":
        with world.database.writing() as connection:
            leases.update(connection, lease_id, movable=Kind.CUT)
    drain(
        world,
        how={"force": Draining(now=True), "by": Draining(world.database.now())}.get(
            how, Draining()
        ),
    )
    assert look(world) == [lease_id]
    world.reconcile(lease_id)
    world.check_settled(lease_id, OTHER)
    assert world.events(lease_id)[-3:] == ["drain", "move", "moved"]


def test_connections_are_not_cut_before_the_time_given(world):
    lease_id = launched(world)
    connect(world, lease_id)
    drain(world, how=Draining(world.database.now() + HOUR))
    assert look(world) == []
    assert "cut at" in waits(world)[lease_id]


def test_a_lease_that_fits_nowhere_waits_until_it_does(world, monkeypatch):
    lease_id = launched(world)
    with world.database.write() as session:
        hosts.set_disabled(session, OTHER, True)
    drain(world)
    assert look(world) == []
    assert "no other GPU of what it may have fits" in waits(world)[lease_id]
    with world.database.write() as session:
        hosts.set_disabled(session, OTHER, False)
    engine = Drains(world.database, world.claims)
    assert engine.audit() == [lease_id]
    world.reconcile(lease_id)
    world.check_settled(lease_id, OTHER)


def test_a_lease_that_was_refused_does_not_keep_others_from_their_turns(world, monkeypatch):
    lease_id = launched(world)
    with world.database.write() as session:
        hosts.set_disabled(session, OTHER, True)
    drain(world)
    engine = Drains(world.database, world.claims)
    engine.audit()
    asked = []
    move = world.claims.move
    monkeypatch.setattr(world.claims, "move", lambda *args: asked.append(args) or move(*args))
    engine.audit()
    assert asked == []
    assert "fits" in waits(world)[lease_id]
    monkeypatch.setattr(moves_module, "AGAIN", 0.0)
    engine.audit()
    assert len(asked) == 1


def test_an_operator_ends_a_drain_and_leases_stay(world):
    lease_id = launched(world)
    connect(world, lease_id)
    drain(world)
    look(world)
    with world.database.write() as session:
        host = hosts.set_disabled(session, GPU_HOST, False)
        assert (host.disabled, host.draining_since, host.drain_waits) == (False, None, None)
    connect(world, lease_id, 0)
    assert look(world) == []
    world.check_settled(lease_id, GPU_HOST)
    assert world.events(lease_id)[-2:] == ["drain", "drain-cancelled"]


def test_a_host_that_is_disabled_after_its_drain_began_keeps_its_leases(world):
    lease_id = launched(world)
    drain(world)
    drain(world, how=None)
    assert look(world) == []
    world.check_settled(lease_id, GPU_HOST)


def test_the_same_drain_again_tells_nobody_twice_and_another_time_does(world):
    lease_id = launched(world)
    drain(world)
    drain(world)
    assert world.events(lease_id).count("drain") == 1
    drain(world, how=Draining(now=True))
    assert world.events(lease_id).count("drain") == 2


# A GPU or its host is lost


def losses(world: Moving, what: str = "remake") -> GpuLosses:
    world.conf.set_override("on_gpu_loss", what, "engine")
    world.conf.set_override("gpu_loss_after", 10, "engine")
    return GpuLosses(world.conf, world.database, world.claims)


def fall_silent(world: Moving, host: str) -> None:
    """A GPU host does not answer any more; nobody knows what runs there."""
    with world.database.write() as session:
        hosts.get(session, host).monitor_seen_at = world.database.now() - HOUR
    world.monitor.silent = {host}


def pass_time(monkeypatch, seconds: float) -> None:
    began = time.monotonic()
    monkeypatch.setattr("gsaas.engine.gpu_losses.time.monotonic", lambda: began + seconds)


def test_a_lease_of_a_lost_gpu_waits_for_it_unless_it_is_to_be_remade(world, monkeypatch):
    lease_id = launched(world)
    fall_silent(world, GPU_HOST)
    engine = losses(world, "wait")
    engine.audit()
    pass_time(monkeypatch, 1000)
    assert engine.audit() == []
    assert world.lease(lease_id).moving is None


def test_a_gpu_has_to_be_lost_for_a_while(world, monkeypatch):
    launched(world)
    engine = losses(world)
    fall_silent(world, GPU_HOST)
    assert engine.audit() == []
    pass_time(monkeypatch, 9)
    assert engine.audit() == []


def lost(world: Moving, monkeypatch) -> str:
    """Return a lease that begins to be remade, because its GPU host is silent."""
    lease_id = launched(world)
    engine = losses(world)
    fall_silent(world, GPU_HOST)
    engine.audit()
    pass_time(monkeypatch, 11)
    assert engine.audit() == [lease_id]
    return lease_id


def come_back(world: Moving) -> None:
    """The host reports again, what it had and no lease uses any more included."""
    world.monitor.silent = set()
    with world.database.write() as session:
        hosts.get(session, GPU_HOST).monitor_seen_at = world.database.now()


def test_a_cgpu_is_made_anew_and_the_lost_gpu_is_returned_when_its_host_has_reported(
    world, monkeypatch
):
    lease_id = lost(world, monkeypatch)
    connect(world, lease_id)
    assert world.reconcile(lease_id) is not None
    lease = world.lease(lease_id)
    assert (lease.claims[0].gpu.host_name, lease.moving) == (OTHER, "ending")
    (binding,) = world.endpoint.bindings
    (real,) = binding.mappings.values()
    assert real == lease.claims[0].real_address
    assert world.used_mb() == 2 * 4096, "memory was returned before its host had confirmed"
    assert world.events(lease_id)[-3:] == ["gpu-lost", "move", "moved"]
    come_back(world)
    world.reconcile(lease_id)
    world.check_settled(lease_id, OTHER)


def test_what_was_lost_is_told_with_the_reason(world, monkeypatch):
    lease_id = lost(world, monkeypatch)
    with world.database.reading() as connection:
        told = {each.event: each.detail for each in leases.events(connection, lease_id)}
    assert told["gpu-lost"] == f"GPU {world.gpu_of(lease_id)}: the monitor of gpu1 does not report"


def test_a_withdrawn_gpu_is_lost_too(world, monkeypatch):
    lease_id = launched(world)
    uuid = world.gpu_of(lease_id)
    with world.database.write() as session:
        gpus.get(session, uuid).withdrawn_reason = "Xid 79"
    engine = losses(world)
    engine.audit()
    pass_time(monkeypatch, 11)
    assert engine.audit() == [lease_id]
    world.reconcile(lease_id)
    assert world.gpu_of(lease_id) != uuid


def test_a_gpu_that_comes_back_in_time_is_not_lost(world, monkeypatch):
    launched(world)
    engine = losses(world)
    fall_silent(world, GPU_HOST)
    engine.audit()
    come_back(world)
    engine.audit()
    fall_silent(world, GPU_HOST)
    pass_time(monkeypatch, 11)
    assert engine.audit() == []


@pytest.mark.slow
def test_a_drain_ends_on_one_side_wherever_the_engine_is_killed(make_world):
    def draining(world: Moving) -> str:
        lease_id = launched(world)
        drain(world)
        look(world)
        return lease_id

    def check(world: Moving, lease_id: str) -> None:
        for one in look(world):
            world.reconcile(one)
        world.check_settled(lease_id, OTHER)

    kill_after_every_effect(make_world, draining, check)
