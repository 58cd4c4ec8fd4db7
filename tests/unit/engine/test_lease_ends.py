# SPDX-License-Identifier: Apache-2.0
"""Leases end when they are to end, after a warning, once, whatever happens to the engines meanwhile."""

from __future__ import annotations

import datetime

import pytest

from gsaas.db import leases
from gsaas.engine.lease_ends import REACHED, LeaseEnds
from gsaas.objects.lifecycle import Status
from tests.unit.engine.world import World

MINUTE = datetime.timedelta(minutes=1)


def look(world: World) -> list[str]:
    """What an engine finds that has just started."""
    return LeaseEnds(world.conf, world.database, world.claims).audit()


def ending(world: World, lease_id: str, within: datetime.timedelta) -> str:
    """Let a lease end after this time."""
    with world.database.writing() as connection:
        leases.update(connection, lease_id, ends_at=world.database.now() + within)
    return lease_id


def launched(world: World) -> str:
    lease_id = world.launch()
    world.reconcile(lease_id)
    assert world.lease(lease_id).status == Status.ACTIVE
    return lease_id


def test_a_lease_with_a_vm_is_warned_and_then_ends_with_its_vm(world):
    lease_id = ending(world, launched(world), 5 * MINUTE)
    assert look(world) == look(world) == []
    assert world.lease(lease_id).status == Status.ACTIVE
    assert world.events(lease_id)[-1] == "ending"

    ending(world, lease_id, -MINUTE)
    assert look(world) == [lease_id]
    assert look(world) == []  # another engine, or this one after a restart
    world.reconcile(lease_id)
    world.check_nothing_is_left(lease_id, Status.RELEASED)
    events = world.events(lease_id)
    assert events[events.index("ending") :] == ["ending", "end", "release", "finish"]
    with world.database.reading() as connection:
        details = {each.event: each.detail for each in leases.events(connection, lease_id)}
    assert details["release"] == REACHED


@pytest.mark.slow
def test_a_lease_that_ends_is_released_although_the_engine_dies_at_any_point(world):
    lease_id = ending(world, launched(world), -MINUTE)
    look(world)
    for effects in range(1, 20):
        if not world.drive_until_killed(lease_id, effects):
            break
    world.check_nothing_is_left(lease_id, Status.RELEASED)
    assert world.events(lease_id).count("end") == 1


def test_a_lease_without_a_vm_ends_in_one_transaction(world):
    lease_id = ending(world, world.alloc(consumer_host=None), -MINUTE)
    look(world)
    lease = world.lease(lease_id)
    assert (lease.status, lease.claims) == (Status.RELEASED, ())
    assert world.events(lease_id)[-3:] == ["end", "release", "finish"]


def test_one_that_is_postponed_in_time_goes_on_and_is_warned_again(world):
    lease_id = ending(world, launched(world), 5 * MINUTE)
    look(world)
    ending(world, lease_id, 60 * MINUTE)
    assert look(world) == []
    ending(world, lease_id, 6 * MINUTE)
    look(world)
    assert world.events(lease_id).count("ending") == 2
    assert world.lease(lease_id).status == Status.ACTIVE


def test_the_end_is_decided_of_the_lease_as_it_is_when_it_is_locked(world, monkeypatch):
    """Its owner postpones it after the engine has read it."""
    lease_id = ending(world, launched(world), -MINUTE)
    end = world.claims.end

    def end_later(*args):
        ending(world, lease_id, 60 * MINUTE)
        return end(*args)

    monkeypatch.setattr(world.claims, "end", end_later)
    assert look(world) == []
    assert world.lease(lease_id).status == Status.ACTIVE


@pytest.mark.parametrize("seconds", [0, 60])
def test_an_operator_chooses_when_owners_are_warned(world, seconds):
    world.conf.set_override("warn_before", seconds, "leases")
    lease_id = ending(world, launched(world), 5 * MINUTE)
    look(world)
    assert "ending" not in world.events(lease_id)
