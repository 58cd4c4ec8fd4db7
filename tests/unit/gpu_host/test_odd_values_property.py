# SPDX-License-Identifier: Apache-2.0
"""Whatever a driver says of some GPUs, and whatever a host reports of them: what is healthy stays in service."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gsaas.context import RequestContext
from gsaas.db import endpoints, gpus, hosts, metrics
from gsaas.db.database import Database
from gsaas.engine.agents import Agents
from gsaas.engine.callers import Callers
from gsaas.engine.rpc_endpoint import RpcEndpoint
from gsaas.gpu_host import loads
from gsaas.gpu_host.sources import xids
from gsaas.gpu_host.sources.nvml import Nvml
from gsaas.objects.gpu_report import (
    GpuInfo,
    GpuProcess,
    GpuReport,
    GpuSnapshot,
    Load,
    Loads,
    Reading,
    sound,
)
from tests.support import sqlite
from tests.support.nvml import driver as fake
from tests.support.spoilt import JSON, spoil

CONTEXT = RequestContext(overwrite=False)
LOST = (15, 16)
"""Errors with which a GPU cannot be used, whatever was asked."""
OPTIONAL = ("name", "util", "temp", "power", "cc", "processes", "events")
NEEDED = ("handle", "uuid", "memory")
ERRORS = st.sampled_from([2, 3, 4, 6, 7, 12, 13, 15, 16, 17, 20, 26, 27, 777, 999, 2**31 - 1])
NUMBERS = st.one_of(
    st.integers(0, 100), st.sampled_from(["-", 101, 2**31 - 1, 2**32 - 1, 2**44 - 1, -1, 2**62])
)


@st.composite
def texts(draw: st.DrawFn) -> str:
    """Bytes as a driver may return them for a name, which the fake's file can say."""
    raw = draw(st.binary(max_size=120)).translate(None, b"\0\n=\r")
    return raw.strip(b" ").decode(errors="surrogateescape")


@dataclass
class OddGpu:
    """What the fake driver says of a GPU, and whether it can be used."""

    facts: dict[str, object]
    processes: list[dict[str, object]]
    healthy: bool


@st.composite
def odd_gpus(draw: st.DrawFn, index: int) -> OddGpu:
    facts: dict[str, object] = draw(
        st.fixed_dictionaries(
            {},
            optional={
                "name": texts(),
                "used": NUMBERS,
                "util": NUMBERS,
                "temp": NUMBERS,
                "power": NUMBERS,
                "cc": st.sampled_from(["9.0", "-", "2147483647.-1", "x", "0.0"]),
                "memory": st.sampled_from([1, 40960, 2**31 - 1, 0, "-", 2**31, 2**44 - 1]),
                "uuid": st.sampled_from([fake.uuid(0), "N/A", "", "GPU-\udcff", "GPU-a b"]),
            },
        )
    )
    fails = draw(st.dictionaries(st.sampled_from(OPTIONAL + NEEDED), ERRORS, max_size=3))
    if fails:
        facts["fails"] = ",".join(f"{call}:{error}" for call, error in fails.items())
    healthy = (
        not any(call in NEEDED for call in fails)
        and not any(error in LOST for call, error in fails.items() if call != "events")
        and facts.get("memory", 40960) in (1, 40960, 2**31 - 1)
        and facts.get("uuid", fake.uuid(index)) == fake.uuid(index)
    )
    processes = draw(
        st.lists(
            st.fixed_dictionaries(
                {"pid": st.integers(0, 2**32 - 1), "used": NUMBERS, "name": texts()},
                optional={"sm": NUMBERS, "mps": st.integers(0, 1)},
            ),
            max_size=3,
        )
    )
    return OddGpu(facts, processes, healthy)


@contextmanager
def cloud() -> Iterator[tuple[Database, RpcEndpoint]]:
    with TemporaryDirectory() as folder:
        database = sqlite.in_file(Path(folder) / "gsaas.db", sqlite.migrated())
        yield database, RpcEndpoint(database, Agents(None, None), lambda _: None, Callers())
        database.close()


def send(engine: RpcEndpoint, report: dict[str, Any]) -> None:
    """Have the report arrive as JSON, as Python writes it, with NaN."""
    engine.monitor_report(CONTEXT, "gpu1", json.loads(json.dumps(report)))


def heart_beats(database: Database) -> bool:
    with database.read() as session:
        return hosts.get(session, "gpu1").monitor_seen_at is not None


def in_service(database: Database) -> set[str]:
    with database.read() as session:
        found = gpus.page(session, limit=9999)
        return {gpu.uuid for gpu in found if gpu.withdrawn_reason is None}


def shown(database: Database) -> str:
    """All that is stored, as JSON that every reader understands."""
    with database.read() as session:
        metrics.state(session, 60.0)
        found = [
            [[row.monitor_report, row.monitor_problems] for row in hosts.page(session, limit=99)],
            [[row.model, row.withdrawn_reason] for row in gpus.page(session, limit=9999)],
            [
                [each.used_mb, each.utilisation, each.temperature_c, each.power_w, each.processes]
                for each in gpus.readings(
                    session, [row.uuid for row in gpus.page(session, limit=9999)]
                ).values()
            ],
            [row.report for row in endpoints.page(session, limit=99)],
        ]
    return json.dumps(found, allow_nan=False)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fake.build(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def driver_file(library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FAKE_NVML", str(tmp_path / "driver"))
    monkeypatch.setattr(xids, "WAIT_MS", 20)
    fake.preload(library)
    return tmp_path / "driver"


@pytest.mark.slow
@given(data=st.data())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_what_a_driver_says_of_one_gpu_concerns_no_other(driver_file, data):
    driver = fake.FakeDriver(driver_file)
    drawn = [data.draw(odd_gpus(index)) for index in range(data.draw(st.integers(1, 4)))]
    expected = {fake.uuid(index) for index, gpu in enumerate(drawn) if gpu.healthy}
    seen_before = data.draw(st.booleans())
    driver.have(len(drawn) + 1)  # the last one is as usual
    expected.add(fake.uuid(len(drawn)))
    source = Nvml(range(8308, 9000), fatal_xids=[79], visible_devices=None)
    if seen_before:
        source.snapshot()
    for index, gpu in enumerate(drawn):
        driver.gpu(index, **gpu.facts)
        for process in gpu.processes:
            driver.process(index, **process)
    snapshot = sound(source.snapshot())
    source.close()
    if not any(gpu.facts.get("uuid") == fake.uuid(0) for gpu in drawn[1:]):
        problems = [gpu.uuid for gpu in snapshot.gpus if gpu.withdrawn is not None]
        assert len(snapshot.problems) >= max(len(problems), len(drawn) + 1 - len(expected))
    with cloud() as (database, engine):
        measured = Loads(10.0, loads.of_gpus(snapshot))
        send(engine, GpuReport("192.0.2.1", 10.0, snapshot, measured).to_dict())
        assert heart_beats(database)
        assert in_service(database) >= expected - {fake.uuid(0)}
        if drawn[0].healthy:
            assert fake.uuid(0) in in_service(database)
        shown(database)
        with database.read() as session:
            assert len(hosts.get(session, "gpu1").monitor_problems) <= 101


def honest_report() -> dict[str, Any]:
    """The report of a host with three GPUs that are used."""
    infos = [GpuInfo(f"GPU-{n}", n, "NVIDIA L4", 23034, 8308 + n) for n in range(3)]
    read = Reading(1024, 50.0, 50.0, 40.0, 70.5, [GpuProcess(17, "python", 512)])
    loads_of = [Load(info.uuid, 50.0, 1024) for info in infos]
    snapshot = GpuSnapshot(infos, {info.uuid: read for info in infos}, None, ["a fan is broken"])
    return GpuReport("192.0.2.1", 10.0, snapshot, Loads(10.0, loads_of)).to_dict()


SPOILT: dict[str, Callable[[st.DataObject, dict[str, Any]], None]] = {
    "gpu": lambda data, report: report["gpus"].__setitem__(1, spoil(data, report["gpus"][1])),
    "gpu added": lambda data, report: report["gpus"].append(spoil(data, report["gpus"][0])),
    "reading": lambda data, report: report["readings"].__setitem__(
        "GPU-1", spoil(data, report["readings"]["GPU-1"])
    ),
    "readings": lambda data, report: report.__setitem__("readings", spoil(data, {})),
    "problems": lambda data, report: report.__setitem__("problems", spoil(data, ["x"])),
    "loads": lambda data, report: report.__setitem__("loads", spoil(data, report["loads"])),
    "interval": lambda data, report: report.__setitem__("interval", spoil(data, 10.0)),
    "another field": lambda data, report: report.__setitem__("new", spoil(data, {})),
}


@pytest.mark.slow
@given(data=st.data(), what=st.sampled_from(sorted(SPOILT)))
@settings(suppress_health_check=[HealthCheck.too_slow])
def test_what_a_host_reports_of_one_thing_concerns_no_other(data, what):
    report = honest_report()
    SPOILT[what](data, report)
    with cloud() as (database, engine):
        send(engine, report)
        assert heart_beats(database)
        assert in_service(database) >= {"GPU-0", "GPU-2"}
        if what != "gpu":
            assert "GPU-1" in in_service(database)
        shown(database)


@pytest.mark.slow
@given(report=JSON)
@settings(suppress_health_check=[HealthCheck.too_slow])
def test_whatever_an_agent_sends_what_is_stored_can_be_read(report):
    with cloud() as (database, engine):
        send(engine, honest_report())
        for method in (engine.monitor_report, engine.daemons_report, engine.endpoint_report):
            with suppress(ValueError, TypeError):
                method(CONTEXT, "gpu1", json.loads(json.dumps(report)))
        shown(database)
