# SPDX-License-Identifier: Apache-2.0
"""Idle leases lose their GPUs as the operator has configured it, and nobody else does."""

from __future__ import annotations

import datetime

import pytest
from oslo_utils import timeutils

from gsaas import exceptions
from gsaas.cloud.base import ServerStatus
from gsaas.db import leases, readings
from gsaas.db.readings import CgpuReading
from gsaas.engine import idle_leases
from gsaas.engine.idle_leases import IdleLeases
from gsaas.objects.lifecycle import Status
from tests.unit.engine.world import World

HOUR = datetime.timedelta(hours=1)


def configured(world: World, action: str, exempt: str = "") -> IdleLeases:
    """A look by another engine, which has just started with these options."""
    world.conf.set_override("idle_action", action, "engine")
    world.conf.set_override("idle_exempt_projects", [exempt], "engine")
    return IdleLeases(world.conf, world.database, world.claims, world.cloud)


def measure(world: World, lease_id: str, ago: datetime.timedelta, percent: float | None) -> None:
    with world.database.writing() as connection:
        reading = CgpuReading(lease_id, 0, percent, 100)
        readings.add_cgpus(connection, [reading], timeutils.utcnow() - ago)


def launched(world: World) -> str:
    lease_id = world.launch()
    world.reconcile(lease_id)
    assert world.lease(lease_id).status == Status.ACTIVE
    return lease_id


def idle(world: World, lease_id: str) -> str:
    """Let a lease have computed three hours ago, and nothing since."""
    measure(world, lease_id, 3 * HOUR, 50.0)
    for number in reversed(range(24)):
        measure(world, lease_id, number * HOUR / 8, 0.0)
    return lease_id


def let_the_notice_pass(world: World, lease_id: str) -> None:
    with world.database.writing() as connection:
        leases.update(connection, lease_id, reclaim_at=timeutils.utcnow())


@pytest.mark.slow
def test_an_idle_lease_is_warned_once_and_then_released(world):
    lease_id = idle(world, launched(world))
    look = configured(world, "release")

    assert look.audit() == look.audit() == []
    warned = world.lease(lease_id)
    assert warned.status == Status.ACTIVE
    assert timeutils.utcnow() < warned.reclaim_at <= timeutils.utcnow() + HOUR
    assert world.events(lease_id).count("idle") == 1

    let_the_notice_pass(world, lease_id)
    assert look.audit() == [lease_id]
    world.reconcile(lease_id)
    world.check_nothing_is_left(lease_id, Status.RELEASED)


def test_a_lease_that_computes_again_is_no_longer_warned(world):
    lease_id = idle(world, launched(world))
    look = configured(world, "release")
    look.audit()
    let_the_notice_pass(world, lease_id)
    measure(world, lease_id, datetime.timedelta(0), 1.0)

    assert look.audit() == []
    assert world.lease(lease_id).reclaim_at is None
    assert world.events(lease_id)[-1] == "in-use"


def test_a_lease_whose_host_reports_no_more_is_never_reclaimed(world):
    lease_id = launched(world)
    measure(world, lease_id, 3 * HOUR, 50.0)
    measure(world, lease_id, HOUR, 0.0)
    look = configured(world, "release")
    look.audit()
    assert world.lease(lease_id).reclaim_at is None
    let_the_notice_pass(world, lease_id)
    assert look.audit() == []
    assert world.lease(lease_id).status == Status.ACTIVE


def test_a_lease_is_not_reclaimed_for_a_time_in_which_nobody_looked(world):
    """Database, bus and engines were away, and the first report after that comes before an engine's audit."""
    lease_id = launched(world)
    measure(world, lease_id, 8 * HOUR, 50.0)
    for number in reversed(range(40, 64)):
        measure(world, lease_id, number * HOUR / 8, 0.0)
    let_the_notice_pass(world, lease_id)  # it was warned five hours ago
    measure(world, lease_id, datetime.timedelta(0), 0.0)
    assert configured(world, "release").audit() == []
    assert world.lease(lease_id).status == Status.ACTIVE
    assert world.lease(lease_id).reclaim_at is None


def test_a_lease_without_readings_is_never_reclaimed(world):
    lease_id = launched(world)
    configured(world, "release").audit()
    assert world.lease(lease_id).reclaim_at is None


@pytest.mark.parametrize(("action", "exempt"), [("none", ""), ("release", "p")])
def test_nothing_happens_unless_the_operator_chooses_it(world, action, exempt):
    lease_id = idle(world, launched(world))
    configured(world, action, exempt).audit()
    assert world.lease(lease_id).reclaim_at is None


@pytest.mark.slow
def test_a_lease_that_changed_after_it_was_read_is_left_as_it_is(world, monkeypatch):
    """Two engines look at once: the slower one has read what the faster one has changed since."""
    lease_id = idle(world, launched(world))
    look, faster = configured(world, "release"), configured(world, "release")
    look.audit()
    let_the_notice_pass(world, lease_id)
    read = idle_leases._active

    def overtaken(connection, now):
        found = read(connection, now)
        monkeypatch.setattr(idle_leases, "_active", read)
        assert faster.audit() == [lease_id]
        return found

    monkeypatch.setattr(idle_leases, "_active", overtaken)
    assert look.audit() == []
    assert world.events(lease_id).count("release") == 1


def test_a_server_is_shelved_and_left_to_its_owner(world):
    lease_id = idle(world, launched(world))
    server_id = world.lease(lease_id).server_id
    look = configured(world, "shelve")
    look.audit()
    let_the_notice_pass(world, lease_id)

    assert look.audit() == look.audit() == []
    assert world.cloud.shelved == [server_id]
    world.reconcile(lease_id)
    lease = world.lease(lease_id)
    assert (lease.status, lease.claims, lease.server_id) == (Status.RELEASED, (), None)
    assert world.cloud.servers[lease_id].status is ServerStatus.SHELVED
    assert world.cloud.deleted == []


def test_a_server_that_cannot_be_shelved_keeps_its_gpus_and_is_tried_again(world):
    lease_id = idle(world, launched(world))
    look = configured(world, "shelve")
    look.audit()
    let_the_notice_pass(world, lease_id)
    world.cloud.shelving_refusal = exceptions.ServerRefused(reason="it is locked")
    look.audit()
    assert world.lease(lease_id).status == Status.ACTIVE
    world.cloud.shelving_refusal = None
    let_the_notice_pass(world, lease_id)
    look.audit()
    assert len(world.cloud.shelved) == 1


@pytest.mark.slow
def test_a_lease_that_is_used_while_others_are_shelved_keeps_its_gpus(world, monkeypatch):
    found = [idle(world, launched(world)) for _ in range(2)]
    look = configured(world, "shelve")
    look.audit()
    for lease_id in found:
        let_the_notice_pass(world, lease_id)
    shelve = world.cloud.shelve

    def slowly(owner):
        shelve(owner)
        for lease_id in found:
            measure(world, lease_id, datetime.timedelta(0), 50.0)

    monkeypatch.setattr(world.cloud, "shelve", slowly)
    look.audit()
    assert len(world.cloud.shelved) == 1


def test_a_lease_without_a_server_is_released_instead(world):
    lease_id = world.alloc()
    world.reconcile(lease_id)
    idle(world, lease_id)
    look = configured(world, "shelve")
    look.audit()
    let_the_notice_pass(world, lease_id)
    assert look.audit() == [lease_id]
