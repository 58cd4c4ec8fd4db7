"""The message bus of one process: messages wake its listeners, which never poll."""

from __future__ import annotations

import inspect
import time
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


class Desk:
    """Answers, and remembers what it was told."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.told: list[str] = []

    def tell(self, context: object, word: str) -> str:
        self.told.append(word)
        return f"{self.name} heard {word}"

    def fail(self, context: object) -> None:
        raise ValueError("no such thing")


@pytest.fixture
def desks(bus: rpc.Bus) -> Iterator[dict[str, Desk]]:
    """Two servers of one topic."""
    desks = {name: Desk(name) for name in ("a", "b")}
    servers = [rpc.server(bus, "desk", name, desk) for name, desk in desks.items()]
    for server in servers:
        server.start()
    yield desks
    for server in servers:
        server.stop()
        server.wait()


@pytest.fixture
def client(bus: rpc.Bus) -> rpc.RpcClient:
    return rpc.RpcClient(bus, "desk", "1.0")


def test_a_call_is_answered_by_whom_it_names(desks, client):
    for name in ("b", "a"):
        answer = client.call(CONTEXT, "tell", timeout=20, server=name, word="x")
        assert answer == f"{name} heard x"


def test_what_is_cast_to_a_topic_reaches_one_and_with_fanout_everybody(desks, client):
    client.cast(CONTEXT, "tell", word="one")
    client.cast(CONTEXT, "tell", fanout=True, word="all")
    until(lambda: sum(len(desk.told) for desk in desks.values()) == 3, "three messages", 20)
    assert sorted(desks["a"].told + desks["b"].told) == ["all", "all", "one"]


def test_what_fails_there_fails_here(desks, client):
    with pytest.raises(ValueError, match="no such thing"):
        client.call(CONTEXT, "fail", timeout=20, server="a")


def test_nobody_answers_in_time(bus):
    with pytest.raises(rpc.Timeout):
        rpc.RpcClient(bus, "nobody", "1.0").call(CONTEXT, "tell", timeout=0.01, word="x")


def test_messages_wait_for_who_listens_later(bus, client):
    client.cast(CONTEXT, "tell", word="early")
    desk = Desk("late")
    server = rpc.server(bus, "desk", "late", desk)
    server.start()
    until(lambda: desk.told == ["early"], "the message", 20)
    server.stop()
    server.wait()


def test_a_listener_sleeps_until_it_is_told(desks, client, monkeypatch):
    def look(seconds: float) -> None:
        raise AssertionError("somebody looks whether there is something")

    monkeypatch.setattr(time, "sleep", look)
    assert client.call(CONTEXT, "tell", timeout=20, server="a", word="x") == "a heard x"


def test_a_message_that_no_real_bus_could_carry_is_refused(client: rpc.Client) -> None:
    with pytest.raises(ValueError, match="Circular reference"):
        circle: list[object] = []
        circle.append(circle)
        client.cast(CONTEXT, "tell", word=circle)


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
        listener.stop()
        listener.wait()


def notify(event: str) -> None:
    conf = gsaas.conf.load(files=[])
    transport = oslo_messaging.get_notification_transport(conf, rpc.IN_PROCESS)
    notifier = oslo_messaging.Notifier(transport, "test", driver="messaging", topics=["news"])
    notifier.info({}, event, {})


def test_each_pool_of_listeners_gets_one_copy_of_a_notification(bus: rpc.Bus) -> None:
    with reading("a") as one, reading("a") as another, reading("b") as alone:
        notify("created")
        until(lambda: alone.read == ["created"], "the notification", 20)
        until(lambda: one.read + another.read == ["created"], "one copy", 20)


def test_a_pool_that_is_new_gets_the_notifications_that_wait(bus: rpc.Bus) -> None:
    notify("created")
    with reading("late") as reader:
        until(lambda: reader.read == ["created"], "the notification", 20)


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        (base.BaseDriver, in_process_bus.InProcessDriver),
        (base.RpcIncomingMessage, in_process_bus.IncomingMessage),
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
