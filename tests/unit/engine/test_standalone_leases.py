# SPDX-License-Identifier: Apache-2.0
"""Leases without a server, reconciled: bound where their consumer is, given back only after that is undone."""

from __future__ import annotations

import shutil

import pytest

from gsaas.objects.access import Access
from gsaas.objects.address import Address
from gsaas.objects.binding import LocalBinding
from gsaas.objects.lifecycle import Status
from tests.unit.engine.world import HOST, World, create_database


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    path = tmp_path_factory.mktemp("template") / "gsaas.db"
    create_database(path)
    return path


@pytest.fixture
def make_world(template, tmp_path):
    made = []

    def make() -> World:
        path = tmp_path / f"{len(made)}.db"
        shutil.copy(template, path)
        made.append(World(path))
        return made[-1]

    yield make
    for world in made:
        world.close()


@pytest.fixture
def world(make_world):
    return make_world()


@pytest.mark.slow
def test_the_consumers_endpoint_is_told_before_the_lease_is_active(world):
    lease_id = world.alloc()
    assert world.lease(lease_id).status == Status.CLAIMED

    world.reconcile(lease_id)

    lease = world.lease(lease_id)
    (claim,) = lease.claims
    assert (lease.status, lease.access) == (Status.ACTIVE, Access.MASKED)
    masked = Address(claim.masked_ip, claim.masked_port)
    real = Address("192.168.50.11", claim.gpu.daemon_port)
    expected = LocalBinding(lease_id, lease_id, 1000, {masked: real})
    assert world.endpoint.bindings_by_host == {HOST: {lease_id: expected}}
    assert lease.timings["rodvr_configuration"] == 0.004
    assert world.cloud.servers == {}


def test_an_endpoint_that_does_not_answer_keeps_it_from_being_active(world):
    lease_id = world.alloc()
    world.endpoint.answers = False

    assert world.reconcile(lease_id) is not None

    assert world.lease(lease_id).status == Status.CLAIMED


def test_one_that_never_answers_makes_it_fail_and_holds_the_claims_until_it_does(world):
    lease_id = world.alloc()
    world.endpoint.answers = False
    world.age(lease_id, world.conf.engine.boot_timeout + 1)

    world.reconcile(lease_id)

    lease = world.lease(lease_id)
    assert (lease.status, lease.fault_step) == (Status.ERROR, "bind")
    assert world.used_mb() == 4096
    world.endpoint.answers = True
    world.reconcile(lease_id)
    world.check_nothing_is_left(lease_id, Status.ERROR)


def test_a_binding_that_the_endpoint_lost_is_made_again(world):
    lease_id = world.alloc()
    world.reconcile(lease_id)
    world.endpoint.bindings_by_host.clear()

    world.reconcile(lease_id)

    assert list(world.endpoint.bindings_by_host[HOST]) == [lease_id]


def test_released_it_leaves_nothing(world):
    lease_id = world.alloc()
    world.reconcile(lease_id)
    world.release(lease_id)

    world.reconcile(lease_id)

    world.check_nothing_is_left(lease_id, Status.RELEASED)


def test_without_an_endpoint_there_is_nothing_to_drive(world):
    lease_id = world.alloc("laptop")
    assert world.lease(lease_id).status == Status.ACTIVE

    assert world.reconcile(lease_id) is None

    assert world.endpoint.calls == []


def test_terminated_by_its_owner_it_is_over_in_one_transaction(world):
    lease_id = world.alloc("laptop")

    assert world.claims.terminate(lease_id).status == Status.RELEASED

    world.check_nothing_is_left(lease_id, Status.RELEASED)
    assert world.events(lease_id) == ["claim", "activate", "release", "finish"]


@pytest.mark.slow
def test_an_engine_killed_anywhere_leaves_what_the_next_one_finishes(make_world):
    effects, survived = 0, False
    while not survived:
        world = make_world()
        lease_id = world.alloc()
        survived = not world.drive_until_killed(lease_id, effects)
        world.reconcile(lease_id)
        assert world.lease(lease_id).status == Status.ACTIVE
        world.release(lease_id)
        survived = survived and not world.drive_until_killed(lease_id, effects)
        world.reconcile(lease_id)
        world.check_nothing_is_left(lease_id, Status.RELEASED)
        effects += 1
    assert effects > 3
