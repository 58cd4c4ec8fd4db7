# SPDX-License-Identifier: Apache-2.0
"""The bus of one process: who listens is woken, and never looks by himself.

Nothing waits for a server that was stopped: its threads look once a second whether they should end.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import oslo_messaging
import pytest

from gsaas import rpc
from gsaas.context import RequestContext
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


@pytest.fixture
def client(bus: rpc.Bus) -> rpc.RpcClient:
    return rpc.RpcClient(bus, "desk", "1.0")


def test_a_call_is_answered_by_whom_it_names(bus, desks):
    target = rpc.Target(exchange=rpc.EXCHANGE, topic="desk", version="1.0")
    client = oslo_messaging.get_rpc_client(bus, target, serializer=rpc.ContextSerializer())
    for name in ("b", "a"):
        answer = client.prepare(server=name, timeout=20).call(CONTEXT, "tell", word="x")
        assert answer == f"{name} heard x"


def test_what_is_cast_to_a_topic_reaches_one_and_with_fanout_everybody(desks, client):
    client.cast(CONTEXT, "tell", word="one")
    client.cast(CONTEXT, "tell", fanout=True, word="all")
    until(lambda: sum(len(desk.told) for desk in desks.values()) == 3, "three messages")
    assert sorted(desks["a"].told + desks["b"].told) == ["all", "all", "one"]


def test_what_fails_there_fails_here(desks, client):
    with pytest.raises(ValueError, match="no such thing"):
        client.call(CONTEXT, "fail", timeout=20)


def test_nobody_answers_in_time(bus):
    with pytest.raises(rpc.Timeout):
        rpc.RpcClient(bus, "nobody", "1.0").call(CONTEXT, "tell", timeout=0.01, word="x")


def test_messages_wait_for_who_listens_later(bus, client):
    client.cast(CONTEXT, "tell", word="early")
    desk = Desk("late")
    server = rpc.server(bus, "desk", "late", desk)
    server.start()
    until(lambda: desk.told == ["early"], "the message")
    server.stop()


def test_a_listener_sleeps_until_it_is_told(desks, client, monkeypatch):
    def look(seconds: float) -> None:
        raise AssertionError("somebody looks whether there is something")

    monkeypatch.setattr(time, "sleep", look)
    assert client.call(CONTEXT, "tell", timeout=20, word="x") in {"a heard x", "b heard x"}
