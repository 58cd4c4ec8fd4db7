# SPDX-License-Identifier: Apache-2.0
"""Kill the engine after any effect it has: the next one finishes, and nothing is leaked or claimed twice.

While these run, `World.check_safety` checks after every effect that no binding outlives its claims.
"""

from __future__ import annotations

import itertools

import pytest

from gsaas.cloud.base import ServerStatus
from gsaas.objects.lifecycle import Status

pytestmark = pytest.mark.slow

MAX_EFFECTS = 200
"""More effects than any reconciliation has."""


def kill_after_every_effect(make_world, prepare, check):
    """Kill after effect 0, 1, 2, … of one reconciliation, and let another engine go on; return how many there were."""
    for effects in range(MAX_EFFECTS):
        world = make_world()
        lease_id = prepare(world)
        killed = world.drive_until_killed(lease_id, effects)
        world.reconcile(lease_id)
        check(world, lease_id)
        if not killed:
            return effects
    raise AssertionError(f"more than {MAX_EFFECTS} effects")


def launched(world):
    return world.launch()


def active(world):
    lease_id = world.launch()
    world.reconcile(lease_id)
    world.check_active(lease_id)
    return lease_id


def releasing(world):
    lease_id = active(world)
    world.release(lease_id)
    return lease_id


def check_left_nothing(status):
    return lambda world, lease_id: world.check_nothing_is_left(lease_id, status)


def test_a_launch_becomes_active(make_world):
    count = kill_after_every_effect(
        make_world, launched, lambda world, lease: world.check_active(lease)
    )
    assert count > 10


def test_a_release_gives_everything_back(make_world):
    assert kill_after_every_effect(make_world, releasing, check_left_nothing(Status.RELEASED)) > 10


def test_a_launch_that_the_cloud_refuses_ends_in_error(make_world):
    def refused(world):
        world.cloud.refusal = "no such flavor"
        return world.launch()

    assert kill_after_every_effect(make_world, refused, check_left_nothing(Status.ERROR)) > 3


def test_a_launch_whose_server_fails_ends_in_error(make_world):
    def failing(world):
        world.cloud.initial_status = ServerStatus.ERROR
        return world.launch()

    assert kill_after_every_effect(make_world, failing, check_left_nothing(Status.ERROR)) > 8


def test_a_lease_whose_server_was_deleted_is_released(make_world):
    def without_server(world):
        lease_id = active(world)
        world.cloud.servers.clear()
        return lease_id

    assert (
        kill_after_every_effect(make_world, without_server, check_left_nothing(Status.RELEASED)) > 8
    )


def test_a_lease_released_at_any_moment_of_its_launch_leaves_nothing(make_world):
    for effects in itertools.count():
        world = make_world()
        lease_id = world.launch()
        killed = world.drive_until_killed(lease_id, effects)
        world.release(lease_id)
        world.reconcile(lease_id)
        world.check_nothing_is_left(lease_id, Status.RELEASED)
        if not killed:
            break


def test_an_engine_that_dies_at_every_single_effect_still_gets_there(make_world):
    """Each engine lives long enough to watch the lease, own it and number an order, two effects each, and some more."""
    world = make_world()
    lease_id = world.launch()
    lives = itertools.count()
    while world.lease(lease_id).status != Status.ACTIVE:
        world.drive_until_killed(lease_id, 10)
        assert next(lives) < MAX_EFFECTS
    world.reconcile(lease_id)
    world.check_active(lease_id)
