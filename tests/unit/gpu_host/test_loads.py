# SPDX-License-Identifier: Apache-2.0
"""What a cGPU does is what the processes of its daemon do; zero is said only if it is certain."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from gsaas.gpu_host import loads
from gsaas.gpu_host.fence import control_group
from gsaas.gpu_host.process_groups import groups_of
from gsaas.objects.daemon import Daemon
from gsaas.objects.gpu_report import GpuInfo, GpuProcess, GpuSnapshot, Load, Reading

GPU = GpuInfo("GPU-a", 0, "NVIDIA L4", 23034, 8308)
ONE, TWO = Daemon("GPU-a", 9001, 1024, "lease-1", 0), Daemon("GPU-a", 9002, 1024, "lease-2", 3)
DAEMONS = {11: ONE, 12: TWO}
GROUPS = {100: {1, 11}, 101: {1, 11, 111}, 200: {1, 12}, 300: {1, 9}}


def snapshot(
    *processes: GpuProcess, percents: dict[int, float] | None = None, gpu: float | None = 0.0
) -> GpuSnapshot:
    reading = Reading(used_mb=9000, utilisation=gpu, processes=processes)
    told = {} if percents is None else {"GPU-a": percents}
    return GpuSnapshot([GPU], {"GPU-a": reading}, process_utilisation=told)


def process(pid: int, used_mb: int | None = 10) -> GpuProcess:
    return GpuProcess(pid, "python3", used_mb)


def of_cgpus(shot: GpuSnapshot) -> dict[str | None, tuple[float | None, int | None]]:
    found = loads.of_cgpus(shot, DAEMONS, lambda pid: GROUPS.get(pid, set()))
    return {load.lease_id: (load.utilisation, load.used_mb) for load in found}


def test_a_cgpu_does_what_the_processes_of_its_daemon_do():
    shot = snapshot(process(100), process(101, 5), process(200, 7), percents={100: 30.0, 101: 20.0})
    assert of_cgpus(shot) == {"lease-1": (50.0, 15), "lease-2": (0.0, 7)}
    assert [load.position for load in loads.of_cgpus(shot, DAEMONS, lambda _: {11})] == [0, 3]


def test_each_gpu_of_one_daemon_is_read_for_the_cgpu_that_is_on_it():
    both = {11: Daemon("GPU-b", 9001, 1024, "lease-1", 0, ("GPU-a",))}
    shot = snapshot(process(100), percents={100: 30.0})
    other = Reading(used_mb=9000, utilisation=0.0, processes=(process(100, 5),))
    shot = replace(
        shot,
        readings={**shot.readings, "GPU-b": other},
        process_utilisation={"GPU-a": {100: 30.0}, "GPU-b": {100: 60.0}},
    )
    found = loads.of_cgpus(shot, both, lambda pid: GROUPS.get(pid, set()))
    assert [(each.gpu_uuid, each.position, each.utilisation) for each in found] == [
        ("GPU-a", 1, 30.0),
        ("GPU-b", 0, 60.0),
    ]


def test_a_gpu_that_runs_nothing_runs_nothing_of_anyone():
    assert of_cgpus(snapshot(percents={})) == {"lease-1": (0.0, 0), "lease-2": (0.0, 0)}


def test_kernels_that_the_driver_counts_for_no_process_may_be_those_of_any():
    shot = snapshot(process(100), percents={}, gpu=90.0)
    assert of_cgpus(shot) == {"lease-1": (None, 10), "lease-2": (0.0, 0)}


def test_kernels_of_a_process_of_no_daemon_may_be_those_of_any():
    """Such as the server of MPS, which computes for its clients."""
    shot = snapshot(process(100), process(300), percents={300: 90.0}, gpu=90.0)
    assert of_cgpus(shot) == {"lease-1": (None, 10)}


@pytest.mark.parametrize("percents", [None, {}])
def test_a_gpu_that_does_not_tell_what_it_does_is_not_known_to_do_nothing(percents):
    """A MIG instance never tells, and what another one said may have been garbage."""
    shot = snapshot(process(100), percents=percents, gpu=None)
    assert of_cgpus(shot) == {"lease-1": (None, 10), "lease-2": (0.0, 0)}
    assert of_cgpus(snapshot(gpu=None))["lease-1"] == (0.0, 0)


@pytest.mark.parametrize("percents", [None, {}])
def test_a_gpu_that_computes_for_no_process_may_do_so_for_any_lease(percents):
    """Its driver may have failed to list the processes."""
    assert of_cgpus(snapshot(percents=percents, gpu=90.0)) == {}


def test_a_process_that_cannot_be_seen_may_be_that_of_any_lease():
    assert of_cgpus(snapshot(process(999), percents={}, gpu=90.0)) == {}


def test_memory_is_not_known_if_that_of_one_process_is_not():
    shot = snapshot(process(100), process(101, None), percents={100: 1.0})
    assert of_cgpus(shot)["lease-1"] == (1.0, None)


def test_where_the_driver_tells_nothing_of_processes_only_memory_is_known():
    assert of_cgpus(snapshot(process(100), gpu=50.0))["lease-1"] == (None, 10)


def test_no_cgpu_is_busier_than_busy():
    shot = snapshot(process(100), process(101), percents={100: 80.0, 101: 70.0})
    assert of_cgpus(shot)["lease-1"] == (100.0, 20)


def test_a_gpu_that_does_not_answer_has_no_load():
    assert loads.of_gpus(GpuSnapshot([GPU])) == []
    assert loads.of_cgpus(GpuSnapshot([GPU]), DAEMONS, lambda _: set()) == []


def test_a_gpu_as_a_whole_is_what_it_reads():
    assert loads.of_gpus(snapshot(gpu=40.0)) == [Load("GPU-a", 40.0, 9000)]


def test_means_are_taken_from_time_to_time():
    meter = loads.LoadMeter(interval=25.0)
    meter.add([Load("GPU-a", 10.0, 1)], 100.0)
    assert meter.take(100.0) == loads.Loads(25.0, [Load("GPU-a", 10.0, 1)])
    meter.add([Load("GPU-a", 20.0, 5), Load("GPU-a", 1.0, 2, "lease-1", 0)], 110.0)
    assert meter.take(110.0) is None
    meter.add([Load("GPU-a", 40.0, 3), Load("GPU-a", None, None, "lease-1", 0)], 130.0)
    taken = meter.take(130.0)
    assert taken == loads.Loads(30.0, [Load("GPU-a", 30.0, 5), Load("GPU-a", 1.0, 2, "lease-1", 0)])
    meter.add([], 160.0)
    assert meter.take(160.0) == loads.Loads(30.0, [])


def test_the_mean_is_zero_only_if_nothing_was_computed_whenever_it_was_looked():
    """Of lease-1 all looks know that, of lease-2 one does not know anything, and lease-3 was not seen by all."""
    meter = loads.LoadMeter(interval=25.0)
    never, lately = Load("GPU-a", 0.0, 1, "lease-1"), Load("GPU-a", 0.0, 1, "lease-3")
    meter.add([never, Load("GPU-a", None, 1, "lease-2")], 100.0)
    meter.add([never, Load("GPU-a", 0.0, 1, "lease-2"), lately], 130.0)
    taken = meter.take(130.0)
    assert taken is not None
    assert {load.lease_id: load.utilisation for load in taken.of} == {
        "lease-1": 0.0,
        "lease-2": None,
        "lease-3": None,
    }


def test_a_meter_that_has_read_nothing_has_nothing_to_tell():
    assert loads.LoadMeter().take(0.0) is None


def test_a_process_is_in_the_control_group_that_the_kernel_says():
    try:
        own = control_group.own()
    except control_group.NoControlGroup as reason:
        pytest.skip(str(reason))
    assert own.number in groups_of(os.getpid())


def test_a_process_that_is_gone_is_in_no_control_group():
    assert groups_of(2**22 + 1) == frozenset()
