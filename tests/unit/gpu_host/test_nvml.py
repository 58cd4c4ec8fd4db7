# SPDX-License-Identifier: Apache-2.0
"""What a monitor sees through NVML, also when GPUs and their driver fail. The library is a fake, compiled here; all
between it and us is real.
"""

from __future__ import annotations

import threading

import pytest

from tests.support.nvml import driver as fake
from tests.support.waiting import until


def seen(source) -> dict:
    """The GPUs that answer: UUID -> number."""
    return {gpu.uuid: gpu.device_index for gpu in source.snapshot().gpus if not gpu.withdrawn}


def withdrawn(source) -> dict:
    """The others: UUID -> reason."""
    return {gpu.uuid: gpu.withdrawn for gpu in source.snapshot().gpus if gpu.withdrawn}


@pytest.mark.parametrize("count", [0, 1, 8, 16])
def test_every_gpu_is_seen(driver, source, count):
    driver.have(count)
    snapshot = source().snapshot()
    assert [(gpu.uuid, gpu.device_index, gpu.daemon_port) for gpu in snapshot.gpus] == [
        (fake.uuid(index), index, 8308 + index) for index in range(count)
    ]
    assert snapshot.readings.keys() == {fake.uuid(index) for index in range(count)}
    assert (snapshot.unavailable, snapshot.problems) == (None, [])


def test_a_gpu_says_what_it_is(driver, source):
    driver.gpu(0, name="NVIDIA H200", memory=143771, cc="9.0")
    (gpu,) = source().snapshot().gpus
    assert (gpu.model, gpu.memory_mb, gpu.compute_capability) == ("NVIDIA H200", 143771, "9.0")
    assert (gpu.parent_uuid, gpu.withdrawn, gpu.fatal_error) == (None, None, None)


def test_a_gpu_says_how_it_is(driver, source):
    driver.gpu(0, used=1024, reserved=600, util=37, temp=65, power=250500)
    driver.process(0, pid=17, used=512, name="python3 train.py")
    driver.process(0, pid=9, used="-")
    driver.process(0, pid=20, used=256, name="a client of MPS", mps=1)
    (reading,) = source().snapshot().readings.values()
    assert (reading.used_mb, reading.utilisation) == (1024, 37)
    assert (reading.temperature_c, reading.power_w) == (65, 250.5)
    assert [(process.pid, process.name, process.used_mb) for process in reading.processes] == [
        (9, None, None),
        (17, "python3 train.py", 512),
        (20, "a client of MPS", 256),
    ]


def test_a_gpu_says_how_much_each_process_computes(driver, source):
    driver.gpu(0)
    driver.process(0, pid=17, used=512, sm=30)
    driver.process(0, pid=9, used=1)
    found = source()
    for _ in range(2):
        assert found.snapshot().process_utilisation == {fake.uuid(0): {17: 30.0}}


def test_processes_that_compute_nothing_are_not_processes_that_say_nothing(driver, source):
    driver.gpu(0)
    driver.process(0, pid=9, used=1)
    driver.gpu(1)
    driver.gpu(2, sampled="-")
    driver.process(2, pid=10, used=1, sm=30)
    assert source().snapshot().process_utilisation == {fake.uuid(0): {}, fake.uuid(1): {}}


def test_of_an_instance_nobody_says_how_much_its_processes_compute(driver, source):
    driver.instance(0, 0)
    driver.process(0, pid=9, used=1, sm=30)
    assert source().snapshot().process_utilisation == {}


def test_an_idle_gpu_reads_zero_and_not_nothing(driver, source):
    driver.gpu(0, used=0, util=0, temp=0, power=0)
    (reading,) = source().snapshot().readings.values()
    assert (reading.used_mb, reading.utilisation) == (0, 0)
    assert (reading.temperature_c, reading.power_w) == (0, 0)


def test_what_a_gpu_does_not_support_is_nothing(driver, source):
    driver.gpu(0, util="-", temp="-", power="-", cc="-", mig="-")
    snapshot = source().snapshot()
    (reading,) = snapshot.readings.values()
    assert (reading.utilisation, reading.temperature_c, reading.power_w) == (None, None, None)
    assert (snapshot.gpus[0].compute_capability, snapshot.gpus[0].withdrawn) == (None, None)


def test_mig_instances_replace_their_gpu(driver, source):
    driver.have(2)
    driver.instance(1, 0)
    driver.instance(1, 3, memory=9728)
    snapshot = source().snapshot()
    assert [(gpu.uuid, gpu.parent_uuid, gpu.memory_mb) for gpu in snapshot.gpus] == [
        (fake.uuid(0), None, 40960),
        ("MIG-0001-0", fake.uuid(1), 4864),
        ("MIG-0001-3", fake.uuid(1), 9728),
    ]
    assert [gpu.device_index for gpu in snapshot.gpus] == [0, 200, 203]
    assert snapshot.gpus[1].model == "NVIDIA A100 MIG 1g.5gb"
    assert snapshot.gpus[1].compute_capability == "8.0"


def test_a_gpu_in_mig_mode_without_instances_offers_nothing(driver, source):
    driver.gpu(0, mig=1)
    assert source().snapshot().gpus == []


def test_a_gpu_may_be_divided_while_the_monitor_runs(driver, source):
    driver.have(1)
    monitor = source()
    assert seen(monitor) == {fake.uuid(0): 0}
    driver.instance(0, 1)
    assert seen(monitor) == {"MIG-0000-1": 101}
    driver.gpu(0, mig=0)
    assert seen(monitor) == {fake.uuid(0): 0}


@pytest.mark.parametrize(
    ("value", "expected"),
    [(None, [0, 1, 2]), ("2,0", [0, 2]), (fake.uuid(1), [1]), ("0,5,1", [0]), ("", [])],
)
def test_cuda_visible_devices_narrows_what_is_seen(driver, source, value, expected):
    driver.have(3)
    assert list(seen(source(value)).values()) == expected


@pytest.mark.parametrize("error", [fake.GPU_IS_LOST, fake.UNKNOWN])
def test_a_gpu_that_fails_is_withdrawn_and_the_others_stay(driver, source, error):
    driver.have(8)
    monitor = source()
    assert len(seen(monitor)) == 8
    driver.lose(3, error)
    reasons = withdrawn(monitor)
    assert reasons.keys() == {fake.uuid(3)}
    assert reasons[fake.uuid(3)].startswith("it fails: ")
    assert sorted(seen(monitor).values()) == [0, 1, 2, 4, 5, 6, 7]
    assert fake.uuid(3) not in monitor.snapshot().readings


def test_a_gpu_that_answers_again_returns(driver, source):
    driver.have(2)
    monitor = source()
    monitor.snapshot()
    driver.lose(1)
    assert withdrawn(monitor)
    driver.find_again(1)
    assert seen(monitor) == {fake.uuid(0): 0, fake.uuid(1): 1}
    assert withdrawn(monitor) == {}


def test_all_instances_of_a_gpu_fail_with_it(driver, source):
    driver.have(1)
    driver.instance(0, 0)
    driver.instance(0, 1)
    monitor = source()
    monitor.snapshot()
    driver.lose(0)
    assert withdrawn(monitor).keys() == {"MIG-0000-0", "MIG-0000-1"}


def test_a_gpu_that_never_answered_is_a_problem_without_a_name(driver, source):
    driver.have(2)
    driver.lose(1)
    snapshot = source().snapshot()
    assert [gpu.uuid for gpu in snapshot.gpus] == [fake.uuid(0)]
    assert len(snapshot.problems) == 1
    assert "GPU number 1" in snapshot.problems[0]


def test_a_gpu_keeps_its_number_when_one_before_it_is_gone(driver, source):
    driver.have(3)
    monitor = source()
    monitor.snapshot()
    driver.unplug(0)
    assert seen(monitor) == {fake.uuid(1): 1, fake.uuid(2): 2}


def test_a_new_gpu_takes_no_number_that_was_another_ones(driver, source):
    driver.have(2)
    monitor = source()
    monitor.snapshot()
    driver.unplug(0)
    driver.gpu(1, uuid="GPU-new")
    assert seen(monitor) == {fake.uuid(1): 1, "GPU-new": 2}


@pytest.mark.parametrize("error", [fake.DRIVER_NOT_LOADED, fake.VERSION_MISMATCH])
def test_without_its_driver_nothing_is_seen_until_it_is_back(driver, source, error):
    driver.have(2)
    monitor = source()
    assert len(seen(monitor)) == 2
    driver.fail(error)
    for _ in range(2):
        snapshot = monitor.snapshot()
        assert (snapshot.gpus, snapshot.readings) == ((), {})
        assert snapshot.unavailable.startswith("NVIDIA's driver does not answer: ")
    driver.fail(0)
    assert len(seen(monitor)) == 2


def test_a_driver_may_come_after_the_monitor(driver, source):
    driver.fail(fake.DRIVER_NOT_LOADED)
    monitor = source()
    assert monitor.snapshot().unavailable
    driver.fail(0)
    driver.have(1)
    assert len(seen(monitor)) == 1


# The driver's errors


def errors(monitor) -> dict:
    """UUID -> numbers of the errors that were reported, and the one that was fatal."""
    snapshot = monitor.snapshot()
    return {
        gpu.uuid: ([error.xid for error in snapshot.readings[gpu.uuid].xid_errors], gpu.fatal_error)
        for gpu in snapshot.gpus
        if snapshot.readings[gpu.uuid].xid_errors
    }


def test_an_error_that_is_not_fatal_is_only_told(driver, source):
    driver.have(2)
    monitor = source()
    changed = threading.Event()
    monitor.subscribe(changed.set)
    monitor.snapshot()
    driver.report(1, 31)
    assert changed.wait(60)
    assert errors(monitor) == {fake.uuid(1): ([31], None)}


def test_a_fatal_error_is_told_with_its_meaning_and_its_time(driver, source):
    driver.have(2)
    monitor = source()
    monitor.snapshot()
    driver.report(0, 13)
    driver.report(0, 79)
    until(lambda: errors(monitor).get(fake.uuid(0), ([], None))[1], "the fatal error")
    assert errors(monitor) == {fake.uuid(0): ([13, 79], "XID 79: it has fallen off the bus")}
    gpu = monitor.snapshot().gpus[0]
    assert gpu.fatal_error_at == monitor.snapshot().gpus[0].fatal_error_at is not None


def test_only_the_last_errors_are_remembered(driver, source):
    driver.have(1)
    monitor = source()
    monitor.snapshot()
    for number in range(100, 115):
        driver.report(0, number)
    until(lambda: errors(monitor).get(fake.uuid(0), ([0], None))[0][-1] == 114, "the last error")
    assert errors(monitor)[fake.uuid(0)][0] == list(range(105, 115))


def test_an_error_of_one_instance_is_not_that_of_its_neighbours(driver, source):
    driver.have(1)
    driver.instance(0, 0)
    driver.instance(0, 1)
    monitor = source()
    monitor.snapshot()
    driver.report(0, 94, instance=8)
    driver.report(0, 48)
    until(lambda: len(errors(monitor)) == 2, "the errors")
    assert errors(monitor) == {
        "MIG-0000-0": ([48], "XID 48: double-bit ECC error"),
        "MIG-0000-1": ([94, 48], "XID 48: double-bit ECC error"),
    }


def test_errors_are_seen_again_after_the_driver_was_away(driver, source):
    driver.have(1)
    monitor = source()
    monitor.snapshot()
    driver.fail(fake.DRIVER_NOT_LOADED)
    assert monitor.snapshot().unavailable
    driver.fail(0)
    monitor.snapshot()
    driver.report(0, 48)
    until(lambda: errors(monitor), "the error")


def test_a_source_that_is_closed_leaves_no_thread(driver, source):
    driver.have(1)
    monitor = source()
    monitor.snapshot()
    assert "xids" in {thread.name for thread in threading.enumerate()}
    monitor.close()
    assert "xids" not in {thread.name for thread in threading.enumerate()}
