"""The bus of one process delivers messages at once, and its listeners are woken instead of polling."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from gsaas import rpc
from gsaas.context import RequestContext
from tests.support.waiting import until

CONTEXT = RequestContext(overwrite=False)


class RecordingServer:
    """Answers calls, and records the words that it received."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.received: list[str] = []

    def greet(self, context: object, word: str) -> str:
        self.received.append(word)
        return f"{self.name} received {word}"

    def fail(self, context: object) -> None:
        raise ValueError("no such thing")


@pytest.fixture
def servers_by_name(bus: rpc.Bus) -> Iterator[dict[str, RecordingServer]]:
    """Two servers of one topic, by name."""
    endpoints = {name: RecordingServer(name) for name in ("a", "b")}
    servers = [rpc.server(bus, "topic", name, endpoint) for name, endpoint in endpoints.items()]
    for server in servers:
        server.start()
    yield endpoints
    for server in servers:
        server.stop()
        server.wait()


@pytest.fixture
def client(bus: rpc.Bus) -> rpc.Client:
    return rpc.Client(bus, "topic", "1.0")


def test_a_call_is_answered_by_the_server_that_it_names(servers_by_name, client):
    for name in ("b", "a"):
        answer = client.call(CONTEXT, "greet", timeout=20, server=name, word="x")
        assert answer == f"{name} received x"


def test_a_cast_reaches_one_server_and_with_fanout_all(servers_by_name, client):
    client.cast(CONTEXT, "greet", word="one")
    client.cast(CONTEXT, "greet", fanout=True, word="all")
    until(
        lambda: sum(len(server.received) for server in servers_by_name.values()) == 3,
        "three messages",
        20,
    )
    assert sorted(servers_by_name["a"].received + servers_by_name["b"].received) == [
        "all",
        "all",
        "one",
    ]


def test_an_exception_in_the_server_is_raised_in_the_client(servers_by_name, client):
    with pytest.raises(ValueError, match="no such thing"):
        client.call(CONTEXT, "fail", timeout=20, server="a")


def test_a_call_without_a_server_times_out(bus):
    with pytest.raises(rpc.Timeout):
        rpc.Client(bus, "nobody", "1.0").call(CONTEXT, "greet", timeout=0.01, word="x")


def test_messages_wait_for_a_listener_that_starts_later(bus, client):
    client.cast(CONTEXT, "greet", word="early")
    endpoint = RecordingServer("late")
    server = rpc.server(bus, "topic", "late", endpoint)
    server.start()
    until(lambda: endpoint.received == ["early"], "the message", 20)
    server.stop()
    server.wait()


def test_a_listener_does_not_poll(servers_by_name, client, monkeypatch):
    def sleep(seconds: float) -> None:
        raise AssertionError("a listener polls")

    monkeypatch.setattr(time, "sleep", sleep)
    assert client.call(CONTEXT, "greet", timeout=20, server="a", word="x") == "a received x"
