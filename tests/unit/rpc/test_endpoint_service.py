# SPDX-License-Identifier: Apache-2.0
"""The endpoint of a host on a real bus: in order, in step with the engine, and honest about silence."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from dataclasses import replace

import pytest

from gsaas import rpc
from gsaas.objects.address import Address
from gsaas.objects.binding import Binding
from gsaas.objects.endpoint_report import BindingReport, EndpointReport, Traffic
from gsaas.rodvr.service import EndpointService
from gsaas.rpc import pace
from gsaas.rpc.hosts import AgentCallFailed
from gsaas.rpc.rodvr import EndpointClient
from tests.support.waiting import until

HOST = "compute1"
FOREVER = 3600.0


def binding(port_id: str) -> Binding:
    mappings = {Address("169.254.71.1", 8308): Address("192.168.50.11", 8308)}
    return Binding(port_id, "lease", "tap0", "fa:16:3e:00:00:05", "10.0.0.5", mappings)


class MemoryEndpoint:
    """An `Endpoint` without a kernel."""

    def __init__(self, on_installed) -> None:
        self.on_installed = on_installed
        self.held: dict[str, Binding] = {}
        self.taps: set[str] = {"tap0"}

    def start(self) -> None:
        """Nothing to open."""

    def stop(self) -> None:
        """Nothing to close."""

    def replace(self, bindings: Iterable[Binding]) -> EndpointReport:
        self.held = {binding.port_id: binding for binding in bindings}
        return self.report()

    def apply(self, binding: Binding) -> EndpointReport:
        self.held[binding.port_id] = binding
        return self.report()

    def remove(self, port_id: str) -> EndpointReport:
        if port_id == "stuck":
            raise OSError("the kernel would not let go")
        self.held.pop(port_id, None)
        return self.report()

    def report(self, *, traffic: bool = False) -> EndpointReport:
        installed = {p: BindingReport(b.tap in self.taps) for p, b in self.held.items()}
        carried = {port_id: Traffic(1, 2, 3) for port_id in self.held} if traffic else {}
        return EndpointReport(HOST, installed, traffic=carried)


STARTED = 1000
"""The serial of what the engine says to an endpoint that starts."""


class MemoryEngine:
    """The engine's side: what it answers, and what it was told."""

    target = rpc.Target(version="1.1")

    def __init__(self) -> None:
        self.wanted = [binding("known")]
        self.asked = threading.Event()
        self.answers = threading.Event()
        self.answers.set()
        self.reports: list[dict] = []
        self.traffic: list[dict] = []
        self.takes_reports = True

    def endpoint_started(self, context, host):
        sent = [b.to_dict() for b in self.wanted]
        others = {b["port_id"]: b.pop("other_ips") for b in sent if "other_ips" in b}
        answer = {"serial": STARTED, "bindings": sent, "other_ips": others}
        self.asked.set()
        assert self.answers.wait(60)
        return answer

    def endpoint_report(self, context, host, report):
        self.reports.append(report["bindings"])
        self.traffic.append(report["traffic"])
        if not self.takes_reports:
            raise KeyError("a defect")

    def fail(self, context, host):
        raise RuntimeError("a defect")


class Wired:
    """An engine and an endpoint on one bus."""

    def __init__(self, bus, running) -> None:
        self.bus = bus
        self.running = running
        self.engine = MemoryEngine()
        running(rpc.server(bus, rpc.ENGINE, "engine-1", self.engine))
        self.client = EndpointClient(bus, timeout=60)

    def start(self) -> MemoryEndpoint:
        made: list[MemoryEndpoint] = []

        def make(on_installed):
            made.append(MemoryEndpoint(on_installed))
            return made[0]

        self.running(EndpointService(self.bus, HOST, make, report_interval=FOREVER))
        return made[0]


@pytest.fixture
def wired(bus, running) -> Wired:
    return Wired(bus, running)


def test_an_endpoint_that_starts_holds_what_the_engine_says(wired):
    endpoint = wired.start()
    until(lambda: endpoint.held == {"known": binding("known")}, "the binding")


def test_a_binding_is_applied_and_confirmed_and_removed_and_confirmed(wired):
    endpoint = wired.start()
    answer = wired.client.apply(HOST, binding("new"), STARTED + 1)
    assert answer["bindings"]["new"]["installed"] is True
    assert endpoint.held["new"] == binding("new")
    assert "new" not in wired.client.remove(HOST, "new", STARTED + 2)["bindings"]
    assert "new" not in endpoint.held


WITH_TWO_ADDRESSES = replace(binding("new"), other_ips=("10.0.1.9",))


def test_a_binding_arrives_with_all_addresses_of_its_port(wired):
    wired.engine.wanted = [binding("known"), WITH_TWO_ADDRESSES]
    endpoint = wired.start()
    until(lambda: endpoint.held.get("new") == WITH_TWO_ADDRESSES, "the binding at the start")
    moved = replace(WITH_TWO_ADDRESSES, other_ips=("10.0.1.9", "10.0.2.9"))
    wired.client.apply(HOST, moved, STARTED + 1)
    assert endpoint.held["new"] == moved


class OldEndpoint:
    """An endpoint of the release before, which knows one address of each port."""

    target = rpc.Target(version="1.1")

    def __init__(self) -> None:
        self.taken: list[dict] = []

    def apply(self, context, binding, serial):
        known = {"port_id", "lease_id", "tap", "mac", "ip", "mappings"}
        if unknown := binding.keys() - known:
            raise TypeError(f"unexpected keyword arguments {unknown}")
        self.taken.append(binding)
        return {"bindings": {binding["port_id"]: {"installed": True}}}


def test_an_endpoint_of_the_release_before_gets_a_binding_as_it_knows_it(bus, running):
    old = OldEndpoint()
    running(rpc.agent_server(bus, rpc.RODVR, HOST, old))
    answer = EndpointClient(bus, timeout=60).apply(HOST, WITH_TWO_ADDRESSES, 1)
    assert answer["bindings"]["new"]["installed"] is True
    assert old.taken == [binding("new").to_dict()]


def test_the_engine_hears_at_once_when_a_waiting_binding_gets_installed(wired):
    endpoint = wired.start()
    endpoint.taps.clear()
    wired.client.apply(HOST, binding("new"), STARTED + 1)
    until(lambda: any("new" in report for report in wired.engine.reports), "a first report")
    endpoint.taps.add("tap0")
    endpoint.on_installed("new")
    until(
        lambda: wired.engine.reports[-1].get("new", {}).get("installed"),
        "a report that says it is installed",
    )


def test_a_removal_that_comes_while_the_endpoint_takes_over_is_not_undone_by_an_older_answer(
    wired,
):
    """The engine's answer, read before the lease was released, arrives after the call to remove it."""
    wired.engine.answers.clear()
    endpoint = wired.start()
    assert wired.engine.asked.wait(60)
    removal = threading.Thread(target=wired.client.remove, args=(HOST, "known", STARTED + 1))
    removal.start()
    wired.engine.answers.set()
    removal.join(60)
    assert not removal.is_alive()
    assert endpoint.held == {}


def test_calls_are_carried_out_in_the_order_they_were_made(wired):
    """A binding that the engine gave up waiting for must not come back after its removal."""
    wired.engine.answers.clear()
    endpoint = wired.start()
    assert wired.engine.asked.wait(60)
    hasty = EndpointClient(wired.bus, timeout=0.1)
    with pytest.raises(AgentCallFailed):
        hasty.apply(HOST, binding("late"), STARTED + 1)
    removal = threading.Thread(target=wired.client.remove, args=(HOST, "late", STARTED + 2))
    removal.start()
    wired.engine.answers.set()
    removal.join(60)
    assert "late" not in endpoint.held


def test_an_order_that_was_decided_before_a_removal_installs_nothing_after_it(wired):
    """Of an engine that stood still while another one released the lease, and its GPU was given to another lease."""
    endpoint = wired.start()
    wired.client.apply(HOST, binding("new"), STARTED + 1)
    wired.client.remove(HOST, "new", STARTED + 3)
    with pytest.raises(AgentCallFailed, match=f"the order {STARTED + 2} for port new is older"):
        wired.client.apply(HOST, binding("new"), STARTED + 2)
    assert "new" not in endpoint.held
    wired.client.apply(HOST, binding("new"), STARTED + 4)
    assert "new" in endpoint.held


def test_a_removal_that_was_decided_before_the_binding_was_installed_again_removes_nothing(wired):
    endpoint = wired.start()
    wired.client.apply(HOST, binding("new"), STARTED + 2)
    with pytest.raises(AgentCallFailed, match="is older"):
        wired.client.remove(HOST, "new", STARTED + 1)
    assert "new" in endpoint.held


def test_an_order_from_before_the_endpoint_started_installs_nothing(wired):
    endpoint = wired.start()
    with pytest.raises(AgentCallFailed, match="is older"):
        wired.client.apply(HOST, binding("new"), STARTED - 1)
    assert endpoint.held == {"known": binding("known")}


def test_an_endpoint_that_does_not_exist_confirms_nothing(bus):
    with pytest.raises(AgentCallFailed, match="nowhere does not answer"):
        EndpointClient(bus, timeout=0.1).remove("nowhere", "port", 1)


def test_a_host_that_did_not_answer_keeps_nobody_waiting_for_a_while(bus):
    now = [0.0]
    client = EndpointClient(bus, timeout=0.1, clock=lambda: now[0])
    with pytest.raises(AgentCallFailed, match="does not answer"):
        client.remove("nowhere", "port", 1)
    with pytest.raises(AgentCallFailed, match="a moment ago"):
        client.remove("nowhere", "port", 1)
    now[0] += 1
    with pytest.raises(AgentCallFailed, match="does not answer"):
        client.remove("nowhere", "port", 1)


def test_a_removal_that_the_kernel_refuses_is_not_confirmed(wired):
    wired.start()
    with pytest.raises(AgentCallFailed, match="would not let go"):
        wired.client.remove(HOST, "stuck", STARTED + 1)


def test_an_endpoint_waits_longer_with_each_attempt_that_no_engine_answers(wired, monkeypatch):
    pauses: list[float] = []

    class Paused(pace.BackOff):
        def next_pause(self) -> float:
            pauses.append(super().next_pause())
            return 0.0

    monkeypatch.setattr(pace, "BackOff", lambda: Paused(lambda _least, most: most))
    monkeypatch.setattr(wired.engine, "endpoint_started", wired.engine.fail, raising=False)
    wired.start()
    until(lambda: len(pauses) > 3, "some attempts")
    assert pauses[:4] == [1, 2, 4, 8]


def test_an_engine_that_fails_at_a_report_gets_the_next_one(wired):
    wired.engine.takes_reports = False
    endpoint = wired.start()
    until(lambda: wired.engine.reports, "a report that the engine could not take")
    wired.engine.takes_reports = True
    before = len(wired.engine.reports)
    endpoint.on_installed("known")
    until(lambda: len(wired.engine.reports) > before, "another report")


def test_a_report_that_no_engine_took_is_repeated_soon(wired, monkeypatch):
    monkeypatch.setattr(pace, "FIRST_PAUSE", 0.01)
    turns: list[bool] = []

    def until_next(interval: float, *, in_turn: bool, chance: pace.Chance) -> float:
        turns.append(in_turn)
        return interval

    monkeypatch.setattr(pace, "until_next", until_next)
    wired.engine.takes_reports = False
    wired.start()
    until(lambda: len(wired.engine.reports) > 3, "some attempts")
    assert turns == []
    wired.engine.takes_reports = True
    until(lambda: turns, "a report that was taken")
    assert turns == [False], "after an attempt the interval of all hosts is left to chance"


def test_an_endpoint_whose_report_fails_of_a_defect_reports_later(wired, monkeypatch):
    monkeypatch.setattr(pace, "FIRST_PAUSE", 0.01)
    failures = fail_first(monkeypatch, "report", times=3)
    wired.start()
    until(lambda: wired.engine.reports, "a report in spite of the defect")
    assert list(wired.engine.reports[0]) == ["known"]
    assert next(failures, None) is None


def test_an_endpoint_that_cannot_take_over_its_bindings_serves_calls_and_reports(
    wired, monkeypatch
):
    fail_first(monkeypatch, "replace", times=1)
    wired.start()
    until(lambda: wired.engine.reports == [{}], "a report without bindings")
    answer = wired.client.apply(HOST, binding("known"), STARTED + 1)
    assert answer["bindings"]["known"]["installed"] is True


def fail_first(monkeypatch: pytest.MonkeyPatch, method: str, times: int) -> Iterator[int]:
    """Have a method of `MemoryEndpoint` fail so many *times*; return an iterator of the failures left."""
    works = getattr(MemoryEndpoint, method)
    failures = iter(range(times))

    def fail(endpoint: MemoryEndpoint, *arguments: object, **more: object) -> object:
        if next(failures, None) is not None:
            raise AttributeError("a defect")
        return works(endpoint, *arguments, **more)

    monkeypatch.setattr(MemoryEndpoint, method, fail)
    return failures


def test_a_report_that_fails_never_waits_longer_than_the_interval(bus, running, monkeypatch):
    monkeypatch.setattr(pace, "FIRST_PAUSE", 3600.0)
    engine = MemoryEngine()
    engine.takes_reports = False
    running(rpc.server(bus, rpc.ENGINE, "engine-1", engine))
    running(EndpointService(bus, HOST, MemoryEndpoint, report_interval=0.01))
    until(lambda: len(engine.reports) > 3, "some attempts")


def test_only_a_report_whose_interval_is_over_is_in_turn(wired, monkeypatch):
    turns: list[bool] = []

    def until_next(interval: float, *, in_turn: bool, chance: pace.Chance) -> float:
        turns.append(in_turn)
        return 0.01 if len(turns) < 2 else interval

    monkeypatch.setattr(pace, "until_next", until_next)
    endpoint = wired.start()
    until(lambda: len(turns) == 2, "the report after the first one")
    endpoint.on_installed("known")
    until(lambda: len(turns) == 3, "a report that something was the reason for")
    assert turns == [False, True, False]


@pytest.mark.parametrize(("interval", "traffic"), [(0.0, [True, True]), (3600.0, [True, False])])
def test_what_passes_the_path_is_reported_from_time_to_time(wired, monkeypatch, interval, traffic):
    monkeypatch.setattr("gsaas.rodvr.service.TRAFFIC_INTERVAL", interval)
    endpoint = wired.start()
    until(lambda: wired.engine.traffic, "the first report")
    endpoint.on_installed("known")
    until(lambda: len(wired.engine.traffic) > 1, "another report")
    assert [bool(each) for each in wired.engine.traffic[:2]] == traffic


def test_traffic_that_no_engine_took_is_reported_again(wired, monkeypatch):
    monkeypatch.setattr(pace, "FIRST_PAUSE", 0.01)
    wired.engine.takes_reports = False
    wired.start()
    until(lambda: len(wired.engine.traffic) > 2, "some attempts")
    assert all(wired.engine.traffic)
