"""Leases whose cGPUs have daemons of their own, and GPU hosts with fences: in order, and with everything given back."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from gsaas.db import endpoints, hosts, leases, models
from gsaas.objects.daemon import Admission, DaemonState
from gsaas.objects.lifecycle import Status
from gsaas.objects.ports import PortRange
from tests.unit.engine.test_kill import active, ends, every_kill, launched, releasing
from tests.unit.engine.world import GPU_HOST, HOST, HOST_ADDRESS, World

PORTS = PortRange(20000, 20099)


@pytest.fixture
def make_world(furnished, tmp_path) -> Iterator[Callable[[], World]]:
    worlds: list[World] = []

    def make() -> World:
        copy = shutil.copy(furnished, tmp_path / f"{uuid.uuid4()}.db")
        world = World(copy, PORTS)
        worlds.append(world)
        fuse, world.fuse.left = world.fuse.left, None
        world.gpu_hosts.sync(GPU_HOST)  # its monitor has started
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


def test_a_lease_is_active_when_its_daemon_is_well_and_the_fence_admits_its_host(world):
    lease_id = world.launch()
    world.drive(lease_id)
    world.check_active(lease_id)
    (daemon,) = world.monitor.serving
    assert (daemon.lease_id, daemon.memory_mb, [daemon.port]) == (
        lease_id,
        4096,
        daemon_ports(world, lease_id),
    )
    assert world.monitor.admitted == {Admission(HOST_ADDRESS, daemon.port)}
    (binding,) = world.endpoint.bindings
    assert {real.port for real in binding.mappings.values()} == {daemon.port}


def test_a_lease_waits_for_a_daemon_that_starts(world):
    world.monitor.starts = DaemonState.STARTING
    lease_id = world.launch()
    assert world.drive(lease_id) is not None
    assert world.lease(lease_id).status == Status.BOOTING
    world.monitor.fare(GPU_HOST, DaemonState.HEALTHY)
    assert world.gpu_hosts.heard(GPU_HOST, world.monitor.report(GPU_HOST)) == [lease_id]
    world.drive(lease_id)
    world.check_active(lease_id)


def test_a_lease_whose_daemon_never_gets_well_fails_and_says_why(world):
    world.monitor.starts = DaemonState.DOWN
    lease_id = world.launch()
    world.drive(lease_id)
    world.monitor.fare(GPU_HOST, DaemonState.DOWN, "ended with status 3: no licence found", 4)
    world.gpu_hosts.note(GPU_HOST, world.monitor.report(GPU_HOST))
    with world.database.write() as session:
        installed = {world.lease(lease_id).port_id: {"installed": True}}
        endpoints.register(session, HOST, {"bindings": installed})
    world.age(lease_id, 3600)
    world.drive(lease_id)
    assert "no licence found" in world.lease(lease_id).fault_message
    world.drive(lease_id)
    world.check_nothing_is_left(lease_id, Status.ERROR)


def test_a_monitor_that_does_not_answer_delays_the_lease_and_not_its_server(world):
    world.monitor.answers = False
    lease_id = world.launch()
    world.drive(lease_id)
    assert world.lease(lease_id).status == Status.BOOTING
    assert list(world.cloud.servers) == [lease_id]
    assert world.endpoint.bindings != []
    world.monitor.answers = True
    world.drive(lease_id)
    world.check_active(lease_id)


def test_claims_are_not_returned_before_the_daemon_is_gone(world):
    lease_id = active(world)
    world.monitor.ends = False
    world.release(lease_id)
    world.drive(lease_id)
    assert world.lease(lease_id).status == Status.RELEASING
    assert world.used_mb() == 4096
    assert world.cloud.servers == {}  # the server need not wait
    assert world.monitor.admitted == set()  # and nobody gets in any more
    world.monitor.all_end()
    world.drive(lease_id)
    world.check_nothing_is_left(lease_id, Status.RELEASED)


def test_claims_are_not_returned_while_the_monitor_is_silent(world):
    lease_id = active(world)
    world.monitor.answers = False
    world.release(lease_id)
    world.drive(lease_id)
    assert world.used_mb() == 4096
    assert None not in daemon_ports(world, lease_id)
    world.monitor.answers = True
    world.drive(lease_id)
    world.check_nothing_is_left(lease_id, Status.RELEASED)


def test_a_host_that_is_gone_for_good_keeps_nobody(world):
    lease_id = active(world)
    world.monitor.answers = False
    world.monitor.daemons.clear()
    with world.database.write() as session:
        hosts.forget(session, GPU_HOST, timeout=None, servers_stay=False)
    world.drive(lease_id)
    assert world.lease(lease_id).claims == ()


def test_without_daemons_of_its_own_a_silent_monitor_keeps_no_claims(furnished, tmp_path):
    """The fence of a host that is down admits nobody anew; the binding is gone."""
    world = World(shutil.copy(furnished, tmp_path / "plain.db"))
    world.gpu_hosts.sync(GPU_HOST)
    lease_id = active(world)
    assert world.monitor.admitted == {Admission(HOST_ADDRESS, 8308)}
    world.monitor.answers = False
    world.release(lease_id)
    world.drive(lease_id)
    assert (world.lease(lease_id).status, world.used_mb()) == (Status.RELEASED, 0)
    world.close()


def test_without_daemons_of_its_own_the_fence_closes_with_the_lease(furnished, tmp_path):
    world = World(shutil.copy(furnished, tmp_path / "plain.db"))
    world.gpu_hosts.sync(GPU_HOST)
    lease_id = active(world)
    other = world.launch()
    world.drive(other)
    world.release(lease_id)
    world.drive(lease_id)
    ports = {claim.gpu.daemon_port for claim in world.lease(other).claims}
    assert world.monitor.admitted == {Admission(HOST_ADDRESS, port) for port in ports}
    world.close()


def test_a_vm_that_moves_is_admitted_from_its_new_host(world):
    lease_id = active(world)
    with world.database.write() as session:
        endpoints.register(session, "compute2", {"bindings": {}, "gpu_address": "192.168.50.22"})
    world.cloud.servers[lease_id] = replace(world.cloud.servers[lease_id], host="compute2")
    world.drive(lease_id)
    (port,) = daemon_ports(world, lease_id)
    assert world.monitor.admitted == {Admission("192.168.50.22", port)}
    assert list(world.endpoint.held["compute2"]) == [world.lease(lease_id).port_id]


def test_a_compute_host_whose_address_is_not_known_gets_no_lease_that_does_not_work(world):
    with world.database.write() as session:
        endpoints.get(session, HOST).gpu_address = None
    lease_id = world.launch()
    world.drive(lease_id)
    assert world.lease(lease_id).status == Status.BOOTING
    with world.database.write() as session:
        endpoints.register(session, HOST, {"bindings": {}, "gpu_address": HOST_ADDRESS})
    world.drive(lease_id)
    world.check_active(lease_id)


def test_an_endpoint_that_starts_again_and_knows_no_address_yet_shuts_nobody_out(world):
    active(world)
    before = world.monitor.admitted
    with world.database.write() as session:
        endpoints.register(session, HOST, {"bindings": {}})
    world.gpu_hosts.sync(GPU_HOST)
    assert world.monitor.admitted == before != set()


def test_orders_that_arrive_late_are_taken_no_notice_of(world):
    lease_id = world.launch()
    late = world.gpu_hosts.orders(GPU_HOST)
    world.drive(lease_id)
    world.release(lease_id)
    world.drive(lease_id)
    world.monitor.apply(GPU_HOST, late)
    world.check_nothing_is_left(lease_id, Status.RELEASED)


def test_a_report_that_arrives_late_is_taken_no_notice_of(world):
    old = world.monitor.report(GPU_HOST)
    lease_id = active(world)
    world.gpu_hosts.note(GPU_HOST, old)
    with world.database.read() as session:
        report = hosts.monitor_reports(session, [GPU_HOST])[GPU_HOST]
    assert [said["lease_id"] for said in report["daemons"].values()] == [lease_id]


def test_the_story_of_a_lease_tells_of_its_daemons_ends_once_each(world):
    lease_id = active(world)
    for state, restarts in (
        (DaemonState.DOWN, 0),
        (DaemonState.DOWN, 0),
        (DaemonState.STARTING, 1),
        (DaemonState.HEALTHY, 1),
        (DaemonState.HEALTHY, 1),
    ):
        world.monitor.fare(GPU_HOST, state, "ended with status 1", restarts)
        world.gpu_hosts.note(GPU_HOST, world.monitor.report(GPU_HOST))
    assert world.story(lease_id)[-2:] == ["daemon-down", "daemon-up"]
    with world.database.read() as session:
        details = [event.detail for event in leases.events(session.connection(), lease_id)][-2:]
    assert details == [
        "the daemon of cGPU 0 is down: ended with status 1",
        "the daemon of cGPU 0 is well again, after 1 restart",
    ]


def test_a_restart_that_fell_between_two_reports_is_told_all_the_same(world):
    lease_id = active(world)
    world.monitor.fare(GPU_HOST, DaemonState.HEALTHY, None, 2)
    world.gpu_hosts.note(GPU_HOST, world.monitor.report(GPU_HOST))
    assert world.story(lease_id)[-2:] == ["daemon-down", "daemon-up"]


def test_a_launch_becomes_active_whenever_the_engine_dies(make_world):
    def check(world, lease_id):
        world.check_active(lease_id)
        assert len(world.monitor.serving) == len(world.monitor.admitted) == 1

    assert every_kill(make_world, launched, check) > 15


def test_a_release_gives_everything_back_whenever_the_engine_dies(make_world):
    assert every_kill(make_world, releasing, ends(Status.RELEASED)) > 15


def test_who_redeemed_a_grant_is_admitted_until_the_lease_is_over(world):
    lease_id = active(world)
    with world.database.write() as session:
        leases.update(session.connection(), lease_id, admitted_address="10.1.1.1")
    world.drive(lease_id)
    (port,) = daemon_ports(world, lease_id)
    assert Admission("10.1.1.1", port) in world.monitor.admitted
    world.monitor.answers = False
    world.release(lease_id)
    world.drive(lease_id)
    assert world.lease(lease_id).admitted_address == "10.1.1.1", "there may be something to remove"
    world.monitor.answers = True
    world.drive(lease_id)
    assert world.lease(lease_id).admitted_address is None
    world.check_nothing_is_left(lease_id, Status.RELEASED)


def test_no_claims_are_returned_and_no_port_is_free_while_a_fence_still_lets_its_consumer_in(world):
    lease_id = active(world)
    with world.database.write() as session:
        leases.update(session.connection(), lease_id, admitted_address="10.1.1.1")
    world.drive(lease_id)
    world.monitor.obeys = False
    world.release(lease_id)

    world.drive(lease_id)

    assert world.monitor.serving == set()
    assert world.used_mb() == 4096
    assert None not in daemon_ports(world, lease_id)
    assert world.lease(lease_id).admitted_address == "10.1.1.1"
    world.monitor.obeys = True
    world.monitor.all_end()
    world.drive(lease_id)
    world.check_nothing_is_left(lease_id, Status.RELEASED)


def test_orders_for_a_host_that_was_gone_for_good_and_came_back_are_the_newest_it_has_heard(world):
    with world.database.write() as session:
        before = hosts.next_serial(session, "gpu9")
        hosts.forget(session, "gpu9", timeout=None, servers_stay=False)
    with world.database.write() as session:
        assert session.get(models.HostRow, "gpu9") is None
        assert hosts.next_serial(session, "gpu9") > before


def test_orders_do_not_make_a_host_come_back_that_is_gone_for_good(world):
    active(world)
    world.monitor.daemons.clear()
    with world.database.write() as session:
        hosts.forget(session, GPU_HOST, timeout=None, servers_stay=False)

    world.gpu_hosts.orders(GPU_HOST)

    with world.database.read() as session:
        assert session.get(models.HostRow, GPU_HOST).forgotten


def test_a_fault_tells_its_tenant_no_host_and_no_address(world):
    world.monitor.answers = False
    lease_id = world.launch()
    world.drive(lease_id)
    with world.database.write() as session:
        installed = {world.lease(lease_id).port_id: {"installed": True}}
        endpoints.register(session, HOST, {"bindings": installed})
    world.age(lease_id, 3600)

    world.drive(lease_id)

    said = world.lease(lease_id).fault_message
    assert "the monitor of a GPU host does not answer" in said
    assert not any(name in said for name in (HOST, GPU_HOST, HOST_ADDRESS, "192.168.50"))
    world.monitor.answers = True
    world.drive(lease_id)
    world.check_nothing_is_left(lease_id, Status.ERROR)
