# SPDX-License-Identifier: Apache-2.0
"""Keystone goes away and comes back: who asks is told so, nothing is lost, and everything goes on by itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
import requests

from gsaas import exceptions
from gsaas.context import RequestContext
from gsaas.objects.lifecycle import Status
from tests.openstack.bed import gsaas, keystone, processes
from tests.openstack.launches import Launches

pytestmark = [pytest.mark.openstack, pytest.mark.alone, pytest.mark.timeout(900)]


@contextmanager
def away() -> Iterator[None]:
    """Have Keystone not run for a while."""
    pid = processes.running(keystone.DAEMON.name).pid
    processes.end([pid, *processes.descendants([pid])])
    try:
        yield
    finally:
        processes.ensure(keystone.DAEMON)


def test_the_api_says_that_it_cannot_know_who_asks_rather_than_that_nobody_may(
    owner: RequestContext,
):
    def ask() -> requests.Response:
        headers = {"X-Auth-Token": owner.auth_token}
        return requests.get(f"{gsaas.URL}/v1/leases", headers=headers, timeout=120)

    with away():
        answer = ask()
        assert answer.status_code == 503
        assert answer.json()["errors"][0]["code"] == exceptions.IdentityUnavailable.code
    assert ask().status_code == 200


def test_a_launch_without_keystone_ends_in_error_and_leaves_nothing(
    launches: Launches, owner: RequestContext, made: Callable
):
    lease_id = launches.launch(owner)
    with away():
        with pytest.raises(exceptions.CloudUnavailable, match="Keystone does not answer"):
            launches.cloud.check(owner, launches.least)
        while launches.lease(lease_id).status != Status.ERROR:
            launches.turn(lease_id)
    lease = launches.drive(lease_id, Status.ERROR)
    launches.check_nothing_is_held(lease_id)
    assert lease.fault_message == (
        "Keystone does not answer when GSaaS requested the server; launch again"
    )
    assert made(lease_id) == []
    launches.active(owner)


def test_what_works_goes_on_without_keystone_and_a_release_is_finished_when_it_is_back(
    launches: Launches, owner: RequestContext, made: Callable
):
    """A Nova that has seen our token still answers for a while, so its server may or may not be gone until then."""
    kept, released = launches.active(owner), launches.active(owner)
    with away():
        launches.reconciler.reconcile(kept.id)
        launches.release(released.id)
        launches.reconciler.reconcile(released.id)
        assert launches.lease(kept.id).status == Status.ACTIVE
        assert [*launches.endpoint.held[kept.server_host]] == [kept.port_id]
        assert launches.lease(released.id).bound_host is None
    launches.drive(released.id, Status.RELEASED)
    launches.drive(kept.id, Status.ACTIVE)
    assert (made(released.id), launches.lease(released.id).claims) == ([], ())
    assert [server.id for server in made(kept.id)] == [kept.server_id]
