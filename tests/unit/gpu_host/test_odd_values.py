# SPDX-License-Identifier: Apache-2.0
"""Odd values of honest hosts, from the driver to the database: one GPU's cost no other GPU, nor the host's heartbeat.

The driver is a fake library; the source, the monitor, the message bus, the engine and the database are real.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

import gsaas.conf
from gsaas import rpc
from gsaas.db import gpus, hosts
from gsaas.db.database import Database
from gsaas.db.models import GpuReadingRow
from gsaas.engine.agents import Agents
from gsaas.engine.callers import Callers
from gsaas.engine.rpc_endpoint import RpcEndpoint
from gsaas.gpu_host.agent import Monitor
from gsaas.gpu_host.sources.nvml import Nvml
from gsaas.rpc.monitor import MonitorClient
from tests.support import sqlite
from tests.support.nvml import driver as fake
from tests.support.waiting import until

ALL = {0, 1, 2, 3}
OTHERS = {0, 2, 3}
ODD = fake.uuid(1)
"""The GPU with the odd value."""


class Cloud:
    """One GPU host and an engine, with a message bus between them."""

    def __init__(self, database: Database, make_source: Callable[[], Nvml], stack: ExitStack):
        self.database = database
        self._make_source, self._stack = make_source, stack

    def start(self) -> None:
        bus = rpc.connect(gsaas.conf.load(files=[]), rpc.IN_PROCESS)
        self._stack.callback(bus.cleanup)
        agents = Agents(None, MonitorClient(bus, timeout=2.0))
        endpoint = RpcEndpoint(self.database, agents, lambda _: None, Callers())
        server = rpc.server(bus, rpc.ENGINE, "engine", endpoint)
        server.start()
        self._stack.callback(server.stop)
        source = self._make_source()
        monitor = Monitor(bus, "gpu1", "192.0.2.1", source, daemons=None, interval=0.02)
        monitor.start()
        self._stack.callback(monitor.stop)
        until(self.seen_at, "the first report")

    def seen_at(self) -> datetime.datetime | None:
        with self.database.read() as session:
            found = hosts.page(session, limit=9)
            return found[0].monitor_seen_at if found else None

    def beat_twice(self) -> None:
        """Wait for two more reports, of which the second was read after this was called."""
        for _ in range(2):
            before = self.seen_at()
            until(lambda before=before: self.seen_at() > before, "the host's heartbeat")

    def in_service(self) -> set[int]:
        with self.database.read() as session:
            return {
                gpu.device_index
                for gpu in gpus.page(session, limit=99)
                if gpu.withdrawn_reason is None
            }

    def gpu(self, uuid: str) -> tuple[str, str | None]:
        with self.database.read() as session:
            gpu = gpus.get(session, uuid)
            return gpu.model, gpu.withdrawn_reason

    def reading(self, uuid: str) -> GpuReadingRow:
        with self.database.read() as session:
            return gpus.readings(session, [uuid])[uuid]

    def problems(self) -> list[str]:
        with self.database.read() as session:
            return hosts.get(session, "gpu1").monitor_problems


@pytest.fixture
def cloud(tmp_path, source, monkeypatch) -> Iterator[Cloud]:
    monkeypatch.setattr("gsaas.gpu_host.agent.MIN_INTERVAL", 0.01)
    database = sqlite.in_file(tmp_path / "gsaas.db", sqlite.migrated())
    with ExitStack() as stack:
        stack.callback(database.close)
        yield Cloud(database, source, stack)


UNREADABLE = {
    "memory-0": (lambda d: d.gpu(1, memory=0), "its memory is 0 bytes"),
    "memory-absurd": (
        lambda d: d.gpu(1, memory=17592186044415),
        "its memory is 18446744073708503040",
    ),
    "memory-na": (lambda d: d.gpu(1, memory="-"), "set unified_memory_mb in the section .monitor."),
    "memory-error": (lambda d: d.gpu(1, fails="memory:999"), "its memory cannot be read: Unknown"),
    "no-such-uuid": (lambda d: d.gpu(1, uuid="N/A"), "the driver says 'N/A' for its UUID"),
    "empty-uuid": (lambda d: d.gpu(1, uuid=""), "the driver says '' for its UUID"),
    "garbled-uuid": (lambda d: d.gpu(1, uuid="GPU-\udcf8\udcf0"), "for its UUID"),
    "uuid-error": (lambda d: d.gpu(1, fails="uuid:999"), "its UUID cannot be read: Unknown Error"),
    "handle-error": (lambda d: d.gpu(1, fails="handle:17"), "it fails: The operating system has"),
    "lost": (lambda d: d.gpu(1, fails="power:15"), "it fails: GPU is lost; reset it"),
    "error-without-text": (lambda d: d.gpu(1, fails="memory:777"), "its memory cannot be read"),
}
"""What says that one GPU cannot be used, and why it is not."""


@pytest.mark.parametrize(("say", "why"), UNREADABLE.values(), ids=UNREADABLE.keys())
def test_a_gpu_that_cannot_be_used_is_withdrawn_alone(cloud, driver, say, why):
    driver.have(4)
    cloud.start()
    say(driver)
    cloud.beat_twice()
    assert cloud.in_service() == OTHERS
    _, reason = cloud.gpu(ODD)
    assert why.replace(".monitor.", "[monitor]") in reason
    assert cloud.problems() == [f"GPU {ODD} is withdrawn: {reason}"]


@pytest.mark.parametrize(("say", "why"), UNREADABLE.values(), ids=UNREADABLE.keys())
def test_a_gpu_that_could_never_be_used_is_left_out_alone(cloud, driver, say, why):
    driver.have(4)
    say(driver)
    cloud.start()
    cloud.beat_twice()
    assert cloud.in_service() == OTHERS
    (problem,) = cloud.problems()
    assert problem.startswith("GPU number 1 of the driver's list is left out: ")
    assert why.replace(".monitor.", "[monitor]") in problem
    assert "; " in problem, "it says what to do"


def test_of_two_gpus_with_one_uuid_the_first_is_used(cloud, driver):
    driver.have(4)
    driver.gpu(1, uuid=fake.uuid(0))
    cloud.start()
    cloud.beat_twice()
    assert cloud.in_service() == OTHERS
    (problem,) = cloud.problems()
    assert problem.startswith("GPU number 1 of the driver's list is left out: it has the UUID of")
    driver.lose(1)
    cloud.beat_twice()
    assert cloud.in_service() == OTHERS
    (problem,) = cloud.problems()
    assert problem.startswith("GPU number 1 of the driver's list is left out: it fails: ")


ODD_READINGS = {
    "util-101": ({"util": 101}, "utilisation"),
    "util-absurd": ({"util": 2147483632}, "utilisation"),
    "temp": ({"temp": 4294967295}, "temperature_c"),
    "power": ({"power": 4294967295}, "power_w"),
    "used": ({"used": 9000000000000}, "used_mb"),
    **{
        f"{call}-{error}": ({"fails": f"{call}:{error}"}, column)
        for call, column in (
            ("util", "utilisation"),
            ("temp", "temperature_c"),
            ("power", "power_w"),
        )
        for error in (999, 26, 27, 17, 20, 777)
    },
}
"""What the driver says, and the column of the reading that is not known then."""


@pytest.mark.parametrize(("facts", "column"), ODD_READINGS.values(), ids=ODD_READINGS.keys())
def test_a_reading_that_is_none_decides_nothing(cloud, driver, facts, column):
    driver.have(4)
    driver.gpu(1, **facts)
    cloud.start()
    cloud.beat_twice()
    assert cloud.in_service() == ALL
    assert cloud.problems() == []
    columns = {"utilisation": 50.0, "temperature_c": 40.0, "power_w": 250.5, "used_mb": 1024}
    read = cloud.reading(ODD)
    assert {name: getattr(read, name) for name in columns} == columns | {column: None}
    with cloud.database.read() as session:
        assert len(gpus.readings(session, [fake.uuid(index) for index in ALL])) == 4


@pytest.mark.parametrize("call", ["processes", "sampled", "cc", "events", "name"])
@pytest.mark.parametrize("error", [999, 17, 777])
def test_nor_does_any_other_call_that_fails(cloud, driver, call, error):
    driver.have(4)
    driver.process(1, pid=17, used=1, sm=30)
    driver.gpu(1, fails=f"{call}:{error}")
    cloud.start()
    cloud.beat_twice()
    assert cloud.in_service() == ALL


def test_the_name_of_a_process_may_be_any_bytes(cloud, driver):
    driver.have(4)
    driver.process(1, pid=4711, used=10, name="Modellpr\udcfcfung.exe")
    driver.process(1, pid=4712, used=10, name="\x1b[2J" + "x" * 300)
    cloud.start()
    cloud.beat_twice()
    assert cloud.in_service() == ALL
    named, cut = (process["name"] for process in cloud.reading(ODD).processes)
    assert named == "Modellpr\N{REPLACEMENT CHARACTER}fung.exe"
    assert cut == "x" * 255


def test_a_process_with_absurd_memory_keeps_its_place(cloud, driver):
    driver.have(4)
    driver.process(1, pid=4711, used=17592186044415, name="garbage")
    driver.process(1, pid=4712, used=10, name="python")
    cloud.start()
    cloud.beat_twice()
    assert cloud.in_service() == ALL
    assert cloud.problems() == []
    assert [(each["pid"], each["used_mb"]) for each in cloud.reading(ODD).processes] == [
        (4711, None),
        (4712, 10),
    ]


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("\udcf8\udcf0\udc88\udc82GeForce", "\N{REPLACEMENT CHARACTER}" * 4 + "GeForce"),
        ("", "unknown"),
    ],
)
def test_a_gpu_with_a_garbled_name_computes(cloud, driver, name, model):
    driver.have(4)
    driver.gpu(1, name=name)
    cloud.start()
    cloud.beat_twice()
    assert cloud.in_service() == ALL
    assert cloud.gpu(ODD) == (model, None)


def test_a_gpu_that_no_longer_tells_its_name_keeps_it(cloud, driver):
    driver.have(4)
    cloud.start()
    driver.gpu(1, name="")
    cloud.beat_twice()
    assert cloud.gpu(ODD) == ("NVIDIA A100-PCIE-40GB", None)


@pytest.mark.parametrize("error", [999, 17])
def test_errors_that_cannot_be_watched_are_one_short_problem(cloud, driver, error):
    for index in range(16):
        driver.gpu(index, fails=f"events:{error}")
    cloud.start()
    cloud.beat_twice()
    assert cloud.in_service() == set(range(16))
    (problem,) = cloud.problems()
    assert f"of {fake.uuid(0)} and 15 more GPUs: " in problem


def test_of_very_many_gpus_that_are_said_to_be_there_some_are_asked_for(cloud, driver):
    driver.have(2)
    driver.claim(2**32 - 1)
    cloud.start()
    cloud.beat_twice()
    assert cloud.in_service() == {0, 1}
    problems = cloud.problems()
    assert len(problems) == 101
    assert problems[0].startswith("the driver lists 4294967295 GPUs, of which 1024 are read")
    assert problems[-1].startswith("and ")


def test_an_instance_that_cannot_be_used_is_withdrawn_alone(cloud, driver):
    driver.have(1)
    for number in range(3):
        driver.instance(0, number)
    cloud.start()
    driver.instance(0, 1, fails="memory:999")
    cloud.beat_twice()
    assert cloud.in_service() == {100, 102}
    assert cloud.gpu("MIG-0000-1")[1].startswith("its memory cannot be read: Unknown Error")


@pytest.mark.parametrize("call", ["handle", "uuid"])
def test_an_instance_that_cannot_even_be_named_is_withdrawn_and_not_gone(driver, source, call):
    """The engine deletes what is gone; what is withdrawn keeps what operators have said of it."""
    for number in range(3):
        driver.instance(0, number)
    monitor = source()
    assert monitor.snapshot().problems == []
    driver.instance(0, 1, fails=f"{call}:999")
    for _ in range(2):
        snapshot = monitor.snapshot()
        reasons = {gpu.device_index: gpu.withdrawn for gpu in snapshot.gpus}
        assert (reasons[100], reasons[102]) == (None, None)
        assert "cannot be read: Unknown Error" in reasons[101]
        assert snapshot.problems == [f"GPU MIG-0000-1 is withdrawn: {reasons[101]}"]
    driver.instance(0, 1, fails="")
    assert [gpu.withdrawn for gpu in monitor.snapshot().gpus] == [None] * 3


@pytest.mark.parametrize(
    "facts", [{"memory": 0}, {"uuid": "N/A"}, {"fails": "handle:17"}, {"uuid": fake.uuid(3)}]
)
def test_a_gpu_that_is_left_out_does_not_end_cuda_visible_devices(driver, source, facts):
    driver.have(4)
    driver.gpu(0, **facts)
    gpus = source("0,1,2").snapshot().gpus
    assert [gpu.device_index for gpu in gpus if gpu.uuid != fake.uuid(3)] == [1, 2]


def test_nor_does_one_that_is_selected_by_its_uuid(driver, source):
    driver.have(3)
    driver.gpu(0, memory=0)
    gpus = source(f"{fake.uuid(0)},{fake.uuid(2)}").snapshot().gpus
    assert [gpu.device_index for gpu in gpus] == [2]


def test_a_sample_of_the_future_hides_no_later_ones(driver, source):
    driver.gpu(0)
    driver.process(0, pid=17, used=512, sm=30)
    driver.process(0, pid=99, used=512, sm=30, when=2**62)
    monitor = source()
    assert monitor.snapshot().process_utilisation == {}
    driver.processes = [(0, {"pid": 17, "used": 512, "sm": 30, "when": 1_700_000_000_000_000})]
    driver.say()
    assert monitor.snapshot().process_utilisation == {fake.uuid(0): {17: 30.0}}


def test_a_process_whose_samples_are_garbage_is_not_known_to_be_idle(driver, source):
    driver.gpu(0)
    driver.process(0, pid=17, used=512, sm=2**32 - 1)
    driver.process(0, pid=18, used=512, sm=30)
    assert source().snapshot().process_utilisation == {}
    driver.processes = [(0, {"pid": 18, "used": 512, "sm": 30})]
    driver.process(0, pid=4_000_000_000, sm=2**32 - 1, mps=2)  # it is no process of the GPU
    assert source().snapshot().process_utilisation == {fake.uuid(0): {18: 30.0}}


def test_a_gpu_whose_memory_may_not_be_read_has_not_that_of_the_host(driver):
    """NVML_ERROR_NO_PERMISSION says nothing of how much there is."""
    driver.gpu(0, fails="memory:4")
    made = Nvml(range(8308, 9000), fatal_xids=[], visible_devices=None, unified_memory_mb=98304)
    snapshot = made.snapshot()
    made.close()
    assert snapshot.gpus == []
    (problem,) = snapshot.problems
    assert "its memory cannot be read" in problem
    assert "unified_memory_mb" not in problem


@pytest.mark.slow
def test_instances_do_not_each_have_the_memory_of_the_host(driver):
    driver.instance(0, 0, memory="-")
    driver.instance(0, 1)
    made = Nvml(range(8308, 9000), fatal_xids=[], visible_devices=None, unified_memory_mb=98304)
    snapshot = made.snapshot()
    made.close()
    assert [gpu.memory_mb for gpu in snapshot.gpus] == [4864]


@pytest.mark.slow
def test_a_gpu_whose_uuid_changes_all_the_time_takes_no_port_from_others(driver):
    driver.have(2)
    made = Nvml(range(8308, 8316), fatal_xids=[], visible_devices=None)
    for number in range(20):
        driver.gpu(1, uuid=f"GPU-{number:08x}-made-up")
        gpus = made.snapshot().gpus
        assert (gpus[0].uuid, gpus[0].daemon_port) == (fake.uuid(0), 8308)
        assert len(gpus) == 2
    driver.gpu(2)
    gpus = made.snapshot().gpus
    made.close()
    assert [gpu.uuid for gpu in gpus][::2] == [fake.uuid(0), fake.uuid(2)]
    assert len({gpu.device_index for gpu in gpus}) == 3


# Which failures have NVML initialised again


@pytest.fixture
def starts(monkeypatch) -> list[None]:
    """One item for each time that NVML was initialised."""
    import pynvml

    real, counted = pynvml.nvmlInit, []
    monkeypatch.setattr(pynvml, "nvmlInit", lambda: (counted.append(None), real())[1])
    return counted


@pytest.mark.parametrize("facts", [{"memory": "-"}, {"memory": 0}, {"uuid": "N/A"}])
def test_a_gpu_that_never_can_be_used_costs_the_others_no_restart_of_nvml(
    driver, source, starts, facts
):
    driver.have(4)
    driver.gpu(1, **facts)
    monitor = source()
    for _ in range(10):
        assert len(monitor.snapshot().gpus) == 3
    assert len(starts) == 1


def test_while_a_gpu_is_lost_nvml_is_restarted_less_and_less_often(driver, source, starts):
    """Until the next one, no error (XID) of the other GPUs is missed."""
    driver.have(4)
    monitor = source()
    monitor.snapshot()
    driver.lose(1)
    for _ in range(40):
        monitor.snapshot()
    assert len(starts) == 1 + len([1, 2, 4, 8, 16, 32])
    driver.find_again(1)
    until(lambda: len([gpu for gpu in monitor.snapshot().gpus if not gpu.withdrawn]) == 4)
    driver.lose(2)
    monitor.snapshot()
    before = len(starts)
    monitor.snapshot()
    assert len(starts) == before + 1


@pytest.mark.slow
def test_gpus_that_use_the_memory_of_their_host_have_what_the_operator_says(driver):
    """As GB10 does, whose driver answers that a size of its memory is not supported."""
    driver.gpu(0, memory="-", name="NVIDIA GB10", util=7)
    driver.process(0, pid=17, used=512, name="python")
    made = Nvml(range(8308, 9000), fatal_xids=[], visible_devices=None, unified_memory_mb=98304)
    snapshot = made.snapshot()
    made.close()
    assert [(gpu.model, gpu.memory_mb, gpu.withdrawn) for gpu in snapshot.gpus] == [
        ("NVIDIA GB10", 98304, None)
    ]
    (reading,) = snapshot.readings.values()
    assert (reading.used_mb, reading.utilisation) == (None, 7.0)
    assert [process.used_mb for process in reading.processes] == [512]
    assert snapshot.problems == []
