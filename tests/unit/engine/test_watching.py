# SPDX-License-Identifier: Apache-2.0
"""Of several engines, one asks the cloud about a server that is awaited; the others do when they have a reason."""

from __future__ import annotations

import datetime

import pytest
from oslo_utils import timeutils

from gsaas import exceptions
from gsaas.cloud.base import ServerStatus
from gsaas.db import endpoints, models
from gsaas.objects.lifecycle import Status
from tests.unit.engine.world import HOST, HOST_ADDRESS


@pytest.fixture
def looks(world) -> list[str]:
    """The leases whose servers the cloud was asked for."""
    asked: list[str] = []
    find = world.cloud.find

    def count(owner):
        asked.append(owner.lease_id)
        return find(owner)

    world.cloud.find = count
    return asked


@pytest.fixture
def booting(world, looks) -> str:
    """A lease whose server boots, which the engine `one` has made."""
    world.cloud.initial_status = ServerStatus.BUILD
    lease_id = world.launch()
    assert world.engine("one").reconcile(lease_id) == world.conf.engine.poll_interval
    assert world.lease(lease_id).status == Status.BOOTING
    bindings = {world.lease(lease_id).port_id: {"installed": True}}
    with world.database.write() as session:
        endpoints.register(session, HOST, {"bindings": bindings, "gpu_address": HOST_ADDRESS})
    looks.clear()
    return lease_id


class Unreachable:
    """A cloud that one engine cannot ask for servers, while others can."""

    def __init__(self, cloud) -> None:
        self._cloud = cloud

    def __getattr__(self, name):
        return getattr(self._cloud, name)

    def find(self, owner):
        raise exceptions.CloudUnavailable(reason="Keystone does not answer")


def test_many_engines_look_as_often_as_one(world, booting, looks):
    engines = [world.engine(name) for name in ("one", "two", "three", "four")]
    for _ in range(5):
        for engine in engines:
            engine.reconcile(booting)
    assert looks == [booting] * 5


def test_the_others_leave_the_lease_to_their_audits(world, booting):
    assert world.engine("two").reconcile(booting) is None
    assert world.engine("one").reconcile(booting) == world.conf.engine.poll_interval


def test_an_engine_that_is_told_of_a_change_looks_at_once_and_goes_on_looking(
    world, booting, looks
):
    assert world.engine("two").reconcile(booting, told=True) == world.conf.engine.poll_interval
    assert looks == [booting]
    assert world.engine("one").reconcile(booting) is None
    assert world.engine("two").reconcile(booting) == world.conf.engine.poll_interval


def test_an_engine_that_is_told_takes_the_steps_that_are_due(world, booting):
    world.cloud.initial_status = ServerStatus.ACTIVE
    world.cloud.finish_boot(booting)
    world.engine("two").reconcile(booting, told=True)
    world.check_active(booting)


def test_another_engine_looks_when_the_first_has_not_for_long(world, booting, looks):
    with world.database.write() as session:
        session.get(models.LeaseRow, booting).driven_until = datetime.datetime(2026, 1, 1)
    assert world.engine("two").reconcile(booting) == world.conf.engine.poll_interval
    assert looks == [booting]


def test_an_engine_that_looks_again_soon_writes_nothing(world, booting):
    before = world.lease(booting).driven_until
    world.engine("one").reconcile(booting)
    assert world.lease(booting).driven_until == before


def test_a_lease_that_waits_no_more_is_nobodys(world, booting):
    world.cloud.finish_boot(booting)
    world.engine("one").reconcile(booting)
    world.check_active(booting)
    assert world.lease(booting).driven_by is None


def test_a_release_goes_on_while_another_engine_watches(world, booting):
    world.release(booting)
    world.engine("two").reconcile(booting, told=True)
    world.check_nothing_is_left(booting, Status.RELEASED)


def test_no_engine_asks_for_the_server_of_a_launch_that_none_has_begun(world, looks):
    world.cloud.needs_caller = True
    lease_id = world.launch()
    world.engine("without-the-token").reconcile(lease_id)
    assert looks == []


def test_an_engine_that_cannot_reach_the_cloud_leaves_the_lease_to_another(world, booting):
    isolated, healthy = world.engine("one"), world.engine("two")
    isolated.cloud = Unreachable(world.cloud)
    assert isolated.reconcile(booting) == world.conf.engine.poll_interval
    assert world.lease(booting).driven_by is None
    world.cloud.finish_boot(booting)
    healthy.reconcile(booting)
    world.check_active(booting)


def test_an_engine_that_reaches_no_agent_leaves_the_lease_to_another(world, booting):
    world.cloud.finish_boot(booting)
    with world.database.write() as session:
        endpoints.register(session, HOST, {"bindings": {}, "gpu_address": HOST_ADDRESS})
    world.endpoint.answers = False
    world.engine("one").reconcile(booting)
    world.endpoint.answers = True
    assert world.lease(booting).driven_by is None
    world.engine("two").reconcile(booting)
    world.check_active(booting)


def test_an_engine_that_leaves_a_lease_to_its_watcher_writes_nothing(world, booting):
    world.fuse.on_effect = lambda: pytest.fail("an effect")
    assert world.engine("two").reconcile(booting) is None


def test_an_engine_that_finds_another_at_work_writes_nothing(world, booting):
    with world.database.write() as session:
        lease = session.get(models.LeaseRow, booting)
        lease.driven_by, lease.driven_until = "one", datetime.datetime(2200, 1, 1)
    world.fuse.on_effect = lambda: pytest.fail("an effect")
    assert world.engine("two").reconcile(booting) == world.conf.engine.poll_interval


def test_an_engine_that_is_told_while_another_takes_steps_looks_afterwards(world, booting, looks):
    with world.database.write() as session:
        lease = session.get(models.LeaseRow, booting)
        lease.driven_by, lease.driven_until = "one", datetime.datetime(2200, 1, 1)
    told = world.engine("two")
    assert told.reconcile(booting, told=True) == world.conf.engine.poll_interval
    assert looks == []
    with world.database.write() as session:
        session.get(models.LeaseRow, booting).driven_by = "watched by one"
    assert told.reconcile(booting) == world.conf.engine.poll_interval
    assert looks == [booting]


def test_an_engine_that_has_looked_because_it_was_told_leaves_the_lease_to_the_next_one(
    world, booting, looks
):
    first, second = world.engine("two"), world.engine("three")
    first.reconcile(booting, told=True)
    second.reconcile(booting, told=True)
    assert first.reconcile(booting) is None
    assert looks == [booting] * 2


@pytest.mark.parametrize(("poll", "most"), [(1.0, 10.0), (2.0, 10.0), (60.0, 125.0)])
def test_an_engine_that_dies_keeps_others_from_looking_for_two_looks_at_most(
    world, booting, poll, most
):
    world.conf.set_override("poll_interval", poll, "engine")
    with world.database.write() as session:
        session.get(models.LeaseRow, booting).driven_until = datetime.datetime(2026, 1, 1)
    before = timeutils.utcnow()
    world.engine("one").reconcile(booting)
    until = world.lease(booting).driven_until
    after = timeutils.utcnow()
    assert before + datetime.timedelta(seconds=most) <= until
    assert until <= after + datetime.timedelta(seconds=most)
