# SPDX-License-Identifier: Apache-2.0
"""The gate, over real connections: a line in, a line out, and no consumer blocks another."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress

import pytest

from gsaas import rpc
from gsaas.gpu_host import gate as module
from gsaas.gpu_host.gate import Gate
from gsaas.rpc.engine import RedemptionResult
from gsaasclient import grant_client


class FakeEngine:
    """Redeems grants for the gate: records what was presented, and returns or raises `answer`."""

    def __init__(self) -> None:
        self.presented: list[tuple[str, str, str]] = []
        self.answer: RedemptionResult | Exception = RedemptionResult(None, None)

    def redeem(self, key: str, address: str, lease_id: str) -> RedemptionResult:
        self.presented.append((key, address, lease_id))
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@pytest.fixture
def engine():
    return FakeEngine()


@pytest.fixture
def gate(engine):
    gate = Gate(socket.create_server(("127.0.0.1", 0)), engine.redeem)
    gate.start()
    yield "{}:{}".format(*gate.address)
    gate.stop()


def send(gate: str, content: bytes) -> bytes:
    host, port = gate.split(":")
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.sendall(content)
        connection.shutdown(socket.SHUT_WR)
        return connection.makefile("rb").read()


def test_a_good_grant_admits_the_address_that_the_connection_comes_from(gate, engine):
    grant_client.present(gate, "lease-1", "a.good.grant")

    assert engine.presented == [("a.good.grant", "127.0.0.1", "lease-1")]


def test_a_refusal_arrives_as_it_was_said(gate, engine):
    engine.answer = RedemptionResult("gsaas.grant.replayed", "it was redeemed already")

    with pytest.raises(grant_client.NotAdmitted, match="it was redeemed already") as refusal:
        grant_client.present(gate, "lease-1", "grant")
    assert refusal.value.code == "gsaas.grant.replayed"


def test_while_no_engine_answers_it_says_so(gate, engine):
    engine.answer = rpc.Timeout("no engine")

    with pytest.raises(grant_client.NotAdmitted, match="try again"):
        grant_client.present(gate, "lease-1", "grant")


@pytest.mark.parametrize(
    "content",
    [b"", b"\n", b"GET / HTTP/1.1\r\n\r\n", b"one\n", b"\xff\xfe \xfd\n" * 3],
)
def test_malformed_lines_are_refused_and_not_passed_on(gate, engine, content):
    assert send(gate, content).startswith(b"refused gsaas.bad-request")
    assert engine.presented == []


def test_a_line_without_end_is_not_read_to_its_end(gate, engine):
    # Closing a connection with unread bytes resets it, possibly before the answer is read.
    with suppress(OSError):
        send(gate, b"lease-1 " + b"x" * 100_000)
    assert [len(key) for key, _, _ in engine.presented if len(key) > module.MAX_LINE] == []


def test_a_silent_client_is_not_waited_for(gate, engine, monkeypatch):
    monkeypatch.setattr(module._GrantHandler, "timeout", 0.05)
    host, port = gate.split(":")
    with socket.create_connection((host, int(port)), timeout=10) as silent:
        assert silent.makefile("rb").read() == b""
    grant_client.present(gate, "lease-1", "grant")


def test_a_client_that_sends_single_bytes_is_not_waited_for_longer(gate, engine, monkeypatch):
    monkeypatch.setattr(module._GrantHandler, "timeout", 0.2)
    host, port = gate.split(":")
    with socket.create_connection((host, int(port)), timeout=0.02) as slow:
        for _ in range(500):
            try:
                slow.sendall(b"x")
                if slow.recv(1) == b"":
                    break
            except TimeoutError:
                continue
            except ConnectionError:
                break
        else:
            pytest.fail("it is still listened to")
    assert engine.presented == []


def silent(gate: str, address: str = "127.0.0.1") -> socket.socket:
    """Connect from a loopback address, and send nothing."""
    host, port = gate.split(":")
    return socket.create_connection((host, int(port)), timeout=10, source_address=(address, 0))


@pytest.fixture
def slow_engine(engine):
    """The engine examines each grant until it is told to answer."""
    engine.answers, engine.asked = threading.Event(), threading.Semaphore(0)
    redeem = engine.redeem

    def slowly(*grant):
        engine.asked.release()
        assert engine.answers.wait(60)
        return redeem(*grant)

    engine.redeem = slowly
    return engine


def test_a_host_may_begin_many_programs_at_once_and_not_any_number(slow_engine, gate):
    """Each of `srun -n16` presents a grant; the engine examines them all at the same time."""
    begun = []
    for _ in range(module.MAX_PER_ADDRESS):
        begun.append(silent(gate, "127.0.1.1"))
        begun[-1].sendall(b"lease-1 grant\n")
    for _ in begun:
        assert slow_engine.asked.acquire(timeout=60)
    with silent(gate, "127.0.1.1") as one_more:
        assert one_more.recv(1) == b""
    slow_engine.answers.set()
    for connection in begun:
        assert connection.makefile("rb").read() == b"admitted\n"
        connection.close()
    grant_client.present(gate, "lease-1", "grant")
