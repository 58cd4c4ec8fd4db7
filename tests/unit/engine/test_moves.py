# SPDX-License-Identifier: Apache-2.0
"""cGPUs move to other GPUs: served on both while masked addresses change, on one side afterwards, wherever it ends.

While these run, `Moving.check_safety` checks after every effect that the binding leads to a daemon that runs and whose
fence admits the consumer, and that what GPUs count is what is claimed of them.
"""

from __future__ import annotations

import datetime
import itertools
import shutil
import uuid
from collections.abc import Callable, Iterator

import pytest

from gsaas import exceptions
from gsaas.api import degraded
from gsaas.db import gpus, hosts, leases, projects, readings, recount
from gsaas.gpgpums.move_changes import Target
from gsaas.objects.daemon import DaemonState
from gsaas.objects.gpu_report import GpuInfo
from gsaas.objects.lifecycle import Status
from gsaas.objects.move import Kind
from gsaas.objects.ports import PortRange
from tests.unit.engine.test_kill import active, check_left_nothing, kill_after_every_effect
from tests.unit.engine.world import GPU_HOST, HOST, World

PORTS = PortRange(20000, 20099)
OTHER = "gpu2"


class Moving(World):
    """A cloud with two GPU hosts. `settled` says that no engine is in the midst of a step."""

    def check_safety(self) -> None:
        super().check_safety()
        with self.database.read() as session:
            connection = session.connection()
            assert recount.miscounted(connection) == []
            for binding in self.endpoint.bindings:
                lease = leases.get(connection, binding.lease_id)
                if lease.status != Status.ACTIVE:
                    continue
                served = {str(claim.real_address): claim for claim in lease.all_claims}
                for real in map(str, binding.mappings.values()):
                    assert real in served, f"{binding} leads to a GPU that its lease has not"
                    claim = served[real]
                    if claim.daemon_port is not None:
                        there = self.monitor.daemons[claim.gpu.host_name]
                        assert claim.daemon_key in there, f"{binding} leads to no daemon"
                    ports = {each.port for each in self.monitor.fences[claim.gpu.host_name]}
                    assert int(real.partition(":")[2]) in ports, f"{binding} leads to a fence"

    def move(self, lease_id: str, kind: Kind = Kind.IDLE, **target: object) -> None:
        self.claims.move(lease_id, Target(**target), kind)

    def gpu_of(self, lease_id: str) -> str:
        (claim,) = self.lease(lease_id).claims
        return claim.gpu_uuid

    def check_settled(self, lease_id: str, host: str) -> None:
        """A lease has one cGPU on *host*, and nothing anywhere else."""
        self.check_active(lease_id)
        lease = self.lease(lease_id)
        (claim,) = lease.claims
        assert (claim.gpu.host_name, lease.others, lease.moving) == (host, (), None)
        assert {daemon.gpu_uuid for daemon in self.monitor.running} == {claim.gpu_uuid}
        assert len(self.monitor.running) == len(self.monitor.admitted) == 1
        assert self.claims.gpus() and self.used_mb() == claim.memory_mb


@pytest.fixture
def make_world(database_file, tmp_path) -> Iterator[Callable[[], Moving]]:
    worlds: list[Moving] = []

    def make() -> Moving:
        copy = shutil.copy(database_file, tmp_path / f"{uuid.uuid4()}.db")
        world = Moving(copy, PORTS)
        worlds.append(world)
        left, world.fuse.left = world.fuse.left, None
        infos = [GpuInfo("GPU-far", 0, "Quadro M4000", 8192, 8308)]
        with world.database.write() as session:
            gpus.register(session, OTHER, "192.168.50.12", infos)
        for host in (GPU_HOST, OTHER):
            world.gpu_hosts.reconcile(host)
        world.fuse.left = left
        return world

    yield make
    for world in worlds:
        world.close()


@pytest.fixture
def world(make_world) -> Moving:
    return make_world()


def launched(world: Moving) -> str:
    """Return a lease whose cGPU is on the first host."""
    lease_id = active(world)
    if world.lease(lease_id).claims[0].gpu.host_name != GPU_HOST:
        world.move(lease_id, host=GPU_HOST)
        world.reconcile(lease_id)
    return lease_id


def moving(world: Moving) -> str:
    lease_id = launched(world)
    world.move(lease_id, host=OTHER)
    return lease_id


def test_a_cgpu_moves_to_another_host_and_its_environment_stays(world):
    lease_id = launched(world)
    before = world.lease(lease_id)
    world.move(lease_id, host=OTHER)
    world.reconcile(lease_id)
    world.check_settled(lease_id, OTHER)
    after = world.lease(lease_id)
    assert after.claims[0].masked_address == before.claims[0].masked_address
    assert (after.claimed_mb, after.claimed_gpus) == (before.claimed_mb, before.claimed_gpus)
    assert world.events(lease_id)[-2:] == ["move", "moved"]


def test_a_cgpu_moves_to_another_gpu_of_its_host_and_back(world):
    lease_id = launched(world)
    first = world.gpu_of(lease_id)
    (second,) = {"GPU-0", "GPU-1"} - {first}
    for gpu in (second, first, second):
        world.move(lease_id, gpu_uuid=gpu)
        world.reconcile(lease_id)
        world.check_settled(lease_id, GPU_HOST)
        assert world.gpu_of(lease_id) == gpu


@pytest.mark.slow
def test_a_move_ends_on_one_side_wherever_the_engine_is_killed(make_world):
    count = kill_after_every_effect(
        make_world, moving, lambda world, lease_id: world.check_settled(lease_id, OTHER)
    )
    assert count > 10


@pytest.mark.slow
def test_a_move_that_is_undone_leaves_the_lease_as_it_was_wherever_the_engine_is_killed(make_world):
    def connected(world):
        lease_id = moving(world)
        world.endpoint.open_connections = 2
        return lease_id

    kill_after_every_effect(
        make_world, connected, lambda world, lease_id: world.check_settled(lease_id, GPU_HOST)
    )


@pytest.mark.slow
def test_a_lease_released_at_any_moment_of_its_move_leaves_nothing(make_world):
    check = check_left_nothing(Status.RELEASED)
    for effects in itertools.count():
        world = make_world()
        lease_id = moving(world)
        killed = world.drive_until_killed(lease_id, effects)
        world.release(lease_id)
        world.reconcile(lease_id)
        check(world, lease_id)
        if not killed:
            break


def test_open_connections_undo_an_idle_move_and_are_cut_by_one_that_may(world):
    lease_id = moving(world)
    world.endpoint.open_connections = 1
    world.reconcile(lease_id)
    world.check_settled(lease_id, GPU_HOST)
    assert world.events(lease_id)[-2:] == ["move", "move-undone"]

    world.move(lease_id, Kind.CUT, host=OTHER)
    world.reconcile(lease_id)
    world.check_settled(lease_id, OTHER)


def test_a_move_asked_for_again_is_the_same_one_and_may_be_forced_meanwhile(world):
    lease_id = launched(world)
    world.move(lease_id, host=OTHER)
    first = world.lease(lease_id)
    world.move(lease_id, host=OTHER)
    world.move(lease_id)
    assert world.lease(lease_id) == first
    world.move(lease_id, Kind.CUT)
    world.endpoint.open_connections = 1
    world.reconcile(lease_id)
    world.check_settled(lease_id, OTHER)


def test_a_second_move_elsewhere_has_to_wait_for_the_first(world):
    lease_id = moving(world)
    with pytest.raises(exceptions.LeaseNotMovable, match="has not ended"):
        world.move(lease_id, gpu_uuid="GPU-0")


def test_a_cgpu_whose_daemon_does_not_start_elsewhere_stays_where_it_is(world):
    lease_id = moving(world)
    world.monitor.initial_state = DaemonState.STARTING
    assert world.reconcile(lease_id) is not None  # it waits, and is served where it was
    assert world.lease(lease_id).moving == "starting"
    world.monitor.set_state(OTHER, DaemonState.DOWN, "no such library", failed_starts=4)
    with world.database.write() as session:
        hosts.ensure(session, OTHER).monitor_report = world.monitor.report(OTHER)
    world.reconcile(lease_id)
    world.check_settled(lease_id, GPU_HOST)


def test_a_cgpu_stays_if_the_other_host_does_not_answer_for_as_long_as_a_boot_may_take(world):
    lease_id = launched(world)
    world.monitor.answers = False
    world.move(lease_id, host=OTHER)
    assert world.reconcile(lease_id) is not None
    assert world.lease(lease_id).moving == "starting"
    began = world.lease(lease_id).moving_since - datetime.timedelta(hours=1)
    with world.database.write() as session:
        leases.update(session.connection(), lease_id, moving_since=began)
    world.reconcile(lease_id)
    assert world.lease(lease_id).moving == "ending"
    assert world.used_mb() == 2 * 4096, "memory was returned before its host had confirmed"
    world.monitor.answers = True
    world.reconcile(lease_id)
    world.check_settled(lease_id, GPU_HOST)


def test_memory_is_returned_when_the_former_daemon_is_gone_and_not_before(world):
    lease_id = moving(world)
    world.monitor.ends_daemons = False
    assert world.reconcile(lease_id) is not None
    assert world.lease(lease_id).moving == "ending"
    assert world.used_mb() == 2 * 4096
    world.monitor.end_draining()
    world.reconcile(lease_id)
    world.check_settled(lease_id, OTHER)


def test_both_gpus_are_served_until_the_endpoint_confirms(world):
    lease_id = moving(world)

    def fall_silent() -> None:
        world.endpoint.answers = world.lease(lease_id).moving != "switched"

    world.endpoint.before_apply = fall_silent
    assert world.reconcile(lease_id) is not None
    assert world.lease(lease_id).moving == "switched"
    assert len(world.monitor.running) == 2
    world.endpoint.before_apply = lambda: None
    world.endpoint.answers = True
    world.reconcile(lease_id)
    world.check_settled(lease_id, OTHER)


def test_the_binding_of_a_vm_without_its_tap_is_removed_before_the_former_gpu_is_left(world):
    """Without its tap, the endpoint cannot say whether the kernel still leads to the former GPU."""
    lease_id = moving(world)
    world.endpoint.tap_exists = False
    world.reconcile(lease_id)
    port_id = world.lease(lease_id).port_id
    assert ("remove", HOST, port_id) in world.endpoint.calls
    world.check_settled(lease_id, OTHER)


def test_a_host_that_is_forgotten_takes_its_side_of_a_move_only(world):
    lease_id = moving(world)
    with world.database.write() as session:
        hosts.forget(session, OTHER, timeout=None, servers_stay=False)
    world.reconcile(lease_id)
    lease = world.lease(lease_id)
    assert (lease.status, lease.moving, lease.others) == (Status.ACTIVE, None, ())


def test_a_cgpu_is_not_switched_to_a_host_that_was_forgotten_just_before(world):
    lease_id = moving(world)
    with world.database.write() as session:
        hosts.forget(session, OTHER, timeout=None, servers_stay=False)
    world.claims.switch(lease_id)
    assert world.lease(lease_id).moving == "starting"
    world.reconcile(lease_id)
    lease = world.lease(lease_id)
    assert (lease.status, lease.moving, lease.others) == (Status.ACTIVE, None, ())
    assert world.gpu_of(lease_id) != "GPU-far"


def test_a_lease_that_has_moved_knows_since_when_it_has_its_gpus(world):
    """What a GPU did before that is another tenant's."""
    lease_id = moving(world)
    began = world.lease(lease_id).moving_since
    world.reconcile(lease_id)
    assert world.lease(lease_id).moving is None
    with world.database.reading() as connection:
        assert [each.claimed_at for each in readings.claimed_on(connection, OTHER)] == [began]


def test_the_former_gpu_is_returned_while_the_cloud_does_not_answer(world):
    lease_id = moving(world)
    world.monitor.ends_daemons = False
    world.reconcile(lease_id)
    assert world.lease(lease_id).moving == "ending"
    world.monitor.end_draining()
    world.cloud.is_down = True
    world.reconcile(lease_id)
    world.cloud.is_down = False
    world.check_settled(lease_id, OTHER)


def test_a_lease_of_a_hosts_own_programs_moves_too(world):
    lease_id = world.alloc()
    world.reconcile(lease_id)
    (claim,) = world.lease(lease_id).claims
    host = OTHER if claim.gpu.host_name == GPU_HOST else GPU_HOST
    world.move(lease_id, host=host)
    world.reconcile(lease_id)
    (after,) = world.lease(lease_id).claims
    assert (after.gpu.host_name, after.masked_address) == (host, claim.masked_address)
    assert world.lease(lease_id).moving is None
    assert world.used_mb() == 4096


def test_a_move_counts_once_for_quotas(world):
    moving(world)
    with world.database.read() as session:
        used = projects.usage(session.connection(), "p")
    assert used == {"leases": 1, "cgpus": 1, "gpu_memory_mb": 4096}


def test_a_cgpu_does_not_move_within_a_host_whose_monitor_knows_no_second_daemon_of_it(world):
    """A monitor of the release before would refuse the desired state of its whole host."""
    lease_id = launched(world)
    (other,) = {"GPU-0", "GPU-1"} - {world.gpu_of(lease_id)}
    with world.database.write() as session:
        row = hosts.ensure(session, GPU_HOST)
        row.monitor_report = {**row.monitor_report, "knows": []}
    with pytest.raises(exceptions.LeaseNotMovable, match=f"within {GPU_HOST}.*earlier release"):
        world.move(lease_id, gpu_uuid=other)
    world.move(lease_id)
    world.reconcile(lease_id)
    world.check_settled(lease_id, OTHER)


def test_a_move_that_is_not_confirmed_degrades_the_lease_and_names_the_host(world):
    lease_id = moving(world)

    def fall_silent() -> None:
        world.endpoint.answers = world.lease(lease_id).moving != "switched"

    def reasons(after: float) -> list[str]:
        lease = world.lease(lease_id)
        seconds = datetime.timedelta(seconds=after)
        return degraded.reasons(lease, 1e6, lease.moving_since + seconds)

    world.endpoint.before_apply = fall_silent
    world.reconcile(lease_id)
    assert world.lease(lease_id).moving == "switched"
    assert reasons(10) == []
    assert [HOST in reason for reason in reasons(61)] == [True]
    world.endpoint.before_apply = lambda: None
    world.endpoint.answers = True
    world.monitor.silent = {GPU_HOST}
    world.reconcile(lease_id)
    assert [GPU_HOST in reason for reason in reasons(61)] == [True]
    world.monitor.silent = set()
    world.reconcile(lease_id)
    assert reasons(61) == []
