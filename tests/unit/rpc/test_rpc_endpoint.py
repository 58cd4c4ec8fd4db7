# SPDX-License-Identifier: Apache-2.0
"""What agents and the API tell the engine, over a real bus into a real database."""

from __future__ import annotations

import datetime
import uuid
from dataclasses import dataclass, field

import pytest

from gsaas import rpc
from gsaas.context import RequestContext
from gsaas.db import endpoints, gpus, hosts, leases, models, settings
from gsaas.engine.agents import Agents
from gsaas.engine.callers import Callers
from gsaas.engine.rpc_endpoint import RpcEndpoint
from gsaas.metrics import counted
from gsaas.notifications.cadf import GRANT, LEASE, SecurityEvent
from gsaas.objects.address import Address
from gsaas.objects.binding import Binding, binding_of
from gsaas.objects.gpu_report import GpuInfo, GpuReport, GpuSnapshot, Reading
from gsaas.objects.lifecycle import Status
from gsaas.rpc.engine import EngineClient
from gsaas.rpc.hosts import AgentClient
from gsaas.rpc.monitor import MonitorClient
from tests.support.waiting import until

GPU = GpuInfo("GPU-1", 0, "Quadro M4000", 8192, 8308)
CONTEXT = RequestContext.of(user_id="u", project_id="p", roles=["member"])


@dataclass
class Desk:
    """The engine's side of the bus, and what it did."""

    engine: EngineClient
    inbox: RpcEndpoint
    woken: list[str] = field(default_factory=list)
    removed: list[tuple[str, str]] = field(default_factory=list)
    callers: Callers = field(default_factory=Callers)
    audited: list[SecurityEvent] = field(default_factory=list)

    def remove(self, host: str, port_id: str, serial: int) -> None:
        self.removed.append((host, port_id))


@pytest.fixture
def desk(bus, database, running) -> Desk:
    desk = Desk(EngineClient(bus), None)
    agents = Agents(desk, MonitorClient(bus, timeout=2.0))
    desk.inbox = RpcEndpoint(
        *(database, agents, desk.woken.append, desk.callers),
        audit=desk.audited.append,
    )
    running(rpc.server(bus, rpc.ENGINE, "engine-1", desk.inbox))
    return desk


@pytest.fixture
def bound(database):
    """Make leases whose binding the endpoint of a host was told of."""

    def make(status: Status, host: str = "compute1") -> models.LeaseRow:
        lease_id, port_id = str(uuid.uuid4()), str(uuid.uuid4())
        with database.write() as session:
            gpus.register(session, "gpu1", "192.168.50.11", [GPU])
            session.add(
                models.LeaseRow(
                    id=lease_id,
                    project_id="p",
                    user_id="u",
                    name="n",
                    status=status,
                    count=1,
                    mode="shared",
                    memory_mb=1024,
                    locality="any",
                    policy="first-fit",
                    remoting="simulated",
                    server_id=str(uuid.uuid4()),
                    server_host=host,
                    port_id=port_id,
                    port_tap=f"tap{port_id[:11]}",
                    port_mac="fa:16:3e:00:00:05",
                    port_ip="10.0.0.5",
                    bound_host=host,
                    fault_message="it broke",
                    claims=[
                        models.ClaimRow(
                            position=0,
                            gpu_uuid="GPU-1",
                            memory_mb=1024,
                            masked_ip="169.254.71.1",
                            masked_port=8308,
                        )
                    ],
                )
            )
        with database.read() as session:
            return leases.get(session.connection(), lease_id)

    return make


def holds(*lease_list: models.LeaseRow) -> dict:
    return {"bindings": {lease.port_id: {"installed": True} for lease in lease_list}}


def reported(desk, database, host: str, report: dict) -> None:
    """Send a report and wait until it was dealt with."""
    desk.engine.endpoint_report(host, report)

    def arrived() -> bool:
        with database.read() as session:
            found = endpoints.page(session, limit=10)
            return any(endpoint.report == report for endpoint in found)

    until(arrived, "the report")


def test_a_lease_that_changed_is_looked_at(desk):
    lease_id = str(uuid.uuid4())
    desk.engine.lease_changed(CONTEXT, lease_id)
    assert until(lambda: desk.woken) == [lease_id]


@pytest.mark.parametrize("spelling", ["{} ", " {}", "{}\t", "{{{}}}", "urn:uuid:{}", "", "lease-1"])
@pytest.mark.parametrize("method", ["lease_changed", "lease_left_queue"])
def test_a_message_names_a_lease_by_its_id_in_one_spelling(desk, method, spelling):
    with pytest.raises(ValueError, match="not the id of a lease"):
        getattr(desk.inbox, method)(CONTEXT, spelling.format(uuid.uuid4()))
    assert desk.woken == []


def test_a_message_with_an_id_in_capitals_names_no_lease(desk):
    with pytest.raises(ValueError, match="not the id of a lease"):
        desk.inbox.lease_changed(CONTEXT, "ABCDEF01-2345-4789-8ABC-DEF012345678")


def test_a_gpu_report_puts_the_host_and_its_gpus_on_offer(desk, database):
    desk.engine.monitor_report("gpu1", GpuReport("192.168.50.11", 10, GpuSnapshot([GPU])))
    with database.read() as session:
        (gpu,) = gpus.page(session, limit=10)
    assert (gpu.uuid, gpu.memory_mb, gpu.daemon_port) == ("GPU-1", 8192, 8308)
    with database.read() as session:
        host = hosts.get(session, "gpu1")
    assert host.gpu_address == "192.168.50.11"
    assert isinstance(host.monitor_seen_at, datetime.datetime)


def test_a_monitor_is_answered_how_often_to_report(desk, database):
    report = GpuReport("192.168.50.11", 10, GpuSnapshot([GPU]))
    assert desk.engine.monitor_report("gpu1", report).monitor_interval is None
    with database.write() as session:
        settings.put(session, settings.MONITOR_INTERVAL, 5)
    assert desk.engine.monitor_report("gpu1", report).monitor_interval == 5
    with database.read() as session:
        assert hosts.get(session, "gpu1").monitor_interval == 10


def test_an_interval_that_changed_is_told_to_every_monitor(bus, desk, database, running):
    class Told:
        target = rpc.Target(version="1.0")

        def __init__(self) -> None:
            self.intervals: list[float | None] = []

        def report_every(self, context, seconds: float | None) -> None:
            self.intervals.append(seconds)

    monitors = [Told(), Told()]
    for number, monitor in enumerate(monitors):
        running(rpc.agent_server(bus, rpc.MONITOR, f"gpu{number}", monitor))
    with database.write() as session:
        settings.put(session, settings.MONITOR_INTERVAL, 5)
        for number in range(2):
            gpus.register(session, f"gpu{number}", f"192.168.50.1{number}", [])
    desk.engine.monitor_interval_changed(CONTEXT)
    until(lambda: all(monitor.intervals for monitor in monitors), "the monitors to be told")
    assert [monitor.intervals for monitor in monitors] == [[5], [5]]


class TestOneHostWhoseQueueRefusesMessages:
    @pytest.fixture
    def told(self, monkeypatch) -> list[str]:
        told = []

        def cast(agents, host: str, method: str, **arguments) -> None:
            if host == "gpu0":
                raise rpc.Undelivered("its queue is full")
            told.append(host)

        monkeypatch.setattr(AgentClient, "cast", cast)
        return told

    def test_does_not_keep_the_others_from_the_interval(self, bus, told):
        MonitorClient(bus).report_every(["gpu0", "gpu1", "gpu2"], 5.0)
        assert told == ["gpu1", "gpu2"]

    def test_is_told_from_a_bus_that_is_down(self, bus, told, monkeypatch):
        def check(bus) -> None:
            raise rpc.Undelivered("cannot connect")

        monkeypatch.setattr(rpc, "check", check)
        with pytest.raises(rpc.BusError, match="cannot connect"):
            MonitorClient(bus).report_every(["gpu0", "gpu1"], 5.0)
        assert told == []


def test_what_was_read_of_gpus_arrives_with_what_is_wrong(desk, database):
    snapshot = GpuSnapshot([GPU], {"GPU-1": Reading(utilisation=37.0)}, None, ["a fan is broken"])
    desk.engine.monitor_report("gpu1", GpuReport("192.168.50.11", 10, snapshot))
    with database.read() as session:
        assert gpus.readings(session, ["GPU-1"])["GPU-1"].utilisation == 37.0
        assert hosts.get(session, "gpu1").monitor_problems == ["a fan is broken"]


def test_an_endpoint_that_starts_is_told_all_it_should_hold_and_nothing_else(desk, database, bound):
    wanted = [bound(Status.BOOTING), bound(Status.ACTIVE)]
    bound(Status.ACTIVE, host="elsewhere")
    expected = {
        Binding(
            lease.port_id,
            lease.id,
            lease.port_tap,
            lease.port_mac,
            lease.port_ip,
            {Address("169.254.71.1", 8308): Address("192.168.50.11", 8308)},
        ).to_dict()["port_id"]
        for lease in wanted
    }
    answer = desk.engine.endpoint_started("compute1")
    assert {binding.port_id for binding in answer.bindings} == expected
    with database.read() as session:
        for binding in answer.bindings:
            assert binding == binding_of(leases.get(session.connection(), binding.lease_id))


def test_an_endpoint_that_starts_is_told_all_addresses_of_a_port(desk, database, bound):
    lease = bound(Status.ACTIVE)
    with database.write() as session:
        leases.update(session.connection(), lease.id, port_other_ips=["10.0.1.9"])
    (binding,) = desk.engine.endpoint_started("compute1").bindings
    assert (binding.ip, binding.other_ips) == ("10.0.0.5", ("10.0.1.9",))


def test_endpoints_of_the_release_before_get_bindings_as_they_know_them(desk, database, bound):
    lease = bound(Status.ACTIVE)
    with database.write() as session:
        leases.update(session.connection(), lease.id, port_other_ips=["10.0.1.9"])
    answer = desk.inbox.endpoint_started(CONTEXT, "compute1")
    (sent,) = answer["bindings"]
    assert set(sent) == {"port_id", "lease_id", "tap", "mac", "ip", "mappings"}


def test_a_lease_whose_vm_sends_from_a_strange_address_is_looked_at(desk, database, bound):
    """The cloud may have given its port that address."""
    strange, usual = bound(Status.ACTIVE), bound(Status.ACTIVE)
    report = holds(strange, usual)
    report["refusals"] = {
        strange.port_id: {"seconds": 30, "foreign": 3, "source": "10.0.1.9"},
        usual.port_id: {"seconds": 30, "unmapped": 3},
    }
    reported(desk, database, "compute1", report)
    assert until(lambda: desk.woken) == [strange.id]


def test_what_an_endpoint_is_told_at_its_start_is_newer_than_all_orders_before(desk, database):
    with database.write() as session:
        order = hosts.next_serial(session, "compute1")
    assert desk.engine.endpoint_started("compute1").serial > order


@pytest.mark.parametrize("status", [Status.RELEASING, Status.ERROR])
def test_a_binding_on_its_way_out_is_not_handed_to_an_endpoint_that_starts(desk, bound, status):
    """Its removal may have been confirmed a moment ago."""
    bound(status)
    assert desk.engine.endpoint_started("compute1").bindings == ()


def test_an_endpoint_that_starts_makes_its_host_a_compute_host(desk, database):
    desk.engine.endpoint_started("compute1")
    with database.read() as session:
        assert endpoints.get(session, "compute1").report == {"bindings": {}}


def test_a_report_wakes_leases_that_wait_for_it_and_those_the_endpoint_forgot(
    desk, database, bound
):
    booting, forgotten = bound(Status.BOOTING), bound(Status.ACTIVE)
    content = bound(Status.ACTIVE)
    reported(desk, database, "compute1", holds(booting, content))
    until(lambda: len(desk.woken) == 2, "two leases to be woken")
    assert set(desk.woken) == {booting.id, forgotten.id}


def test_a_report_of_a_binding_that_the_kernel_refuses_does_not_have_it_sent_again(desk, bound):
    """The endpoint reports after each order: they would answer each other without an end."""
    refused, forgotten = bound(Status.BOOTING), bound(Status.BOOTING)
    report = {"bindings": {refused.port_id: {"installed": False}}}
    desk.inbox.endpoint_report(CONTEXT, "compute1", report)
    assert desk.woken == [forgotten.id]
    assert desk.removed == []


def test_a_port_that_no_lease_knows_of_is_removed_from_the_endpoint(desk, database, bound):
    lease = bound(Status.ACTIVE)
    report = holds(lease)
    report["bindings"]["stranger"] = {"installed": True}
    reported(desk, database, "compute1", report)
    assert until(lambda: desk.removed, "the removal") == [("compute1", "stranger")]


@pytest.mark.parametrize("report", [[], {}, {"bindings": []}, {"bindings": None}, None, "all well"])
def test_a_report_that_is_not_one_is_refused_and_changes_nothing(desk, database, report):
    with pytest.raises(ValueError, match="has sent an invalid report"):
        desk.inbox.endpoint_report(CONTEXT, "compute1", report)
    with database.read() as session:
        assert endpoints.page(session, limit=10) == []


def counted_as_left_out(report: str) -> float:
    name = "gsaas_report_values_left_out_total"
    return counted.REGISTRY.get_sample_value(name, {"report": report}) or 0.0


def test_what_is_left_out_of_reports_is_counted_and_told_to_operators(desk, database):
    before = [counted_as_left_out(report) for report in ("gpus", "daemons", "endpoint")]
    gpus_of = GpuReport("192.168.50.11", 10, GpuSnapshot([GPU])).to_dict()
    gpus_of["gpus"].append({**gpus_of["gpus"][0], "uuid": "N/A"})
    desk.inbox.monitor_report(CONTEXT, "gpu1", gpus_of)
    desk.inbox.daemons_report(CONTEXT, "gpu1", {**DAEMONS, "problems": [1, 2]})
    desk.inbox.endpoint_report(CONTEXT, "gpu1", {"bindings": {"port": {"installed": "yes"}}})
    after = [counted_as_left_out(report) for report in ("gpus", "daemons", "endpoint")]
    assert [now - then for now, then in zip(after, before, strict=True)] == [1, 2, 1]
    with database.read() as session:
        host = hosts.get(session, "gpu1")
        (problem,) = host.monitor_problems
        assert problem == (
            "1 value of its report is not valid and left out; the first: GPUs, number 1: 'N/A' does not match "
            "(GPU|MIG|CPU)-[0-9A-Za-z./-]{1,92}. If this lasts, update GSaaS and the GPUs' driver on this host"
        )
        assert host.monitor_report["problems"][0].startswith("2 values of its report are not valid")
        (problem,) = endpoints.get(session, "gpu1").report["problems"]
        assert "the binding of port, installed: 'yes' is neither true nor false" in problem


BAD_GPUS = [
    {"uuid": "no UUID"},
    {"uuid": None},
    {"device_index": -1},
    {"memory_mb": 0},
    {"memory_mb": "8192"},
    {"daemon_port": 65536},
    {"fatal_error": "XID 79"},
    {"fatal_error_at": "2026-01-01T00:00:00"},
    {"fatal_error": "XID 79", "fatal_error_at": "2026-01-01T00:00:00Z"},
    {"uuid": "GPU-1"},
    {"device_index": 0},
]
"""Each makes that GPU, which is the second one, unusable."""


@pytest.mark.parametrize("change", BAD_GPUS)
def test_a_gpu_that_is_none_is_left_out_alone(desk, database, change):
    report = GpuReport("192.168.50.11", 10, GpuSnapshot([GPU])).to_dict()
    report["gpus"].append({**report["gpus"][0], "uuid": "GPU-2", "device_index": 1, **change})
    desk.inbox.monitor_report(CONTEXT, "gpu1", report)
    with database.read() as session:
        assert [gpu.uuid for gpu in gpus.page(session, limit=10)] == ["GPU-1"]
        assert len(hosts.get(session, "gpu1").monitor_problems) == 1


@pytest.mark.parametrize(
    ("change", "stored"),
    [
        ({"model": ""}, {"model": "unknown"}),
        ({"model": 17}, {"model": "unknown"}),
        ({"model": "x" * 300}, {"model": "x" * 254 + "…"}),
        ({"compute_capability": "nine"}, {"compute_capability": None}),
        ({"withdrawn": 5}, {"withdrawn_reason": "its monitor does not say why"}),
        ({"withdrawn": ""}, {"withdrawn_reason": "its monitor does not say why"}),
        ({"of a newer release": 1}, {}),
    ],
)
def test_a_gpu_with_another_odd_value_is_offered_or_withdrawn(desk, database, change, stored):
    report = GpuReport("192.168.50.11", 10, GpuSnapshot([GPU])).to_dict()
    report["gpus"][0].update(change)
    desk.inbox.monitor_report(CONTEXT, "gpu1", report)
    usual = {"model": "Quadro M4000", "compute_capability": None, "withdrawn_reason": None}
    with database.read() as session:
        (gpu,) = gpus.page(session, limit=10)
        assert {name: getattr(gpu, name) for name in usual} == {**usual, **stored}


@pytest.mark.parametrize("address", ["gpu1.example.org", "", None, 17, "192.168.50.11 " * 99])
def test_a_host_without_an_address_keeps_its_heartbeat_and_offers_nothing(desk, database, address):
    desk.engine.monitor_report("gpu1", GpuReport("192.168.50.11", 10, GpuSnapshot([GPU])))
    report = {**GpuReport("", 10, GpuSnapshot([GPU])).to_dict(), "gpu_address": address}
    desk.inbox.monitor_report(CONTEXT, "gpu1", report)
    with database.read() as session:
        host = hosts.get(session, "gpu1")
        assert "reports no IPv4 address" in host.monitor_problems[-1]
        assert host.gpu_address == "192.168.50.11"
        (gpu,) = gpus.page(session, limit=10)
        assert "reports no IPv4 address" in gpu.withdrawn_reason


@pytest.mark.parametrize("listed", [None, {}, "GPU-1", [{}] * 1025])
def test_without_a_list_of_gpus_none_of_them_is_taken_for_gone(desk, database, listed):
    desk.engine.monitor_report("gpu1", GpuReport("192.168.50.11", 10, GpuSnapshot([GPU])))
    report = GpuReport("192.168.50.11", 10, GpuSnapshot([])).to_dict()
    desk.inbox.monitor_report(CONTEXT, "gpu1", {**report, "gpus": listed})
    with database.read() as session:
        (gpu,) = gpus.page(session, limit=10)
        assert gpu.withdrawn_reason == "the report of its monitor has no list of at most 1024 GPUs"


def test_what_is_no_object_is_no_report_of_gpus(desk, database):
    for report in (None, [], "all well", 17):
        with pytest.raises(TypeError, match="is not an object"):
            desk.inbox.monitor_report(CONTEXT, "gpu1", report)
    with database.read() as session:
        assert hosts.page(session, limit=10) == []


DAEMONS = {"serial": 0, "daemons": {}, "fence": None, "problems": []}
SAID = {
    "lease_id": None,
    "position": 0,
    "gpu_uuid": "GPU-1",
    "port": 8308,
    "memory_mb": None,
    "state": "healthy",
    "restarts": 0,
    "detail": None,
    "failed_starts": 0,
}


def test_a_gpu_host_that_starts_is_told_what_to_hold_with_a_growing_number(desk):
    first, second = (desk.engine.daemons_started("gpu7") for _ in range(2))
    assert first.serial < second.serial
    assert first.daemons == first.admissions == frozenset()


def test_what_a_gpu_host_holds_is_noted(desk, database):
    desk.engine.daemons_report("gpu7", {**DAEMONS, "daemons": {"gpu-GPU-1": SAID}})

    def noted() -> dict | None:
        with database.read() as session:
            return hosts.monitor_reports(session, ["gpu7"]).get("gpu7")

    assert until(noted)["daemons"] == {"gpu-GPU-1": SAID}


@pytest.mark.parametrize("wrong", [{"serial": -1}, {"serial": None}, {"daemons": [SAID]}])
def test_a_report_of_daemons_that_makes_no_sense_is_refused(desk, wrong):
    with pytest.raises(ValueError, match="has sent an invalid report"):
        desk.inbox.daemons_report(CONTEXT, "gpu7", {**DAEMONS, **wrong})


def test_a_grant_that_is_refused_at_a_gate_is_a_security_event(desk):
    lease_id = str(uuid.uuid4())
    assert desk.engine.grant_shown("gpu1", "forged", "192.0.2.7", lease_id).refusal is not None
    assert desk.audited == [
        SecurityEvent(
            *(GRANT, "authenticate", False, "gsaas.grant.forged", "192.0.2.7"),
            target_type=LEASE,
            target_id=lease_id,
        )
    ]
