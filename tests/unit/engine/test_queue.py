# SPDX-License-Identifier: Apache-2.0
"""A lease with a server that has to wait: what the engine does, and that no kill loses its place in the queue."""

from __future__ import annotations

import uuid

import pytest

from gsaas.context import RequestContext
from gsaas.db import leases
from gsaas.gpgpums.changes import WaitPolicy
from gsaas.gpgpums.claims import Claims
from gsaas.objects.lease import Lease
from gsaas.objects.lifecycle import Status
from gsaas.objects.request import Request
from tests.support.scheduling import open_claims
from tests.unit.engine.world import Killed, World

ALL = Request(2)
CALLER = RequestContext(user_id="u", project_id="p", roles=["member"], auth_token="secret")


def new_lease(request: Request) -> Lease:
    return Lease(
        status=Status.QUEUED,
        id=str(uuid.uuid4()),
        project_id="p",
        user_id="u",
        name="n",
        remoting="simulated",
        server_request={},
        has_server=True,
        **request.to_dict(),
    )


def claim(world: World, request: Request = ALL) -> str:
    return world.claims.claim(new_lease(request), request).id


def join_queue(world: World, request: Request = ALL) -> str:
    return world.claims.queue.join(new_lease(request), request, policy=WaitPolicy()).id


def new_claims(world: World) -> Claims:
    """Return the claims of a process that has just started, with an empty cache."""
    return open_claims(world.database, attempts=5)


def test_a_lease_in_the_queue_is_left_alone_and_its_caller_is_remembered(world):
    claim(world)
    waiting = join_queue(world)
    engine = world.engine()
    engine.callers.keep(waiting, CALLER)

    assert engine.reconcile(waiting) is None

    assert world.lease(waiting).status == Status.QUEUED
    assert engine.callers.get(waiting, "u", "p") is not None


def test_the_caller_of_a_lease_that_gave_up_waiting_is_forgotten(world):
    claim(world)
    waiting = join_queue(world)
    engine = world.engine()
    engine.callers.keep(waiting, CALLER)
    world.claims.queue.leave(waiting)

    engine.reconcile(waiting)

    assert engine.callers.get(waiting, "u", "p") is None
    assert world.cloud.servers == {}


def test_a_lease_that_leaves_the_queue_is_booted_like_any_other(world):
    holder = claim(world)
    waiting = join_queue(world)
    world.reconcile(waiting)

    world.release(holder)
    world.reconcile(holder)
    world.reconcile(waiting)

    assert world.lease(waiting).status == Status.ACTIVE
    assert world.events(waiting) == ["queue", "claim", "boot", "activate"]


def test_time_in_the_queue_does_not_count_as_time_to_boot(world):
    holder = claim(world)
    waiting = join_queue(world)
    world.claims.release(holder)
    with world.database.write() as session:
        lease = leases.get(session.connection(), waiting)
        long_ago = lease.created_at.replace(year=2020)
        leases.update(session.connection(), waiting, created_at=long_ago, queued_at=long_ago)

    world.reconcile(waiting)

    assert world.lease(waiting).status == Status.ACTIVE


@pytest.mark.slow
def test_after_a_kill_at_any_moment_of_a_release_another_process_serves_the_queue(
    make_world,
):
    effects = 0
    while True:
        world = make_world()
        holder, waiting = claim(world), join_queue(world)
        world.fuse.left = effects
        try:
            world.claims.release(holder)
        except Killed:
            died = True
        else:
            died = False
        world.fuse.left = None

        other = new_claims(world)
        other.release(holder)
        other.run_audit()

        assert world.lease(waiting).status == Status.CLAIMED
        assert world.events(waiting) == ["queue", "claim"]
        if not died:
            break
        effects += 1
    assert (
        effects == 4
    )  # two writes, each of which may be the last thing not kept, or the last kept
