# SPDX-License-Identifier: Apache-2.0
"""gsaas-manage check looks at the queues of a real RabbitMQ."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import gsaas.conf
from gsaas import rpc
from gsaas.context import RequestContext
from gsaas.rpc.engine import EngineClient
from gsaas.rpc.queues import QueueState, inspect_queue
from tests.support.rabbitmq import RabbitMQ
from tests.support.waiting import until

pytestmark = pytest.mark.services

TOPIC = "desk"
CONTEXT = RequestContext(overwrite=False)


class Desk:
    def tell(self, context: object) -> None:
        """Take a message."""


@pytest.fixture
def bus(broker: RabbitMQ) -> Iterator[rpc.Bus]:
    bus = rpc.connect(gsaas.conf.load(files=[]), broker.url)
    yield bus
    bus.cleanup()


def test_a_queue_that_does_not_exist_is_not_found_and_not_made(bus: rpc.Bus) -> None:
    assert inspect_queue(bus, TOPIC) is None
    assert inspect_queue(bus, TOPIC) is None


def test_a_queue_tells_its_consumers_and_what_waits_in_it(bus: rpc.Bus) -> None:
    server = rpc.server(bus, TOPIC, "a", Desk())
    server.start()
    until(lambda: inspect_queue(bus, TOPIC) == QueueState(messages=0, consumers=1), "a consumer")
    server.stop()
    server.wait()
    until(lambda: inspect_queue(bus, TOPIC) == QueueState(messages=0, consumers=0), "no consumer")
    rpc.RpcClient(bus, TOPIC, "1.0").cast(CONTEXT, "tell")
    until(lambda: inspect_queue(bus, TOPIC) == QueueState(messages=1, consumers=0), "one message")


@pytest.mark.parametrize("report", ["endpoint_report", "daemons_report"])
def test_a_report_that_no_engine_takes_does_not_stay(
    bus: rpc.Bus, monkeypatch: pytest.MonkeyPatch, report: str
) -> None:
    server = rpc.server(bus, rpc.ENGINE, "a", Desk())
    server.start()
    until(lambda: inspect_queue(bus, rpc.ENGINE) == QueueState(0, 1), "a consumer")
    server.stop()
    server.wait()
    monkeypatch.setattr("gsaas.rpc.engine.REPORT_TIMEOUT", 1.0)
    with pytest.raises(rpc.Timeout):
        getattr(EngineClient(bus), report)("host", {})
    until(lambda: inspect_queue(bus, rpc.ENGINE) == QueueState(0, 0), "an empty queue")


def test_a_broker_that_does_not_answer_is_an_error_of_the_bus() -> None:
    bus = rpc.connect(gsaas.conf.load(files=[]), "rabbit://guest:guest@127.0.0.1:1/")
    with pytest.raises(rpc.BusError, match="cannot connect"):
        inspect_queue(bus, TOPIC)
    bus.cleanup()
