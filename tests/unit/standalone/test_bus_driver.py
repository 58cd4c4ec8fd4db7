# SPDX-License-Identifier: Apache-2.0
"""The driver of the bus of one process: notifications, and the interface that oslo.messaging expects of it."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager

import oslo_messaging
import pytest
from oslo_messaging._drivers import base

import gsaas.conf
from gsaas import rpc
from gsaas.context import RequestContext
from gsaas.standalone import in_process_bus
from tests.support.waiting import until

CONTEXT = RequestContext(overwrite=False)


def test_a_message_that_no_real_bus_could_carry_is_refused(bus: rpc.Bus) -> None:
    circle: list[object] = []
    circle.append(circle)
    with pytest.raises(ValueError, match="Circular reference"):
        rpc.RpcClient(bus, "topic", "1.0").cast(CONTEXT, "tell", word=circle)


class Reader:
    """Reads notifications of priority `info`."""

    def __init__(self) -> None:
        self.read: list[str] = []

    def info(self, context: object, publisher: str, event: str, payload: object, _: object) -> None:
        self.read.append(event)


@contextmanager
def reading(pool: str) -> Iterator[Reader]:
    """A listener of *pool* to notifications of one topic."""
    reader = Reader()
    conf = gsaas.conf.load(files=[])
    targets = [rpc.Target(topic="news")]
    listener = rpc.listener(conf, rpc.IN_PROCESS, targets, pool, reader)
    listener.start()
    try:
        yield reader
    finally:
        listener.stop()  # and not wait: its threads look once a second whether they should end


def notify(event: str) -> None:
    conf = gsaas.conf.load(files=[])
    transport = oslo_messaging.get_notification_transport(conf, rpc.IN_PROCESS)
    notifier = oslo_messaging.Notifier(transport, "test", driver="messaging", topics=["news"])
    notifier.info({}, event, {})


def test_each_pool_of_listeners_gets_one_copy_of_a_notification(bus: rpc.Bus) -> None:
    with reading("a") as one, reading("a") as another, reading("b") as alone:
        notify("created")
        until(lambda: alone.read == ["created"], "the notification")
        until(lambda: one.read + another.read == ["created"], "one copy")


def test_a_pool_that_is_new_gets_the_notifications_that_wait(bus: rpc.Bus) -> None:
    notify("created")
    with reading("late") as reader:
        until(lambda: reader.read == ["created"], "the notification")


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        (base.BaseDriver, in_process_bus.InProcessDriver),
        (base.RpcIncomingMessage, in_process_bus.InProcessMessage),
    ],
)
def test_the_driver_takes_what_oslo_messaging_gives(theirs: type, ours: type) -> None:
    """If this fails, the interface of drivers changed in the release of oslo.messaging that is installed."""
    for name, method in inspect.getmembers(theirs, inspect.isfunction):
        if name.startswith("_"):
            continue
        given = inspect.signature(method).parameters
        taken = inspect.signature(getattr(ours, name)).parameters
        assert list(given) == list(taken), name


def test_oslo_messaging_polls_with_what_a_listener_takes() -> None:
    given = inspect.signature(base.PollStyleListener.poll).parameters
    assert list(given) == ["self", "timeout", "batch_size", "batch_timeout"]
