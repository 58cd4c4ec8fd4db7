# SPDX-License-Identifier: Apache-2.0
"""What others do to a server with any client of Nova's: its lease follows, by what Nova tells and what it is asked."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from openstack.connection import Connection

from gsaas import exceptions
from gsaas.context import RequestContext
from gsaas.engine.reconciler import owner_of
from gsaas.objects.lifecycle import Status
from tests.openstack.bed import hypervisors, processes, settings
from tests.openstack.launches import Launches

pytestmark = [pytest.mark.openstack, pytest.mark.timeout(900)]

HOSTS = settings.FAKE_HOSTS


WAYS = ("notifications", "audit")
IN_BOTH_WAYS = pytest.mark.parametrize("running", WAYS, indirect=True)
"""Of what an engine learns, it does the same whichever way it learns it: what this does not mark is shown for the
second way by `./dev test thorough`."""


@pytest.fixture(params=[WAYS[0], pytest.param(WAYS[1], marks=pytest.mark.thorough)])
def running(request: pytest.FixtureRequest, launches: Launches) -> Iterator[Launches]:
    """A GSaaS whose engine runs, and learns of changes in one way alone."""
    if request.param == "audit":
        launches.cloud.notifies = False
        launches.cloud.audit_interval = 1.0
    with launches.running():
        yield launches


@pytest.fixture
def active(running: Launches, owner: RequestContext) -> Callable[..., Any]:
    """Makes a lease whose server is ACTIVE, and has the running engine do it."""

    def active(host: str | None = None, **fields: Any) -> Any:
        lease_id = running.claim(owner, **fields)
        if host is not None:
            running.pin(lease_id, host)
        running.tell(lease_id, owner)
        return running.await_status(lease_id, Status.ACTIVE)

    return active


@pytest.fixture
def settled(running: Launches, admin: Connection) -> Callable[[str, str], Any]:
    """Waits until Nova is done with a server and it has a status."""

    def settled(server_id: str, status: str) -> Any:
        def ask() -> Any:
            server = admin.compute.get_server(server_id)
            return server.status == status and server.task_state is None and server

        return running.await_that(ask)

    return settled


@IN_BOTH_WAYS
def test_a_server_deleted_with_nova_gives_its_cgpus_back(
    active: Callable, running: Launches, tenant: Connection
):
    lease = active()
    tenant.compute.delete_server(lease.server_id)
    running.await_status(lease.id, Status.RELEASED)
    running.check_nothing_is_held(lease.id)
    assert running.endpoint.told[-1] == ("remove", lease.server_host)


def test_a_server_deleted_before_it_is_wired_releases_its_lease(
    running: Launches, owner: RequestContext, tenant: Connection, settled: Callable
):
    running.endpoint.tap_exists = False
    lease_id = running.claim(owner)
    running.tell(lease_id, owner)
    lease = running.await_status(lease_id, Status.BOOTING)
    # Of one that is deleted earlier, Nova may say that it failed.
    settled(lease.server_id, "ACTIVE")
    tenant.compute.delete_server(lease.server_id)
    running.await_status(lease_id, Status.RELEASED)
    running.check_nothing_is_held(lease_id)


def test_stopping_rebooting_and_rebuilding_change_nothing(
    active: Callable,
    running: Launches,
    tenant: Connection,
    settled: Callable,
):
    lease = active()
    told = list(running.endpoint.told)
    compute, server_id = tenant.compute, lease.server_id
    for act, status in (
        (lambda: compute.stop_server(server_id), "SHUTOFF"),
        (lambda: compute.start_server(server_id), "ACTIVE"),
        (lambda: compute.reboot_server(server_id, "SOFT"), "ACTIVE"),
        (lambda: compute.reboot_server(server_id, "HARD"), "ACTIVE"),
        (lambda: compute.pause_server(server_id), "PAUSED"),
        (lambda: compute.unpause_server(server_id), "ACTIVE"),
        (lambda: compute.suspend_server(server_id), "SUSPENDED"),
        (lambda: compute.resume_server(server_id), "ACTIVE"),
        (lambda: compute.rebuild_server(server_id, running.least["imageRef"]), "ACTIVE"),
    ):
        act()
        settled(server_id, status)
    running.drive(lease.id, Status.ACTIVE)  # one more look, after all that was heard
    assert running.endpoint.told == told
    assert running.lease(lease.id).server_id == server_id


@IN_BOTH_WAYS
def test_a_shelved_server_gives_its_cgpus_back_and_stays_its_owners(
    active: Callable, running: Launches, tenant: Connection, settled: Callable
):
    lease = active()
    server_id = lease.server_id
    tenant.compute.shelve_server(server_id)
    try:
        running.await_status(lease.id, Status.RELEASED)
        running.check_nothing_is_held(lease.id)
        settled(server_id, "SHELVED_OFFLOADED")
        tenant.compute.unshelve_server(server_id)
        settled(server_id, "ACTIVE")
        running.drive(lease.id, Status.RELEASED)
        assert tenant.compute.get_server(server_id).status == "ACTIVE"
    finally:
        tenant.compute.delete_server(server_id)
        running.await_that(lambda: tenant.compute.find_server(server_id) is None)


def test_an_idle_server_is_shelved_for_its_owner_who_keeps_it(
    active: Callable, running: Launches, tenant: Connection, settled: Callable
):
    lease = active()
    server_id = lease.server_id
    running.cloud.shelve(owner_of(lease))
    try:
        running.await_status(lease.id, Status.RELEASED)
        running.check_nothing_is_held(lease.id)
        settled(server_id, "SHELVED_OFFLOADED")
        with pytest.raises(exceptions.ServerRefused):
            running.cloud.shelve(owner_of(lease))
    finally:
        tenant.compute.delete_server(server_id)
        running.await_that(lambda: tenant.compute.find_server(server_id) is None)
    running.cloud.shelve(owner_of(lease))  # nothing is left to be shelved, which is no error


def follows(running: Launches, lease: Any, old: str, new: str) -> None:
    """The binding is on the new host, and was taken from the old one first."""
    running.await_that(lambda: list(running.endpoint.bindings) == [new])
    told = running.endpoint.told
    assert told.index(("remove", old)) < told.index(("apply", new))
    found = running.await_status(lease.id, Status.ACTIVE)
    assert (found.server_host, found.bound_host, found.port_id) == (new, new, lease.port_id)


@IN_BOTH_WAYS
def test_a_server_that_is_migrated_live_takes_its_binding_along(
    active: Callable, running: Launches, admin: Connection, settled: Callable
):
    lease = active(HOSTS[0])
    admin.compute.live_migrate_server(lease.server_id, host=HOSTS[1], block_migration="auto")
    follows(running, lease, HOSTS[0], HOSTS[1])
    settled(lease.server_id, "ACTIVE")


def test_a_server_that_is_migrated_cold_takes_its_binding_along_and_back(
    active: Callable, running: Launches, admin: Connection, settled: Callable
):
    lease = active(HOSTS[0])
    admin.compute.migrate_server(lease.server_id, host=HOSTS[1])
    settled(lease.server_id, "VERIFY_RESIZE")
    follows(running, lease, HOSTS[0], HOSTS[1])
    running.endpoint.told.clear()
    admin.compute.revert_server_resize(lease.server_id)
    settled(lease.server_id, "ACTIVE")
    follows(running, lease, HOSTS[1], HOSTS[0])


def test_a_server_that_is_resized_keeps_its_cgpus_wherever_it_lands(
    active: Callable, running: Launches, admin: Connection, settled: Callable, larger: str
):
    lease = active()
    admin.compute.resize_server(lease.server_id, larger)
    server = settled(lease.server_id, "VERIFY_RESIZE")
    admin.compute.confirm_server_resize(lease.server_id)
    settled(lease.server_id, "ACTIVE")
    running.await_that(lambda: list(running.endpoint.bindings) == [server.compute_host])
    assert running.await_status(lease.id, Status.ACTIVE).bound_host == server.compute_host


@pytest.fixture
def larger(admin: Connection, tenant: Connection) -> Iterator[str]:
    """A flavor like the fake one, with a little more memory."""
    small = tenant.compute.find_flavor(settings.FAKE_FLAVOR)
    flavor = admin.compute.create_flavor(name="fake-larger", ram=small.ram + 64, vcpus=1, disk=1)
    specs = admin.compute.fetch_flavor_extra_specs(small.id).extra_specs
    admin.compute.create_flavor_extra_specs(flavor.id, specs)
    yield flavor.id
    admin.compute.delete_flavor(flavor.id)


@pytest.mark.alone
def test_a_server_that_is_evacuated_takes_its_binding_along(
    active: Callable, running: Launches, admin: Connection
):
    lease = active(HOSTS[0])
    with lost(running, admin, HOSTS[0]):
        admin.compute.evacuate_server(lease.server_id, host=HOSTS[1])
        follows(running, lease, HOSTS[0], HOSTS[1])


@contextmanager
def lost(running: Launches, admin: Connection, host: str) -> Iterator[None]:
    """Have a compute host die, and come back afterwards."""
    (daemon,) = (each for each in hypervisors.COMPUTES if each.name == f"nova-compute-{host}")
    processes.end([processes.running(daemon.name).pid])

    def forced_down(down: bool) -> bool:
        (service,) = admin.compute.services(binary="nova-compute", host=host)
        path, body = f"/os-services/{service.id}", {"forced_down": down}
        return admin.compute.put(path, json=body, microversion="2.53").status_code == 200

    assert forced_down(True)
    try:
        yield
    finally:
        processes.ensure(replace(daemon, ready=lambda: True))
        # Nova believes in it again only after it has forgotten the servers that were taken from it.
        running.await_that(lambda: forced_down(False))
        processes.ensure(daemon)


def test_what_happened_while_no_engine_ran_is_seen_when_one_starts(
    launches: Launches, owner: RequestContext, admin: Connection
):
    gone, moved = launches.active(owner), launches.claim(owner)
    launches.pin(moved, HOSTS[0])
    launches.reconciler.callers.keep(moved, owner)
    moved = launches.drive(moved, Status.ACTIVE)
    admin.compute.delete_server(gone.server_id)
    admin.compute.live_migrate_server(moved.server_id, host=HOSTS[1], block_migration="auto")
    launches.await_that(
        lambda: (
            admin.compute.get_server(moved.server_id).compute_host == HOSTS[1]
            and admin.compute.find_server(gone.server_id, all_projects=True) is None
        )
    )
    launches.reconciler.cloud.notifies = False
    with launches.running():
        launches.await_status(gone.id, Status.RELEASED)
        launches.await_that(lambda: launches.lease(moved.id).bound_host == HOSTS[1])


def test_a_server_whose_owner_took_its_tag_away_is_followed_all_the_same(
    active: Callable, running: Launches, tenant: Connection
):
    lease = active()
    tenant.compute.put(f"/servers/{lease.server_id}/tags", json={"tags": []}, microversion="2.26")
    tenant.compute.delete_server(lease.server_id)
    running.await_status(lease.id, Status.RELEASED)
