# SPDX-License-Identifier: Apache-2.0
"""The daemon service of a GPU host: which desired state it applies, and what it reports."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator

import pytest

import gsaas.conf
from gsaas import rpc
from gsaas.gpu_host.daemons.service import DaemonService
from gsaas.gpu_host.fence.layout import ControlGroup
from gsaas.objects.daemon import (
    Admission,
    Daemon,
    DaemonState,
    DaemonStatus,
    DesiredState,
    FenceReport,
)
from gsaas.objects.gpu_report import GpuInfo, GpuSnapshot
from gsaas.remoting.base import load
from tests.support.waiting import until

GPUS = [GpuInfo(f"GPU-{n}", n, "Quadro M4000", 8192, 8308 + n) for n in range(2)]
DAEMON = Daemon("GPU-1", 20001, 1024, "lease-1", 0)
ADMISSION = Admission("192.0.2.21", 20001)
DESIRED = DesiredState(5, frozenset({DAEMON}), frozenset({ADMISSION}))


class FakeSupervisor:
    """A supervisor whose daemons have the state that a test sets."""

    def __init__(self, left: Iterable[Daemon] = ()) -> None:
        self.daemons = set(left)
        self.state = DaemonState.HEALTHY
        self.history: list[set[Daemon]] = []
        self.cannot_end: list[str] = []

    def adopt(self) -> None: ...

    def start(self) -> None: ...

    def stop(self) -> None: ...

    def set_desired(self, daemons: Iterable[Daemon]) -> None:
        self.daemons = set(daemons)
        self.history.append(self.daemons)

    def statuses(self) -> list[DaemonStatus]:
        return [DaemonStatus(daemon, self.state, detail="why") for daemon in self.daemons]

    def version(self) -> str | None:
        return "7fbd364" if self.history else None

    def listeners(self) -> dict[int, ControlGroup]:
        return {daemon.port: ControlGroup(daemon.port + 1, 3) for daemon in self.daemons}

    def problems(self) -> list[str]:
        return list(self.cannot_end)


class FakeFence:
    """A fence that records its calls, and fails as the kernel may."""

    def __init__(self) -> None:
        self.ranges: list[tuple[int, int]] = []
        self.admitted: frozenset[Admission] | None = None
        self.broken = self.unreadable = False

    def start(self, ranges: Iterable[tuple[int, int]], listeners: dict) -> None:
        self.ranges = list(ranges)
        self.listeners = self.started_with = listeners

    def stop(self) -> None: ...

    def set_listeners(self, listeners: dict) -> None:
        self.listeners = listeners

    def set_ports(self, ranges: Iterable[tuple[int, int]]) -> None:
        self.ranges = list(ranges)

    def apply(self, admissions: Iterable[Admission]) -> None:
        if self.broken:
            raise OSError(12, "out of memory")
        self.admitted = frozenset(admissions)

    def report(self) -> FenceReport:
        if self.unreadable:
            raise OSError(12, "out of memory")
        return FenceReport(self.admitted or frozenset(), 3)


class Engine:
    """An engine that answers with a desired state, and records reports."""

    def __init__(self) -> None:
        self.desired: DesiredState | None = DESIRED
        self.reports: list[dict] = []
        self.attempts = 0
        self.takes_reports = True
        self.asked = threading.Event()

    def daemons_started(self, host: str) -> DesiredState:
        self.asked.set()
        if self.desired is None:
            raise rpc.Timeout("nobody answers")
        return self.desired

    def daemons_report(self, host: str, report: dict) -> None:
        self.attempts += 1
        if not self.takes_reports:
            raise rpc.Timeout("nobody answers")
        self.reports.append(report)


@pytest.fixture
def engine() -> Engine:
    return Engine()


@pytest.fixture
def make(engine, monkeypatch) -> Iterator:
    monkeypatch.setattr("gsaas.rpc.pace.FIRST_PAUSE", 0.01)
    made: list[DaemonService] = []

    def make(
        life: str = "per-lease", left: Iterable[Daemon] = (), fence: bool = True, ports: int = 1
    ):
        conf = gsaas.conf.load(files=[])
        conf.set_override("life", life, "daemons")
        conf.set_override("lease_ports", "20000-20099", "daemons")
        supervisor, fake_fence = FakeSupervisor(left), FakeFence() if fence else None
        settings = load("rcuda", conf).daemon_settings
        settings.ports = ports
        service = DaemonService("gpu1", engine, settings, lambda _: supervisor, fake_fence)
        made.append(service)
        service.start(GpuSnapshot(GPUS))
        return service, supervisor, fake_fence

    yield make
    for service in made:
        service.stop()


def test_it_asks_for_all_it_should_hold_and_holds_it_and_says_so(make, engine):
    _, supervisor, fake_fence = make()
    until(lambda: engine.reports, "the first report")
    assert supervisor.daemons == {DAEMON}
    assert fake_fence.admitted == {ADMISSION}
    assert engine.reports[0]["serial"] == 5
    assert engine.reports[0]["fence"] == {"admissions": ["192.0.2.21:20001"], "refused": 3}
    assert engine.reports[0]["daemons"]["lease-1-0"]["state"] == "healthy"


def test_who_audits_it_is_told_what_there_is_and_changes_nothing(make, engine):
    service, supervisor, fake_fence = make()
    until(lambda: engine.reports, "the first report")
    foreign = Daemon("GPU-0", 20002, 1024, "lease-2", 0)
    supervisor.daemons.add(foreign)
    fake_fence.admitted |= {Admission("192.0.2.99", 20001)}
    told = service.audit()
    assert set(told["daemons"]) == {"lease-1-0", "lease-2-0"}
    assert told["fence"]["admissions"] == ["192.0.2.21:20001", "192.0.2.99:20001"]
    assert foreign in supervisor.daemons


def test_a_fence_that_cannot_be_read_is_not_told_as_an_empty_one(make, engine):
    service, _, fake_fence = make()
    until(lambda: engine.reports, "the first report")
    fake_fence.unreadable = True
    with pytest.raises(OSError, match="the fence could not be read"):
        service.audit()


def test_a_report_that_no_engine_took_is_repeated_soon(make, engine):
    engine.takes_reports = False
    make()
    until(lambda: engine.attempts > 3, "some attempts")
    engine.takes_reports = True
    until(lambda: engine.reports, "a report that was taken")


@pytest.mark.parametrize("method", ["statuses", "set_desired"])
def test_it_goes_on_after_a_defect(make, engine, monkeypatch, method):
    works = getattr(FakeSupervisor, method)
    failures = iter(range(3))

    def fail(supervisor: FakeSupervisor, *arguments: object) -> object:
        if threading.current_thread().name == "daemons-gpu1" and next(failures, None) is not None:
            raise AttributeError("a defect")
        return works(supervisor, *arguments)

    monkeypatch.setattr(FakeSupervisor, method, fail)
    _, supervisor, _ = make()
    until(lambda: engine.reports, "a report in spite of the defect")
    assert next(failures, None) is None
    assert supervisor.daemons == {DAEMON}


def test_until_it_was_told_nothing_is_ended_and_nobody_shut_out(make, engine):
    engine.desired = None
    _, supervisor, fake_fence = make("per-gpu", left=[DAEMON])
    assert engine.asked.wait(10)
    assert supervisor.daemons == {DAEMON, Daemon("GPU-0", 8308), Daemon("GPU-1", 8309)}
    assert fake_fence.admitted is None
    engine.desired = DesiredState(6)
    until(lambda: engine.reports)
    assert supervisor.daemons == {Daemon("GPU-0", 8308), Daemon("GPU-1", 8309)}
    assert fake_fence.admitted == frozenset()


def test_orders_wait_until_it_was_told_and_older_ones_are_taken_no_notice_of(make, engine):
    service, supervisor, fake_fence = make()
    assert service.apply(DesiredState(4).to_dict())["serial"] == 5
    assert supervisor.daemons == {DAEMON}
    newer = service.apply(DesiredState(6).to_dict())
    assert (newer["serial"], newer["daemons"], supervisor.daemons) == (6, {}, set())
    assert fake_fence.admitted == frozenset()


def test_nonsense_changes_nothing(make, engine):
    service, supervisor, _ = make()
    until(lambda: engine.reports)
    with pytest.raises((KeyError, ValueError, TypeError)):
        service.apply({"serial": 9})
    assert supervisor.daemons == {DAEMON}


@pytest.mark.parametrize(
    ("life", "ranges"),
    [
        ("per-gpu", [(8308, 8308), (8309, 8309)]),
        ("operator", [(8308, 8308), (8309, 8309)]),
        ("per-lease", [(8308, 8308), (8309, 8309), (20000, 20099)]),
    ],
)
def test_the_fence_is_around_every_port_that_a_daemon_may_have(make, life, ranges):
    _, _, fake_fence = make(life)
    assert fake_fence.ranges == ranges


def test_the_fence_is_around_all_ports_of_the_daemons_of_gpus(make):
    _, supervisor, fake_fence = make("per-gpu", ports=3)
    assert fake_fence.ranges == [(8308, 8310), (8309, 8311)], "the GPUs' ports are the source's"
    assert {daemon.ports for daemon in supervisor.daemons if daemon.lease_id is None} == {3}


def test_a_gpu_that_comes_gets_a_daemon_and_one_that_goes_loses_it(make, engine):
    service, supervisor, fake_fence = make("per-gpu")
    until(lambda: engine.reports)
    service.update_gpus(GpuSnapshot(GPUS[:1]))
    assert Daemon("GPU-1", 8309) not in supervisor.daemons
    service.update_gpus(GpuSnapshot([], unavailable="the driver is being updated"))
    assert Daemon("GPU-0", 8308) in supervisor.daemons, "nobody knows; nothing is ended"
    service.update_gpus(GpuSnapshot(GPUS))
    assert Daemon("GPU-1", 8309) in supervisor.daemons
    assert fake_fence.ranges == [(8308, 8308), (8309, 8309)]


def test_a_gpu_whose_own_daemon_is_not_well_is_withdrawn(make, engine):
    service, supervisor, _ = make("per-gpu")
    until(lambda: engine.reports)
    assert [gpu.withdrawn for gpu in service.update_gpus(GpuSnapshot(GPUS)).gpus] == [None, None]
    supervisor.state = DaemonState.DOWN
    assert [gpu.withdrawn for gpu in service.update_gpus(GpuSnapshot(GPUS)).gpus] == [
        "its daemon is down: why"
    ] * 2
    changed = threading.Event()
    service.on_change = changed.set
    service.daemons_changed()
    assert changed.is_set()


def test_a_lease_whose_daemon_is_down_withdraws_no_gpu(make, engine):
    service, supervisor, _ = make("per-lease")
    until(lambda: engine.reports)
    supervisor.state = DaemonState.DOWN
    service.daemons_changed()
    until(lambda: engine.reports[-1]["daemons"]["lease-1-0"]["state"] == "down")
    assert [gpu.withdrawn for gpu in service.update_gpus(GpuSnapshot(GPUS)).gpus] == [None, None]


def test_a_fence_that_the_kernel_refuses_is_a_problem_and_is_tried_again(make, engine):
    service, _, fake_fence = make()
    until(lambda: engine.reports)
    fake_fence.broken = True
    report = service.apply(DesiredState(7).to_dict())
    assert "out of memory" in report["problems"][0]
    assert report["fence"]["admissions"] == ["192.0.2.21:20001"], (
        "what there is, not what is wanted"
    )
    fake_fence.broken = False
    service.daemons_changed()
    until(
        lambda: (
            engine.reports[-1]["fence"]["admissions"] == [] and not engine.reports[-1]["problems"]
        )
    )


def test_the_fence_knows_the_daemons_that_run_before_it_replaces_an_earlier_one(make, engine):
    """Or their clients would be refused meanwhile, and a client remembers that for long."""
    engine.desired = None
    service, supervisor, fake_fence = make(left=[DAEMON])
    assert fake_fence.started_with == {DAEMON.port: ControlGroup(DAEMON.port + 1, 3)}
    supervisor.daemons = {Daemon("GPU-0", 20002, lease_id="lease-2")}
    service.daemons_changed()
    assert set(fake_fence.listeners) == {20002}, "also while the engine does not answer"


def test_a_daemon_that_cannot_be_ended_is_a_problem(make, engine):
    service, supervisor, _ = make()
    supervisor.cannot_end = ["daemon lease-9-0: one of its processes does not end"]
    service.daemons_changed()
    until(lambda: engine.reports and engine.reports[-1]["problems"] == supervisor.cannot_end)


def test_without_a_fence_nobody_waits_for_one(make, engine):
    make(fence=False)
    until(lambda: engine.reports)
    assert engine.reports[0]["fence"] is None


def test_a_fence_that_cannot_be_read_confirms_nothing(make, engine):
    service, _, fake_fence = make()
    until(lambda: engine.reports)
    fake_fence.unreadable = True

    with pytest.raises(OSError, match="out of memory"):
        service.apply(DesiredState(7).to_dict())
    service.daemons_changed()
    until(lambda: engine.reports[-1]["problems"])
    assert engine.reports[-1]["fence"]["admissions"] == []


def test_the_daemons_of_leases_are_known_by_their_control_groups(make, engine):
    service, supervisor, _ = make()
    until(lambda: engine.reports, "the first report")
    supervisor.daemons.add(Daemon("GPU-0", 8308))
    assert service.lease_daemons() == {DAEMON.port + 1: DAEMON}
