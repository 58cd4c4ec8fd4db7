# SPDX-License-Identifier: Apache-2.0
"""What one lying host says in reports and answers, against what is known of all the others, and who reads it."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest
import sqlalchemy

from gsaas.context import RequestContext
from gsaas.db import endpoints, gpus, hosts, leases, metrics, readings
from gsaas.db.database import Database
from gsaas.db.models import LeaseRow
from gsaas.engine import host_reports
from gsaas.engine.agents import Agents
from gsaas.engine.callers import Callers
from gsaas.engine.gpu_hosts import GpuHosts
from gsaas.engine.reconciler import installed_bindings
from gsaas.engine.rpc_endpoint import RpcEndpoint
from gsaas.objects.daemon import DaemonState
from gsaas.objects.gpu_report import GpuInfo, GpuReport, GpuSnapshot
from gsaas.objects.lifecycle import Status
from gsaas.rpc.hosts import AgentCallFailed
from tests.support import rows, sqlite
from tests.support.waiting import PATIENCE

CONTEXT = RequestContext(overwrite=False)
GPU = GpuInfo("GPU-a", 0, "NVIDIA L4", 23034, 8308)
OTHER = GpuInfo("GPU-b", 0, "NVIDIA L4", 23034, 8308)
DAEMON = {
    "lease_id": "lease-1",
    "position": 0,
    "gpu_uuid": "GPU-b",
    "port": 20000,
    "memory_mb": None,
    "state": "healthy",
    "restarts": 0,
    "detail": None,
}
DAEMONS: dict[str, Any] = {"serial": 1, "daemons": {}, "fence": None, "problems": []}
TERMINAL = "\x1b]0;owned\x07\r\n2026-01-01 INFO all is well \u202egnirts"
"""Moves the cursor, forges a line of a log, and shows text backwards."""


class Monitors:
    """Calls to monitors, of which each gets the same answer."""

    def __init__(self, answer: Callable[[], Any]) -> None:
        self._answer = answer
        self.calls = 0

    def apply(self, host: str, desired: object) -> Any:
        self.calls += 1
        return self._answer()


def silence() -> Any:
    raise AgentCallFailed("the monitor does not answer")


class Removals:
    """Removes any binding."""

    def __init__(self) -> None:
        self.calls = 0

    def remove(self, host: str, port_id: str, serial: int) -> None:
        self.calls += 1


@pytest.fixture
def database(tmp_path) -> Iterator[Database]:
    database = sqlite.in_file(tmp_path / "gsaas.db", sqlite.migrated())
    yield database
    database.close()


@pytest.fixture
def engine(database: Database) -> Callable[..., RpcEndpoint]:
    """Make the engine's side of the message bus; gpu1 has GPU-a, and a lease uses it."""

    def make(answer: Callable[[], Any] = silence, removals: Any = None) -> RpcEndpoint:
        monitors = Monitors(answer)
        made = RpcEndpoint(
            *(database, Agents(removals or Removals(), monitors), lambda _: None, Callers()),
        )
        made.monitors = monitors  # for the tests
        return made

    report_gpus(make(), "gpu1", "192.0.2.11", GPU)
    with database.write() as session:
        session.add(rows.lease("lease-1", status=Status.ACTIVE, has_server=False))
        session.flush()
        session.add(rows.claim("lease-1"))
        gpu = gpus.get(session, "GPU-a")
        gpu.used_mb, gpu.leases = 2048, 1
    return make


def report_gpus(engine: RpcEndpoint, host: str, address: str, *infos: GpuInfo, **more: Any) -> None:
    report = GpuReport(address, 10.0, GpuSnapshot(infos, **more))
    engine.monitor_report(CONTEXT, host, report.to_dict())


def shown(database: Database) -> str:
    """Return all that is stored of hosts, as JSON that every reader understands."""
    with database.read() as session:
        metrics.state(session, 60.0)
        found = [
            [row.report for row in endpoints.page(session, limit=99)],
            [[row.monitor_report, row.monitor_problems] for row in hosts.page(session, limit=99)],
            [[row.model, row.withdrawn_reason] for row in gpus.page(session, limit=99)],
        ]
    return json.dumps(found, allow_nan=False, ensure_ascii=False)


# What one host reports is added to what the others do


ENDPOINT_LIES: dict[str, dict[str, Any]] = {
    "a field more": {"conntrack": {"entries": 1, "limit": 1, "more": 1}},
    "more entries than a number can have": {"conntrack": {"entries": 10**400, "limit": 1}},
    "entries that are true": {"conntrack": {"entries": True, "limit": 1.0}},
    "counters that are none": {
        "bindings": {"port": {"installed": True, "dropped_packets": {"unmapped": "many"}}}
    },
    "a list of counters": {"bindings": {"port": {"installed": True, "dropped_packets": [1]}}},
    "seconds that are no number": {
        "bindings": {"port": {"installed": True, "seconds": float("nan")}}
    },
    "endless seconds": {"bindings": {"port": {"installed": True, "seconds": float("inf")}}},
}


@pytest.mark.parametrize("lie", ENDPOINT_LIES.values(), ids=ENDPOINT_LIES.keys())
def test_no_report_of_an_endpoint_keeps_anybody_from_the_metrics_of_all(engine, database, lie):
    with suppress(Exception):
        engine().endpoint_report(CONTEXT, "evil", {"bindings": {}, **lie})
    shown(database)


MONITOR_LIES: dict[str, dict[str, Any]] = {
    "daemons without fields": {"daemons": {"x": {}}},
    "a state that there is not": {"daemons": {"x": {**DAEMON, "state": "splendid"}}},
    "restarts that are a text": {"daemons": {"x": {**DAEMON, "restarts": "0"}}},
    "a fence that counts nothing": {"fence": {"admissions": [], "refused": None}},
    "a fence that counts beyond all numbers": {"fence": {"admissions": [], "refused": 10**400}},
    "a list of daemons": {"daemons": []},
    "admissions without addresses": {"fence": {"admissions": [1], "refused": 0}},
}


@pytest.mark.parametrize("lie", MONITOR_LIES.values(), ids=MONITOR_LIES.keys())
def test_no_answer_of_a_monitor_does_either(engine, database, lie):
    """A report was looked at, and an answer to the engine, which is a report, too, was stored as it came."""
    answering = GpuHosts(database, Monitors(lambda: {**DAEMONS, **lie}))
    with suppress(AgentCallFailed):
        answering.reconcile("gpu1")
    shown(database)
    with database.read() as session:
        stored = hosts.get(session, "gpu1").monitor_report or DAEMONS
    assert {daemon["state"] for daemon in stored["daemons"].values()} <= set(DaemonState)


@pytest.mark.parametrize("answer", [[], None, {}, {**DAEMONS, "daemons": []}, {"serial": 1}])
def test_an_answer_that_is_no_report_changes_nothing(engine, database, answer):
    answering = GpuHosts(database, Monitors(lambda: answer))
    with pytest.raises(AgentCallFailed, match="the monitor of gpu1 sent no valid report"):
        answering.reconcile("gpu1")
    with database.read() as session:
        assert hosts.get(session, "gpu1").monitor_report is None


@pytest.mark.parametrize("answer", [None, [], "yes", {}, {"bindings": []}])
def test_an_endpoint_that_answers_anything_else_has_not_confirmed_a_binding(answer):
    with pytest.raises(ValueError, match="the endpoint has sent an invalid report"):
        host_reports.endpoint_report(answer)


@pytest.mark.parametrize("binding", [1, {}, {"installed": 1}, {"installed": None}])
def test_nor_does_one_that_does_not_say_that_it_is_installed(binding):
    report = host_reports.endpoint_report({"bindings": {"port": binding}})
    assert installed_bindings(report) == {"port": False}


def test_a_number_that_no_engine_gave_does_not_keep_later_reports_out_for_ever(engine, database):
    """Not even after the host is in good hands again."""
    inbox = engine()
    inbox.daemons_report(CONTEXT, "gpu1", {**DAEMONS, "serial": 2**52})
    serial = inbox.daemons_started(CONTEXT, "gpu1")["serial"]
    inbox.daemons_report(CONTEXT, "gpu1", {**DAEMONS, "serial": serial, "problems": ["new"]})
    with database.read() as session:
        assert hosts.get(session, "gpu1").monitor_report["problems"] == ["new"]


def test_a_host_has_no_more_gpus_than_any_machine(engine, database):
    many = [GpuInfo(f"GPU-{number}", number, "L4", 1024, 8308) for number in range(1025)]
    report_gpus(engine(), "evil", "192.0.2.66", *many)
    with database.read() as session:
        assert [gpu.uuid for gpu in gpus.page(session, limit=9)] == ["GPU-a"]


# What a host says of others


def test_a_host_writes_nothing_into_the_history_of_a_lease_that_has_no_gpu_there(engine, database):
    inbox = engine()
    report_gpus(inbox, "evil", "192.0.2.66", OTHER)
    for state in ("healthy", "down", "healthy"):
        said = {**DAEMON, "state": state, "detail": "pay at evil.example.org"}
        inbox.daemons_report(CONTEXT, "evil", {**DAEMONS, "daemons": {"lease-1-0": said}})
    with database.read() as session:
        assert leases.events(session.connection(), "lease-1") == []


def test_a_host_writes_one_event_for_a_daemon_however_many_it_says_it_has(engine, database):
    inbox = engine()
    for state in ("healthy", "down"):
        daemons = {f"daemon-{number}": {**DAEMON, "state": state} for number in range(50)}
        inbox.daemons_report(CONTEXT, "gpu1", {**DAEMONS, "daemons": daemons})
    with database.read() as session:
        found = [each.event for each in leases.events(session.connection(), "lease-1")]
    assert found == ["daemon-down"]


LIED = {"utilisation": 0.0, "used_mb": 1, "lease_id": "lease-1", "position": 0}


def measured(database: Database) -> list[float | None]:
    """Return the utilisation of every reading of the lease."""
    with database.reading() as connection:
        return [each.utilisation for each in readings.of_lease(connection, "lease-1").cgpus]


@pytest.mark.parametrize("gpu", ["GPU-a", "GPU-b"])
def test_a_host_writes_no_reading_of_a_lease_that_has_no_gpu_there(engine, database, gpu):
    """Whether it says that the lease's GPU did it, or one of its own."""
    inbox = engine()
    report = GpuReport("192.0.2.66", 10.0, GpuSnapshot([OTHER])).to_dict()
    loads = {
        "seconds": 30.0,
        "of": [{**LIED, "gpu_uuid": gpu}, {**LIED, "gpu_uuid": gpu, "lease_id": None}],
    }
    inbox.monitor_report(CONTEXT, "evil", {**report, "loads": loads})
    assert measured(database) == []


def test_the_host_of_its_gpu_does(engine, database):
    report = GpuReport("192.0.2.11", 10.0, GpuSnapshot([GPU])).to_dict()
    loads = {"seconds": 30.0, "of": [{**LIED, "gpu_uuid": "GPU-a", "utilisation": 7.0}]}
    engine().monitor_report(CONTEXT, "gpu1", {**report, "loads": loads})
    assert measured(database) == [7.0, 7.0, 7.0]


def test_no_host_writes_a_reading_that_is_no_number(engine, database):
    report = GpuReport("192.0.2.11", 10.0, GpuSnapshot([GPU])).to_dict()
    for nothing in (float("nan"), float("inf"), -1.0, 1e9, True, "7", [7]):
        load = {**LIED, "gpu_uuid": "GPU-a", "utilisation": nothing, "used_mb": nothing}
        loads = {"seconds": 30.0, "of": [load]}
        engine().monitor_report(CONTEXT, "gpu1", {**report, "loads": loads})
        for seconds in (nothing, None):
            said = {"seconds": seconds, "of": [{**load, "utilisation": 7.0}]}
            engine().monitor_report(CONTEXT, "gpu1", {**report, "loads": said})
    assert set(measured(database)) <= {7.0}


def test_a_host_whose_address_is_not_believed_writes_no_reading(engine, database):
    """It says that it is at the address of another."""
    inbox = engine()
    report_gpus(inbox, "gpu2", "192.0.2.12")
    report = GpuReport("192.0.2.12", 10.0, GpuSnapshot([GPU])).to_dict()
    loads = {"seconds": 30.0, "of": [{**LIED, "gpu_uuid": "GPU-a"}]}
    inbox.monitor_report(CONTEXT, "gpu1", {**report, "loads": loads})
    assert measured(database) == []


def test_an_endpoint_writes_no_reading_of_a_lease_that_is_bound_elsewhere(engine, database):
    inbox = engine()
    with database.write() as session:
        session.execute(sqlalchemy.update(LeaseRow).values(bound_host="cmp1", port_id="port-1"))
    said = {
        "bindings": {"port-1": {"installed": True}},
        "traffic": {"port-1": {"sent": 1, "received": 1, "connections": 1}},
    }
    for host, count in (("evil", 0), ("cmp1", 3)):
        inbox.endpoint_report(CONTEXT, host, said)
        with database.reading() as connection:
            assert len(readings.of_lease(connection, "lease-1").paths) == count


# What a host keeps busy


def test_a_host_that_answers_slowly_occupies_one_thread_of_the_engine(engine):
    """Each of its reports that was not as desired had the engine wait for its answer."""
    asked, may_answer = threading.Event(), threading.Event()

    def slowly() -> Any:
        asked.set()
        assert may_answer.wait(PATIENCE)
        return silence()

    inbox = engine(slowly)
    wrong = {**DAEMONS, "daemons": {"lease-9-0": {**DAEMON, "lease_id": "lease-9"}}}
    with ThreadPoolExecutor(8) as pool:
        first = pool.submit(inbox.daemons_report, CONTEXT, "evil", wrong)
        assert asked.wait(PATIENCE)
        try:
            for _ in range(7):
                pool.submit(inbox.daemons_report, CONTEXT, "evil", wrong).result(PATIENCE)
        finally:
            may_answer.set()
        first.result(PATIENCE)
    assert inbox.monitors.calls == 1


def test_nor_does_a_compute_host_with_bindings_that_nobody_knows(engine):
    asked, may_answer = threading.Event(), threading.Event()

    class Slow(Removals):
        def remove(self, host: str, port_id: str, serial: int) -> None:
            super().remove(host, port_id, serial)
            asked.set()
            assert may_answer.wait(PATIENCE)

    slow = Slow()
    inbox = engine(removals=slow)
    stranger = {"bindings": {"port-9": {"installed": True}}}
    with ThreadPoolExecutor(8) as pool:
        first = pool.submit(inbox.endpoint_report, CONTEXT, "evil", stranger)
        assert asked.wait(PATIENCE)
        try:
            for _ in range(7):
                pool.submit(inbox.endpoint_report, CONTEXT, "evil", stranger).result(PATIENCE)
        finally:
            may_answer.set()
        first.result(PATIENCE)
    assert slow.calls == 1


# Who reads what a host says


def test_no_terminal_obeys_what_a_host_says(engine, database):
    inbox = engine()
    evil = GpuInfo("GPU-b", 0, f"L4 {TERMINAL}", 1024, 8308, withdrawn=TERMINAL)
    report_gpus(inbox, "evil", "192.0.2.66", evil, problems=[TERMINAL])
    inbox.endpoint_report(CONTEXT, "evil", {"bindings": {}, "problems": [TERMINAL]})
    said = {**DAEMON, "detail": TERMINAL}
    report = {**DAEMONS, "daemons": {"x": said}, "problems": [TERMINAL], "release": "\x1b[2J"}
    inbox.daemons_report(CONTEXT, "evil", report)
    stored = shown(database)
    assert stored.count("INFO all is well") == 6
    assert stored.isprintable()


def test_of_very_many_problems_the_first_are_shown(engine, database):
    problems = [f"problem {number} {'x' * 5000}" for number in range(500)]
    engine().endpoint_report(CONTEXT, "compute1", {"bindings": {}, "problems": problems})
    with database.read() as session:
        stored = endpoints.get(session, "compute1").report["problems"]
    assert len(stored) == 101
    assert stored[0].startswith("problem 0 x")
    assert stored[-1] == "and 400 more problems"
    assert max(map(len, stored)) == 1024


@pytest.mark.parametrize("port", ["port\n2026-01-01 INFO all is well", "\x1b[2J", "x" * 256, ""])
def test_no_name_of_a_port_forges_a_line_of_the_log(engine, database, caplog, port):
    engine().endpoint_report(CONTEXT, "evil", {"bindings": {port: {"installed": True}}})
    (line,) = caplog.messages
    assert line.isprintable()
    assert len(line) < 600
    with database.read() as session:
        assert endpoints.get(session, "evil").report["bindings"] == {}


@pytest.mark.parametrize("host", ["evil\n", "evil\n2026-01-01 INFO all is well", 1, None])
def test_no_name_of_a_host_does_either(engine, database, host):
    inbox = engine()
    for report in (
        lambda: inbox.endpoint_report(CONTEXT, host, {"bindings": {}}),
        lambda: inbox.daemons_report(CONTEXT, host, DAEMONS),
        lambda: inbox.endpoint_started(CONTEXT, host),
        lambda: inbox.grant_shown(CONTEXT, host, "grant", "192.0.2.7", "lease-1"),
    ):
        with pytest.raises(ValueError, match="not a host name"):
            report()
    with database.read() as session:
        assert [row.name for row in hosts.page(session, limit=9)] == ["gpu1"]


LARGE = TERMINAL + "x" * 1_000_000


@pytest.mark.parametrize(
    "send",
    [
        lambda inbox: inbox.endpoint_report(CONTEXT, "evil", {"bindings": LARGE}),
        lambda inbox: inbox.endpoint_report(CONTEXT, LARGE, {"bindings": {}}),
        lambda inbox: inbox.daemons_report(CONTEXT, "evil", {**DAEMONS, "serial": LARGE}),
        lambda inbox: inbox.daemons_report(CONTEXT, "evil", LARGE),
        lambda inbox: inbox.monitor_report(CONTEXT, "evil", LARGE),
        lambda inbox: inbox.lease_changed(CONTEXT, LARGE),
        lambda inbox: inbox.grant_shown(CONTEXT, "evil", LARGE, "192.0.2.7", "lease-1"),
    ],
)
def test_what_is_no_report_is_not_repeated_in_the_log(engine, send):
    """The answer is what a method raises, and the log has it, too."""
    with pytest.raises((ValueError, TypeError)) as refused:
        send(engine())
    said = str(refused.value)
    assert len(said) < 1000
    assert said.isprintable()


@pytest.mark.parametrize(
    "send",
    [
        lambda inbox: inbox.endpoint_report(CONTEXT, "evil", {"bindings": {LARGE: {}}}),
        lambda inbox: inbox.daemons_report(CONTEXT, "evil", {**DAEMONS, "fence": LARGE}),
        lambda inbox: inbox.daemons_report(CONTEXT, "evil", {**DAEMONS, "daemons": {LARGE: 1}}),
        lambda inbox: report_gpus(inbox, "evil", "192.0.2.66", GpuInfo(LARGE, 0, "L4", 1, 8308)),
        lambda inbox: report_gpus(inbox, "evil", LARGE),
    ],
)
def test_what_is_left_out_of_a_report_is_one_short_line_in_a_minute(engine, caplog, send):
    inbox = engine()
    for _ in range(5):
        send(inbox)
    (line,) = [said for said in caplog.messages if "left out; the first: " in said]
    assert len(line) < 600
    assert line.isprintable()
