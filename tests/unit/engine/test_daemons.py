# SPDX-License-Identifier: Apache-2.0
"""Leases whose cGPUs have daemons of their own, and GPU hosts with fences: in order, and with everything given back."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from oslo_utils import timeutils

from gsaas.api import degraded
from gsaas.db import endpoints, hosts, leases, models
from gsaas.engine import desired_state, host_reports
from gsaas.objects.binding import binding_of
from gsaas.objects.daemon import Admission, DaemonState
from gsaas.objects.lifecycle import Status
from gsaas.objects.ports import PortRange
from tests.unit.engine.test_kill import (
    active,
    check_left_nothing,
    kill_after_every_effect,
    launched,
    releasing,
)
from tests.unit.engine.world import GPU_HOST, HOST, HOST_ADDRESS, World

PORTS = PortRange(20000, 20099)


@pytest.fixture
def make_world(database_file, tmp_path) -> Iterator[Callable[[], World]]:
    worlds: list[World] = []

    def make() -> World:
        copy = shutil.copy(database_file, tmp_path / f"{uuid.uuid4()}.db")
        world = World(copy, PORTS)
        worlds.append(world)
        fuse, world.fuse.left = world.fuse.left, None
        world.gpu_hosts.reconcile(GPU_HOST)  # its monitor has started
        world.fuse.left = fuse
        return world

    yield make
    for world in worlds:
        world.close()


@pytest.fixture
def world(make_world) -> World:
    return make_world()


def daemon_ports(world: World, lease_id: str) -> list[int | None]:
    return [claim.daemon_port for claim in world.lease(lease_id).claims]


def test_a_lease_is_active_when_its_daemon_is_healthy_and_the_fence_admits_its_host(world):
    lease_id = world.launch()
    world.reconcile(lease_id)
    world.check_active(lease_id)
    (daemon,) = world.monitor.running
    assert (daemon.lease_id, daemon.memory_mb, [daemon.port]) == (
        lease_id,
        4096,
        daemon_ports(world, lease_id),
    )
    assert world.monitor.admitted == {Admission(HOST_ADDRESS, daemon.port)}
    (binding,) = world.endpoint.bindings
    assert {real.port for real in binding.mappings.values()} == {daemon.port}


@pytest.mark.slow
def test_one_daemon_serves_two_cgpus_and_starts_ends_and_fails_for_both(world):
    world.monitor.initial_state = DaemonState.STARTING
    lease_id = world.launch_with_one_daemon()
    world.reconcile(lease_id)
    assert world.lease(lease_id).status == Status.BOOTING
    world.monitor.set_state(GPU_HOST, DaemonState.HEALTHY)
    world.gpu_hosts.store_report(GPU_HOST, world.monitor.report(GPU_HOST))
    world.reconcile(lease_id)
    world.check_active(lease_id)
    (daemon,) = world.monitor.running
    claims = world.lease(lease_id).claims
    assert (daemon.key, daemon.memory_mb) == (f"{lease_id}-0", 2048)
    assert daemon.gpus == tuple(claim.gpu_uuid for claim in claims)
    assert sorted(daemon.gpus) == ["GPU-0", "GPU-1"]
    assert world.monitor.admitted == {Admission(HOST_ADDRESS, daemon.port)}
    (binding,) = world.endpoint.bindings
    assert [real.port for real in binding.mappings.values()] == [daemon.port] * 2
    world.monitor.set_state(GPU_HOST, DaemonState.DOWN, "ended with status 1")
    world.gpu_hosts.store_report(GPU_HOST, world.monitor.report(GPU_HOST))
    with world.database.read() as session:
        *_, event = leases.events(session.connection(), lease_id)
        lease = leases.get(session.connection(), lease_id)
    assert event.detail == "the daemon of cGPUs 0 to 1 is down: ended with status 1"
    why = degraded.reasons(lease, 3600, timeutils.utcnow())
    assert why == [
        f"the daemon of GPU {uuid} on gpu1 is down: ended with status 1" for uuid in daemon.gpus
    ]
    world.release(lease_id)
    world.reconcile(lease_id)
    world.check_nothing_is_left(lease_id, Status.RELEASED)


def test_masked_addresses_lead_to_all_ports_of_a_daemon_and_the_fence_admits_to_these(world):
    lease_id = world.launch_with_ports(2)
    world.reconcile(lease_id)
    world.check_active(lease_id)
    (port,) = daemon_ports(world, lease_id)
    (daemon,) = world.monitor.running
    assert list(daemon.all_ports) == [port, port + 1]
    assert world.monitor.admitted == {Admission(HOST_ADDRESS, port + n) for n in range(2)}
    (binding,) = world.endpoint.bindings
    (claim,) = world.lease(lease_id).claims
    assert {str(masked): str(real) for masked, real in binding.mappings.items()} == {
        f"{claim.masked_ip}:{claim.masked_port + n}": f"192.168.50.11:{port + n}" for n in range(2)
    }
    handled = world.gpu_hosts.handle_report(GPU_HOST, world.monitor.report(GPU_HOST))
    assert handled.in_sync
    world.release(lease_id)
    world.reconcile(lease_id)
    world.check_nothing_is_left(lease_id, Status.RELEASED)
    assert world.monitor.admitted == set()


def test_a_gpu_whose_port_is_the_last_one_keeps_nobody_from_its_binding(world):
    """A host may report any port: the endpoint asks for the bindings of all leases at once."""
    lease = world.lease(world.launch_with_ports(2))
    (claim,) = lease.claims
    last = replace(claim.gpu, daemon_port=65535)
    claim = replace(claim, daemon_host=None, daemon_port=None, claimed_gpu=last)
    lease = lease.with_(has_server=False, port_id="p", claims=(claim,))
    assert [real.port for real in binding_of(lease).mappings.values()] == [65535]
    admitted = desired_state.admissions_of(lease.with_(admitted_address="192.0.2.9"), claim, {})
    assert list(admitted) == [Admission("192.0.2.9", 65535)]


def test_a_fence_that_admits_to_the_first_port_only_is_out_of_sync(world):
    lease_id = world.launch_with_ports(2)
    world.reconcile(lease_id)
    lease, report = world.lease(lease_id), world.monitor.report(GPU_HOST)
    (port,) = daemon_ports(world, lease_id)
    report["fence"]["admissions"].remove(f"{HOST_ADDRESS}:{port + 1}")
    found = desired_state.observed(lease, {GPU_HOST: report}, {HOST: HOST_ADDRESS})
    assert found.out_of_sync_host == GPU_HOST


def test_the_fence_admits_who_has_redeemed_a_grant_to_all_ports_of_the_gpus_daemon(world):
    lease = world.lease(world.launch_with_ports(3)).with_(admitted_address="192.0.2.9")
    claims = [replace(claim, daemon_host=None, daemon_port=None) for claim in lease.claims]
    admitted = desired_state.admissions_of(lease, claims[0], {})
    first = claims[0].gpu.daemon_port
    assert list(admitted) == [Admission("192.0.2.9", first + n) for n in range(3)]


def test_a_daemon_of_other_gpus_is_not_the_one_that_a_lease_needs(world):
    lease_id = world.launch_with_one_daemon()
    world.reconcile(lease_id)
    lease, report = world.lease(lease_id), world.monitor.report(GPU_HOST)
    assert (
        desired_state.observed(lease, {GPU_HOST: report}, {HOST: HOST_ADDRESS}).out_of_sync_host
        is None
    )
    report["daemons"][f"{lease_id}-0"]["other_gpus"] = ["GPU-7"]
    found = desired_state.observed(lease, {GPU_HOST: report}, {HOST: HOST_ADDRESS})
    assert found.out_of_sync_host == GPU_HOST


def test_a_lease_waits_for_a_daemon_that_starts(world):
    world.monitor.initial_state = DaemonState.STARTING
    lease_id = world.launch()
    assert world.reconcile(lease_id) is not None
    assert world.lease(lease_id).status == Status.BOOTING
    world.monitor.set_state(GPU_HOST, DaemonState.HEALTHY)
    handled = world.gpu_hosts.handle_report(GPU_HOST, world.monitor.report(GPU_HOST))
    assert handled.waiting == [lease_id]
    world.reconcile(lease_id)
    world.check_active(lease_id)


def test_a_lease_whose_daemon_never_gets_healthy_fails_and_says_why(world):
    world.monitor.initial_state = DaemonState.DOWN
    lease_id = world.launch()
    world.reconcile(lease_id)
    world.monitor.set_state(GPU_HOST, DaemonState.DOWN, "ended with status 3: no licence found", 4)
    world.gpu_hosts.store_report(GPU_HOST, world.monitor.report(GPU_HOST))
    with world.database.write() as session:
        installed = {world.lease(lease_id).port_id: {"installed": True}}
        endpoints.register(session, HOST, {"bindings": installed})
    world.age(lease_id, 3600)
    world.reconcile(lease_id)
    assert "no licence found" in world.lease(lease_id).fault_message
    world.reconcile(lease_id)
    world.check_nothing_is_left(lease_id, Status.ERROR)


def test_a_monitor_that_does_not_answer_delays_the_lease_and_not_its_server(world):
    world.monitor.answers = False
    lease_id = world.launch()
    world.reconcile(lease_id)
    assert world.lease(lease_id).status == Status.BOOTING
    assert list(world.cloud.servers) == [lease_id]
    assert world.endpoint.bindings != []
    world.monitor.answers = True
    world.reconcile(lease_id)
    world.check_active(lease_id)


def test_claims_are_not_returned_before_the_daemon_is_gone(world):
    lease_id = active(world)
    world.monitor.ends_daemons = False
    world.release(lease_id)
    world.reconcile(lease_id)
    assert world.lease(lease_id).status == Status.RELEASING
    assert world.used_mb() == 4096
    assert world.cloud.servers == {}  # the server need not wait
    assert world.monitor.admitted == set()  # and no address is admitted any more
    world.monitor.end_draining()
    world.reconcile(lease_id)
    world.check_nothing_is_left(lease_id, Status.RELEASED)


def test_the_port_of_a_daemon_is_not_free_while_an_endpoint_may_lead_there(world):
    """Another lease would be given the port, whose daemon the consumer of this one could reach."""
    lease_id = active(world)
    world.endpoint.answers = False
    world.release(lease_id)
    world.reconcile(lease_id)
    assert list(world.monitor.running) == []
    assert None not in daemon_ports(world, lease_id)
    world.endpoint.answers = True
    world.reconcile(lease_id)
    world.check_nothing_is_left(lease_id, Status.RELEASED)


def test_claims_are_not_returned_while_the_monitor_is_silent(world):
    lease_id = active(world)
    world.monitor.answers = False
    world.release(lease_id)
    world.reconcile(lease_id)
    assert world.used_mb() == 4096
    assert None not in daemon_ports(world, lease_id)
    world.monitor.answers = True
    world.reconcile(lease_id)
    world.check_nothing_is_left(lease_id, Status.RELEASED)


def test_a_host_that_is_gone_for_good_delays_no_lease(world):
    lease_id = active(world)
    world.monitor.answers = False
    world.monitor.daemons.clear()
    with world.database.write() as session:
        hosts.forget(session, GPU_HOST, timeout=None, servers_stay=False)
    world.reconcile(lease_id)
    assert world.lease(lease_id).claims == ()


def test_the_port_of_a_daemon_is_not_free_after_its_host_came_back_while_an_endpoint_may_lead_there(
    world,
):
    """An operator has forgotten the host, which was only silent; the endpoint of the consumer is silent still."""
    former = active(world)
    [port] = daemon_ports(world, former)
    world.endpoint.answers = False
    with world.database.write() as session:
        hosts.forget(session, GPU_HOST, timeout=None, servers_stay=True)
    world.reconcile(former)
    with world.database.write() as session:
        hosts.ensure(session, GPU_HOST)  # it reports
        hosts.set_disabled(session, GPU_HOST, False)
    latter = world.launch()
    world.reconcile(latter)
    assert port not in daemon_ports(world, latter)
    world.endpoint.answers = True
    world.reconcile(former)
    assert world.lease(former).claims == ()


def test_without_daemons_of_its_own_a_silent_monitor_keeps_no_claims(database_file, tmp_path):
    """The fence of a host that is down admits no new address; the binding is gone."""
    world = World(shutil.copy(database_file, tmp_path / "plain.db"))
    world.gpu_hosts.reconcile(GPU_HOST)
    lease_id = active(world)
    assert world.monitor.admitted == {Admission(HOST_ADDRESS, 8308)}
    world.monitor.answers = False
    world.release(lease_id)
    world.reconcile(lease_id)
    assert (world.lease(lease_id).status, world.used_mb()) == (Status.RELEASED, 0)
    world.close()


def test_without_daemons_of_its_own_the_fence_closes_with_the_lease(database_file, tmp_path):
    world = World(shutil.copy(database_file, tmp_path / "plain.db"))
    world.gpu_hosts.reconcile(GPU_HOST)
    lease_id = active(world)
    other = world.launch()
    world.reconcile(other)
    world.release(lease_id)
    world.reconcile(lease_id)
    ports = {claim.gpu.daemon_port for claim in world.lease(other).claims}
    assert world.monitor.admitted == {Admission(HOST_ADDRESS, port) for port in ports}
    world.close()


def test_a_vm_that_moves_is_admitted_from_its_new_host(world):
    lease_id = active(world)
    with world.database.write() as session:
        endpoints.register(session, "compute2", {"bindings": {}, "gpu_address": "192.168.50.22"})
    world.cloud.servers[lease_id] = replace(world.cloud.servers[lease_id], host="compute2")
    world.reconcile(lease_id)
    (port,) = daemon_ports(world, lease_id)
    assert world.monitor.admitted == {Admission("192.168.50.22", port)}
    assert list(world.endpoint.bindings_by_host["compute2"]) == [world.lease(lease_id).port_id]


def test_a_compute_host_whose_address_is_not_known_gets_no_lease_that_does_not_work(world):
    with world.database.write() as session:
        endpoints.get(session, HOST).gpu_address = None
    lease_id = world.launch()
    world.reconcile(lease_id)
    assert world.lease(lease_id).status == Status.BOOTING
    with world.database.write() as session:
        endpoints.register(session, HOST, {"bindings": {}, "gpu_address": HOST_ADDRESS})
    world.reconcile(lease_id)
    world.check_active(lease_id)


def test_an_endpoint_that_starts_again_and_knows_no_address_yet_shuts_no_lease_out(world):
    active(world)
    before = world.monitor.admitted
    with world.database.write() as session:
        endpoints.register(session, HOST, {"bindings": {}})
    world.gpu_hosts.reconcile(GPU_HOST)
    assert world.monitor.admitted == before != set()


def test_a_desired_state_that_arrives_late_is_ignored(world):
    lease_id = world.launch()
    late = world.gpu_hosts.next_desired_state(GPU_HOST)
    world.reconcile(lease_id)
    world.release(lease_id)
    world.reconcile(lease_id)
    world.monitor.apply(GPU_HOST, late)
    world.check_nothing_is_left(lease_id, Status.RELEASED)


def test_a_report_that_arrives_late_is_ignored(world):
    old = world.monitor.report(GPU_HOST)
    lease_id = active(world)
    world.gpu_hosts.store_report(GPU_HOST, old)
    with world.database.read() as session:
        report = hosts.monitor_reports(session, [GPU_HOST])[GPU_HOST]
    assert [condition["lease_id"] for condition in report["daemons"].values()] == [lease_id]


def test_the_end_of_a_daemon_is_one_event_of_its_lease(world):
    lease_id = active(world)
    for state, restarts in (
        (DaemonState.DOWN, 0),
        (DaemonState.DOWN, 0),
        (DaemonState.STARTING, 1),
        (DaemonState.HEALTHY, 1),
        (DaemonState.HEALTHY, 1),
    ):
        world.monitor.set_state(GPU_HOST, state, "ended with status 1", restarts)
        world.gpu_hosts.store_report(GPU_HOST, world.monitor.report(GPU_HOST))
    assert world.events(lease_id)[-2:] == ["daemon-down", "daemon-up"]
    with world.database.read() as session:
        details = [event.detail for event in leases.events(session.connection(), lease_id)][-2:]
    assert details == [
        "the daemon of cGPU 0 is down: ended with status 1",
        "the daemon of cGPU 0 is healthy again, after 1 restart",
    ]


def test_a_restart_between_two_reports_is_an_event_too(world):
    lease_id = active(world)
    world.monitor.set_state(GPU_HOST, DaemonState.HEALTHY, None, 2)
    world.gpu_hosts.store_report(GPU_HOST, world.monitor.report(GPU_HOST))
    assert world.events(lease_id)[-2:] == ["daemon-down", "daemon-up"]


@pytest.mark.slow
def test_a_launch_becomes_active_whenever_the_engine_dies(make_world):
    def check(world, lease_id):
        world.check_active(lease_id)
        assert len(world.monitor.running) == len(world.monitor.admitted) == 1

    assert kill_after_every_effect(make_world, launched, check) > 15


@pytest.mark.slow
def test_a_release_gives_everything_back_whenever_the_engine_dies(make_world):
    assert kill_after_every_effect(make_world, releasing, check_left_nothing(Status.RELEASED)) > 15


@pytest.mark.slow
def test_the_address_that_redeemed_a_grant_is_admitted_until_the_lease_is_over(world):
    lease_id = active(world)
    with world.database.write() as session:
        leases.update(session.connection(), lease_id, admitted_address="10.1.1.1")
    world.reconcile(lease_id)
    (port,) = daemon_ports(world, lease_id)
    assert Admission("10.1.1.1", port) in world.monitor.admitted
    world.monitor.answers = False
    world.release(lease_id)
    world.reconcile(lease_id)
    assert world.lease(lease_id).admitted_address == "10.1.1.1", "there may be something to remove"
    world.monitor.answers = True
    world.reconcile(lease_id)
    assert world.lease(lease_id).admitted_address is None
    world.check_nothing_is_left(lease_id, Status.RELEASED)


def test_no_claims_are_returned_and_no_port_is_free_while_a_fence_still_lets_its_consumer_in(world):
    lease_id = active(world)
    with world.database.write() as session:
        leases.update(session.connection(), lease_id, admitted_address="10.1.1.1")
    world.reconcile(lease_id)
    world.monitor.changes_fence = False
    world.release(lease_id)

    world.reconcile(lease_id)

    assert world.monitor.running == set()
    assert world.used_mb() == 4096
    assert None not in daemon_ports(world, lease_id)
    assert world.lease(lease_id).admitted_address == "10.1.1.1"
    world.monitor.changes_fence = True
    world.monitor.end_draining()
    world.reconcile(lease_id)
    world.check_nothing_is_left(lease_id, Status.RELEASED)


def test_the_desired_state_of_a_host_that_came_back_is_newer_than_any_before(world):
    with world.database.write() as session:
        before = hosts.next_serial(session, "gpu9")
        hosts.forget(session, "gpu9", timeout=None, servers_stay=False)
    with world.database.write() as session:
        assert session.get(models.HostRow, "gpu9") is None
        assert hosts.next_serial(session, "gpu9") > before


def test_a_desired_state_does_not_bring_back_a_host_that_is_gone_for_good(world):
    active(world)
    world.monitor.daemons.clear()
    with world.database.write() as session:
        hosts.forget(session, GPU_HOST, timeout=None, servers_stay=False)

    world.gpu_hosts.next_desired_state(GPU_HOST)

    with world.database.read() as session:
        assert session.get(models.HostRow, GPU_HOST).forgotten


def test_a_fault_names_no_host_and_no_address(world):
    world.monitor.answers = False
    lease_id = world.launch()
    world.reconcile(lease_id)
    with world.database.write() as session:
        installed = {world.lease(lease_id).port_id: {"installed": True}}
        endpoints.register(session, HOST, {"bindings": installed})
    world.age(lease_id, 3600)

    world.reconcile(lease_id)

    message = world.lease(lease_id).fault_message
    assert "the monitor of a GPU host does not answer" in message
    assert not any(name in message for name in (HOST, GPU_HOST, HOST_ADDRESS, "192.168.50"))
    world.monitor.answers = True
    world.reconcile(lease_id)
    world.check_nothing_is_left(lease_id, Status.ERROR)


WITHOUT_MPS = "is not started, because its limit of 4096 MiB would have no effect"


def test_a_daemon_that_could_not_be_started_at_all_is_an_event_at_once(world):
    """As without an MPS control daemon: then the first report of a daemon says that it is down."""
    world.monitor.initial_state = DaemonState.STARTING
    lease_id = world.launch()
    world.reconcile(lease_id)
    before = world.monitor.report(GPU_HOST)
    with world.database.write() as session:
        hosts.ensure(session, GPU_HOST).monitor_report = {**before, "daemons": {}}
    world.monitor.set_state(GPU_HOST, DaemonState.DOWN, WITHOUT_MPS)
    world.gpu_hosts.store_report(GPU_HOST, world.monitor.report(GPU_HOST))
    with world.database.read() as session:
        last = leases.events(session.connection(), lease_id)[-1]
    assert (last.event, last.detail) == (
        "daemon-down",
        f"the daemon of cGPU 0 is down: {WITHOUT_MPS}",
    )


@pytest.mark.parametrize("begin", [World.launch, World.alloc])
def test_a_lease_whose_daemon_could_not_be_started_again_and_again_fails_and_says_why(world, begin):
    """Nobody has to wait for `boot_timeout` to read it."""
    world.monitor.initial_state = DaemonState.DOWN
    lease_id = begin(world)
    world.reconcile(lease_id)
    assert world.lease(lease_id).status in (Status.BOOTING, Status.CLAIMED), "it may still start"
    world.monitor.set_state(GPU_HOST, DaemonState.DOWN, WITHOUT_MPS, restarts=3, failed_starts=4)
    world.gpu_hosts.store_report(GPU_HOST, world.monitor.report(GPU_HOST))
    world.reconcile(lease_id)
    fault = world.lease(lease_id)
    assert (fault.status, fault.fault_step) == (Status.ERROR, "start-daemon")
    assert fault.fault_message == (
        f"the daemon of its cGPU 0 is down: {WITHOUT_MPS}; this was tried 4 times, so ask your operator"
    )
    world.reconcile(lease_id)
    world.check_nothing_is_left(lease_id, Status.ERROR)


def test_a_lease_whose_daemon_was_healthy_since_its_restarts_does_not_fail(world):
    world.monitor.initial_state = DaemonState.DOWN
    lease_id = world.alloc()
    world.reconcile(lease_id)
    world.monitor.set_state(GPU_HOST, DaemonState.DOWN, "was killed", restarts=9, failed_starts=1)
    world.gpu_hosts.store_report(GPU_HOST, world.monitor.report(GPU_HOST))
    world.reconcile(lease_id)
    assert world.lease(lease_id).status == Status.CLAIMED


@pytest.mark.parametrize(("restarts", "status"), [(2, Status.CLAIMED), (3, Status.ERROR)])
def test_of_a_monitor_of_the_last_release_the_restarts_count(world, restarts, status):
    world.monitor.initial_state = DaemonState.DOWN
    lease_id = world.alloc()
    world.reconcile(lease_id)
    world.monitor.set_state(GPU_HOST, DaemonState.DOWN, WITHOUT_MPS, restarts)
    report = world.monitor.report(GPU_HOST)
    for daemon in report["daemons"].values():
        del daemon["failed_starts"]
    world.gpu_hosts.store_report(GPU_HOST, host_reports.gpu_host_report(report))
    world.reconcile(lease_id)
    assert world.lease(lease_id).status == status
