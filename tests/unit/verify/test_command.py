# SPDX-License-Identifier: Apache-2.0
"""`gsaas-manage verify` on a bus, with agents that answer there: what it prints, and its exit status."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from gsaas import rpc
from gsaas.cli import manage
from gsaas.cli import verify as verification
from gsaas.db import metrics
from gsaas.engine.callers import Callers
from gsaas.engine.rpc_endpoint import RpcEndpoint, may_send
from gsaas.metrics import stored
from gsaas.objects.binding import binding_from_dict
from gsaas.objects.daemon import DesiredState
from gsaas.objects.lifecycle import Status
from gsaas.rpc.monitor import MonitorClient
from gsaas.rpc.rodvr import EndpointClient
from tests.support.waiting import until
from tests.unit.engine.world import GPU_HOST, HOST
from tests.unit.verify import test_damage as damages
from tests.unit.verify.conftest import OTHER_HOST, Cloud


class EndpointOnBus:
    """An endpoint of the world, as it serves calls."""

    target = rpc.Target(version=EndpointClient.VERSION)

    def __init__(self, cloud: Cloud, host: str) -> None:
        self._endpoint, self._host = cloud.world.endpoint, host

    def apply(self, context: Any, binding: dict[str, Any], serial: int) -> dict[str, Any]:
        return self._endpoint.apply(self._host, binding_from_dict(binding), serial)

    def remove(self, context: Any, port_id: str, serial: int) -> dict[str, Any]:
        return self._endpoint.remove(self._host, port_id, serial)

    def audit(self, context: Any, repair: bool) -> dict[str, Any]:
        return self._endpoint.audit(self._host, repair=repair).to_dict()


class EndpointOfEarlierRelease:
    target = rpc.Target(version="1.1")


class MonitorOnBus:
    """The monitor of the GPU host of the world."""

    target = rpc.Target(version=MonitorClient.VERSION)

    def __init__(self, cloud: Cloud) -> None:
        self._monitor = cloud.world.monitor

    def apply(self, context: Any, wanted: dict[str, Any]) -> dict[str, Any]:
        return self._monitor.apply(GPU_HOST, DesiredState.from_dict(wanted))

    def audit(self, context: Any) -> dict[str, Any]:
        return self._monitor.audit(GPU_HOST)


@contextmanager
def serving(bus: rpc.Bus, agent: str, host: str, service: object) -> Iterator[None]:
    server = rpc.agent_server(bus, agent, host, service)
    server.start(override_pool_size=1)
    try:
        yield
    finally:
        server.stop()
        server.wait()


@pytest.fixture
def bus(cloud: Cloud) -> Iterator[rpc.Bus]:
    """A bus with a monitor, an engine, and one of the two endpoints."""
    cloud.world.conf.set_override("endpoint_timeout", 0.5, "engine")
    world = cloud.world
    bus = rpc.connect(world.conf, rpc.IN_PROCESS)
    world.conf.set_override("transport_url", rpc.IN_PROCESS)
    # It does what it is told, and nothing by itself.
    engine = RpcEndpoint(world.database, cloud.agents, world.reconcile, Callers())
    engines = rpc.server(bus, rpc.ENGINE, "engine-1", engine, may_send)
    engines.start()
    with (
        serving(bus, rpc.RODVR, HOST, EndpointOnBus(cloud, HOST)),
        serving(bus, rpc.MONITOR, GPU_HOST, MonitorOnBus(cloud)),
    ):
        yield bus
    engines.stop()
    bus.cleanup()


@pytest.fixture
def verify(
    cloud: Cloud, bus: rpc.Bus, capsys: pytest.CaptureFixture[str]
) -> Iterator[Callable[..., tuple[int, str]]]:
    def verify(
        *, repair: bool = False, record: bool = False, format: str = "table"
    ) -> tuple[int, str]:
        world = cloud.world
        options = {"repair": repair, "settle": 0, "record": record, "format": format}
        status = verification.verify(world.conf, world.database, world.cloud, **options)
        return status, capsys.readouterr().out

    yield verify
    logging.disable(logging.NOTSET)


@pytest.fixture
def all_answer(cloud: Cloud, bus: rpc.Bus) -> Iterator[None]:
    with serving(bus, rpc.RODVR, OTHER_HOST, EndpointOnBus(cloud, OTHER_HOST)):
        yield


@pytest.mark.usefixtures("all_answer")
def test_nothing_differs(verify: Any) -> None:
    assert verify() == (0, "no difference\n")


@pytest.mark.usefixtures("all_answer")
def test_it_prints_each_difference_and_what_it_would_do_and_does_nothing(
    cloud: Cloud, verify: Any
) -> None:
    damages.lose_binding(cloud)
    port = damages.port_of(cloud, cloud.vm)
    told = (
        f"binding-missing       lease {cloud.vm}: the endpoint of {HOST} has no binding of port {port}\n"
        f"{'':<21} -> send the endpoint the binding anew\n"
    )
    assert verify() == (1, told)
    assert cloud.kinds() == {"binding-missing"}


@pytest.mark.usefixtures("all_answer")
def test_it_repairs_when_it_is_told_to(cloud: Cloud, verify: Any) -> None:
    damages.lose_binding(cloud)
    damages.run_daemon_of_nobody(cloud)
    damages.delete_server(cloud)
    status, printed = verify(repair=True)
    assert status == 0
    assert printed.count("done\n") == 3
    until(lambda: cloud.status(cloud.vm) == Status.RELEASED)  # by the engine, which it told
    assert cloud.differences() == []


@pytest.mark.usefixtures("all_answer")
def test_a_program_reads_it_as_json(cloud: Cloud, verify: Any) -> None:
    damages.lose_tag(cloud)
    server = cloud.world.cloud.servers[cloud.vm].id
    status, printed = verify(format="json")
    assert status == 1
    assert json.loads(printed) == {
        "differences": [
            {
                "kind": "tag-lost",
                "subject": f"lease {cloud.vm}",
                "said": f"server {server} has not the tag of its lease",
                "todo": "set the tag again",
                "repaired": False,
                "failure": None,
            }
        ],
        "not_asked": [],
    }


def test_an_agent_that_does_not_answer_is_named_and_the_status_says_so(
    cloud: Cloud, verify: Any
) -> None:
    damages.lose_binding(cloud)
    status, printed = verify(repair=True)
    assert status == 2
    silent = f"the endpoint of {OTHER_HOST}"
    assert f"not asked             {silent}: {silent} does not answer\n" in printed
    assert "done\n" in printed


def test_an_agent_of_an_earlier_release_is_one_that_does_not_answer(
    bus: rpc.Bus, verify: Any
) -> None:
    with serving(bus, rpc.RODVR, OTHER_HOST, EndpointOfEarlierRelease()):
        status, printed = verify()
    assert status == 2
    assert f"not asked             the endpoint of {OTHER_HOST}: " in printed
    assert "1.2" in printed


@pytest.mark.usefixtures("all_answer")
def test_what_is_left_is_recorded_for_the_metrics(cloud: Cloud, verify: Any) -> None:
    def recorded() -> metrics.Verified:
        with cloud.world.database.read() as session:
            return metrics.state(session, 60).verified

    damages.lose_binding(cloud)
    damages.count_too_much(cloud)
    damages.lose_endpoint(cloud)
    assert recorded() == metrics.Verified()
    assert verify(repair=True, record=True)[0] == 1
    found = recorded()
    assert (found.differences, found.not_asked) == ({"endpoint-missing": 2}, 0)
    with cloud.world.database.read() as session:
        gauges = list(stored.gauges(metrics.state(session, 60)))
    [differences] = [each for each in gauges if each.name == "gsaas_differences"]
    assert [(each.labels, each.value) for each in differences.samples] == [
        ({"kind": "endpoint-missing"}, 2)
    ]


def test_without_a_bus_the_database_is_compared(
    cloud: Cloud, capsys: pytest.CaptureFixture[str]
) -> None:
    rpc.connect(cloud.world.conf, rpc.IN_PROCESS).cleanup()  # the option belongs to oslo.messaging
    cloud.world.conf.set_override("transport_url", "rabbit://gsaas:secret@127.0.0.1:1/")
    damages.count_too_much(cloud)
    options = {"repair": False, "settle": 0, "record": False, "format": "table"}
    world = cloud.world
    assert verification.verify(world.conf, world.database, world.cloud, **options) == 2
    printed = capsys.readouterr().out
    assert "gpu-count" in printed
    assert "not asked             the message bus, and so every agent: " in printed
    assert "secret" not in printed
    logging.disable(logging.NOTSET)


def test_a_cloud_that_is_not_installed_is_named(
    cloud: Cloud, capsys: pytest.CaptureFixture[str]
) -> None:
    config = cloud.file.with_name("gsaas.conf")
    config.write_text(f"[database]\nconnection = sqlite:///{cloud.file}\n[engine]\ncloud = none\n")
    assert manage.main(["--config-file", str(config), "verify"]) == 2
    assert "there is no cloud 'none'" in capsys.readouterr().err
