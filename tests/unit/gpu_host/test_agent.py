# SPDX-License-Identifier: Apache-2.0
"""A monitor reports what its source reads, also while the source or the bus fails."""

from __future__ import annotations

import datetime
import json
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace

import pytest

import gsaas.conf
from gsaas import rpc
from gsaas.context import RequestContext
from gsaas.gpu_host.agent import Monitor
from gsaas.gpu_host.sources.declared import DeclaredGpus
from gsaas.objects.gpu_report import (
    GpuInfo,
    GpuProcess,
    GpuReport,
    GpuSnapshot,
    Load,
    Reading,
    XidError,
)
from gsaas.rpc.monitor import MonitorClient
from gsaas.standalone.simulated_gpus import SimulatedGpus
from tests.support.waiting import until

GPUS = [GpuInfo(f"GPU-{n}", n, "NVIDIA L4", 23034, 8308 + n) for n in range(2)]
EVER = 3600.0
"""Seconds: an interval that does not pass during a test."""


@dataclass
class Engine:
    """Records reports, and answers with `interval`."""

    target = rpc.Target(version="1.1")

    interval: float | None = None
    reports: list[dict] = field(default_factory=list)

    def monitor_report(self, context: RequestContext, host: str, report: dict) -> dict:
        self.reports.append(report)
        return {"monitor_interval": self.interval}


class ScriptedSource:
    """A source that returns `next`, or fails in a way that no source may."""

    def __init__(self) -> None:
        self.next = GpuSnapshot(GPUS)
        self.broken = False
        self.closed = threading.Event()
        self.on_change = None

    def subscribe(self, on_change) -> None:
        self.on_change = on_change

    def snapshot(self) -> GpuSnapshot:
        if self.broken:
            raise RuntimeError("a bug")
        return self.next

    def close(self) -> None:
        self.closed.set()


@pytest.fixture
def bus() -> Iterator[rpc.Bus]:
    bus = rpc.connect(gsaas.conf.load(files=[]), rpc.IN_PROCESS)
    yield bus
    bus.cleanup()


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def engine(bus, stack) -> Engine:
    engine = Engine()
    server = rpc.server(bus, rpc.ENGINE, "engine", engine)
    server.start()
    stack.callback(server.stop)
    return engine


@pytest.fixture
def start(bus, stack, monkeypatch):
    """Start a monitor of a source, without the lower bound of seconds between reports."""
    monkeypatch.setattr("gsaas.gpu_host.agent.MIN_INTERVAL", 0.01)

    def start(source, interval: float = EVER, **more) -> Monitor:
        monitor = Monitor(bus, "gpu1", "192.0.2.1", source, daemons=None, interval=interval, **more)
        monitor.start()
        stack.callback(monitor.stop)
        return monitor

    return start


def last(engine: Engine) -> GpuReport:
    return GpuReport.from_dict(engine.reports[-1])


def test_it_reports_at_once_and_again(engine, start):
    start(DeclaredGpus(GPUS), interval=0.02)
    until(lambda: len(engine.reports) > 2, "reports")
    report = last(engine)
    assert (report.gpu_address, report.interval, report.snapshot.gpus) == ("192.0.2.1", 0.02, GPUS)
    assert report.snapshot.readings == {}


def test_the_mean_utilisation_is_that_of_all_it_read(engine, start):
    source, looks = ScriptedSource(), []

    def snapshot() -> GpuSnapshot:
        looks.append(percent := [60.0, 90.0, 30.0, 0.0][min(len(looks), 3)])
        return GpuSnapshot(GPUS[:1], {"GPU-0": Reading(utilisation=percent)})

    source.snapshot = snapshot
    start(source, interval=0.02, clock=lambda: 10.0 * len(looks))
    until(lambda: len(engine.reports) > 2, "reports")
    told = [GpuReport.from_dict(report).snapshot.readings["GPU-0"] for report in engine.reports[:3]]
    assert [(one.utilisation, one.mean_utilisation) for one in told] == [
        (60, 60),  # alone
        (90, 90),  # for all the time since
        (30, 60),
    ]


def test_it_reports_at_once_what_its_source_calls_news(engine, start):
    source = ScriptedSource()
    start(source)
    until(lambda: engine.reports, "the first report")
    source.next = GpuSnapshot(GPUS, problems=["a fan is broken"])
    source.on_change()
    until(lambda: last(engine).snapshot.problems == ["a fan is broken"], "the news")


def test_it_survives_a_source_that_breaks(engine, start, caplog):
    source = ScriptedSource()
    start(source, interval=0.02)
    until(lambda: engine.reports, "the first report")
    source.broken = True
    until(lambda: last(engine).snapshot.unavailable is not None, "a report that says so")
    assert last(engine).snapshot.unavailable.startswith("the GPUs could not be read: RuntimeError")
    assert "the source of the GPUs of gpu1 failed" in caplog.text
    source.broken = False
    until(lambda: last(engine).snapshot.gpus == GPUS, "a report of the GPUs")


def test_a_problem_is_logged_when_it_comes_and_when_it_goes(engine, start, caplog):
    caplog.set_level("INFO", "gsaas.gpu_host.agent")
    source = ScriptedSource()
    source.next = GpuSnapshot((), unavailable="the driver sleeps")
    start(source, interval=0.02)
    until(lambda: len(engine.reports) > 3, "reports")
    source.next = GpuSnapshot(GPUS)
    until(lambda: "solved: the driver sleeps" in caplog.text, "the end of it")
    assert caplog.text.count("gpu1: the driver sleeps") == 1


def test_the_answer_to_a_report_says_when_to_report_again(engine, start):
    engine.interval = 0.05
    start(DeclaredGpus(GPUS))
    until(lambda: len(engine.reports) > 1, "the second report")
    assert [report["interval"] for report in engine.reports[:2]] == [EVER, 0.05]


def test_an_interval_that_changes_is_known_to_all_monitors_at_once(bus, engine, start):
    start(DeclaredGpus(GPUS))
    until(lambda: engine.reports, "the first report")
    engine.interval = 7.0
    MonitorClient(bus).report_every(["gpu1"], 7.0)
    until(lambda: last(engine).interval == 7.0, "a report")


def test_without_a_setting_it_is_as_configured_again(bus, engine, start):
    engine.interval = 0.05
    monitor = start(DeclaredGpus(GPUS))
    until(lambda: engine.reports and last(engine).interval == 0.05, "a report")
    engine.interval = None
    MonitorClient(bus).report_every(["gpu1"], None)
    # The answer to a report may be the first to say so: then no report with this interval comes before it is over.
    until(lambda: monitor.describe()["seconds between two reports"] == EVER, "the interval")


def test_when_it_stops_it_lets_go_of_its_source(engine, start):
    source = ScriptedSource()
    start(source).stop()
    assert source.closed.is_set()


def test_without_an_engine_it_goes_on(start, bus, stack, monkeypatch, caplog):
    monkeypatch.setattr("gsaas.rpc.engine.REPORT_TIMEOUT", 0.1)
    start(DeclaredGpus(GPUS), interval=0.02)
    until(lambda: "could not report" in caplog.text, "the failure")
    engine = Engine()
    server = rpc.server(bus, rpc.ENGINE, "engine", engine)
    server.start()
    stack.callback(server.stop)
    until(lambda: engine.reports, "a report")


def test_a_report_that_no_engine_answered_is_sent_again_before_its_interval(
    start, bus, stack, monkeypatch, caplog
):
    monkeypatch.setattr("gsaas.rpc.engine.REPORT_TIMEOUT", 0.1)
    monkeypatch.setattr("gsaas.rpc.pace.FIRST_PAUSE", 0.1)
    start(DeclaredGpus(GPUS), interval=EVER)
    until(lambda: "could not report" in caplog.text, "the failure")
    engine = Engine()
    server = rpc.server(bus, rpc.ENGINE, "engine", engine)
    server.start()
    stack.callback(server.stop)
    until(lambda: engine.reports, "a report")


def test_simulated_gpus_that_leases_use_are_as_busy_as_their_time_and_name_say():
    moments, all_of_them = iter([0.0, 0.0, 100.0]), {gpu.uuid for gpu in GPUS}
    source = SimulatedGpus(GPUS, lambda: all_of_them, clock=lambda: next(moments))
    first, same, later = source.snapshot(), source.snapshot(), source.snapshot()
    assert first == same != later
    assert first.readings["GPU-0"] != first.readings["GPU-1"]
    for reading in later.readings.values():
        assert 0 <= reading.utilisation <= 100
        assert 0 <= reading.used_mb <= 23034


def test_simulated_gpus_that_no_lease_uses_read_idle():
    readings = SimulatedGpus(GPUS, lambda: {"GPU-1"}, clock=lambda: 100.0).snapshot().readings
    assert (readings["GPU-0"].utilisation, readings["GPU-0"].used_mb) == (0, 0)
    assert readings["GPU-1"].utilisation > 0


def test_a_report_arrives_as_it_was_sent():
    when = datetime.datetime(2026, 1, 2, 3, 4, 5, 678)
    failed = replace(GPUS[0], withdrawn="lost", fatal_error="XID 79", fatal_error_at=when)
    reading = Reading(
        used_mb=1,
        power_w=2.5,
        processes=(GpuProcess(17, "python", None),),
        xid_errors=(XidError(when, 79, True),),
    )
    snapshot = GpuSnapshot([failed, GPUS[1]], {"GPU-1": reading}, None, ["a fan is broken"])
    told = GpuReport("192.0.2.1", 10.0, snapshot).to_dict()
    again = GpuReport.from_dict(json.loads(json.dumps(told)))
    assert again.to_dict() == told
    assert again.snapshot.gpus == snapshot.gpus
    assert again.snapshot.readings["GPU-1"].xid_errors == [XidError(when, 79, True)]


READING = Reading(1, 50.0, 50.0, 40.0, 70.0, [GpuProcess(17, "python", 5)], [])
PYTHON = {"pid": 17, "name": "python", "used_mb": 5}


@pytest.mark.parametrize(
    ("change", "left"),
    [
        ({"used_mb": -1}, {"used_mb": None}),
        ({"used_mb": 1.5}, {"used_mb": None}),
        ({"used_mb": True}, {"used_mb": None}),
        ({"used_mb": 10**30}, {"used_mb": None}),
        ({"utilisation": "50"}, {"utilisation": None}),
        ({"utilisation": float("nan")}, {"utilisation": None}),
        ({"utilisation": 101}, {"utilisation": None}),
        ({"mean_utilisation": 1e9}, {"mean_utilisation": None}),
        ({"temperature_c": 4294967295}, {"temperature_c": None}),
        ({"power_w": float("inf")}, {"power_w": None}),
        ({"processes": 17}, {"processes": []}),
        ({"processes": [PYTHON, 17]}, {}),
        ({"processes": [PYTHON, {"pid": "1"}]}, {}),
        (
            {"processes": [{**PYTHON, "name": "x" * 256}]},
            {"processes": [GpuProcess(17, "x" * 254 + "…", 5)]},
        ),
        ({"processes": [{**PYTHON, "name": 5}]}, {"processes": [GpuProcess(17, None, 5)]}),
        (
            {"processes": [{**PYTHON, "used_mb": 2**44}]},
            {"processes": [GpuProcess(17, "python", None)]},
        ),
        ({"processes": [PYTHON] * 257}, {"processes": [GpuProcess(17, "python", 5)] * 256}),
        ({"xid_errors": [{"at": "yesterday", "xid": 79, "fatal": True}]}, {}),
        ({"xid_errors": [{"at": "2026-01-01T00:00:00", "xid": 79, "fatal": 1}]}, {}),
        ({"xid_errors": [{"at": "2026-01-01T00:00:00", "xid": 2**40, "fatal": True}]}, {}),
    ],
)
def test_a_value_of_a_reading_that_is_none_is_left_out_alone(change, left):
    report = GpuReport("192.0.2.1", 10.0, GpuSnapshot(GPUS, {"GPU-0": READING})).to_dict()
    report["readings"]["GPU-0"].update(change)
    found = GpuReport.from_dict(json.loads(json.dumps(report)))
    assert found.snapshot.readings == {"GPU-0": replace(READING, **left)}
    assert found.snapshot.gpus == GPUS
    cut = {"processes": [{**PYTHON, "name": "x" * 256}]}
    assert found.left_out.count == (change != cut)


def test_a_monitor_reports_nothing_that_an_engine_would_leave_out(engine, start):
    """Whatever its source says: sources may be of anyone."""
    source = ScriptedSource()
    odd = [
        replace(GPUS[0], model="", withdrawn="x" * 5000),
        replace(GPUS[1], uuid="N/A"),
        replace(GPUS[1], device_index=0),
        GPUS[1],
    ]
    garbage = Reading(used_mb=-1, utilisation=float("nan"), temperature_c=1e9, power_w=70.0)
    problems = ["x" * 5000] * 500
    source.next = GpuSnapshot(odd, {"GPU-0": garbage, "GPU-1": garbage}, None, problems)
    start(source)
    until(lambda: engine.reports, "the report")
    sent = GpuReport.from_dict(engine.reports[0])
    assert sent.left_out.told() == []
    assert [gpu.uuid for gpu in sent.snapshot.gpus] == ["GPU-0", "GPU-1"]
    assert sent.snapshot.readings["GPU-1"] == Reading(power_w=70.0, processes=[], xid_errors=[])
    assert len(sent.snapshot.problems) <= 101
    assert max(map(len, sent.snapshot.problems)) <= 1024


def test_loads_that_cannot_be_measured_cost_no_heartbeat(engine, start, monkeypatch, caplog):
    def broken(*_: object) -> list[Load]:
        raise ZeroDivisionError

    monkeypatch.setattr("gsaas.gpu_host.loads.of_gpus", broken)
    start(DeclaredGpus(GPUS), interval=0.02)
    until(lambda: len(engine.reports) > 1, "reports")
    assert last(engine).snapshot.gpus == GPUS
    assert "the loads of gpu1 could not be measured" in caplog.text


def test_the_first_report_has_the_loads_of_the_gpus_and_the_next_ones_have_none(engine, start):
    source = ScriptedSource()
    source.next = GpuSnapshot(GPUS, {"GPU-0": Reading(used_mb=5, utilisation=30.0)})
    start(source, interval=0.02)
    until(lambda: len(engine.reports) > 1, "reports")
    first, second = (GpuReport.from_dict(report) for report in engine.reports[:2])
    assert first.loads is not None
    assert first.loads.of == [Load("GPU-0", 30.0, 5)]
    assert second.loads is None
