# SPDX-License-Identifier: Apache-2.0
"""Asking daemons whether they are well, over real connections to small servers."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import h2.config
import h2.connection
import h2.events
import pytest

from gsaas.gpu_host.daemons import health
from gsaas.gpu_host.daemons.health import HealthCheckFailed
from gsaas.objects.daemon import Daemon


@contextmanager
def server(answer: Callable[[socket.socket], None]) -> Iterator[Daemon]:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                answer(connection)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield Daemon("GPU-1", listener.getsockname()[1])
        thread.join()


def over_http2(
    status: str, seen: list[dict], version: tuple[str, str] = ("x-lupine-version", "1")
) -> Callable[[socket.socket], None]:
    def answer(stream: socket.socket) -> None:
        connection = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False))
        connection.initiate_connection()
        stream.sendall(connection.data_to_send())
        while data := stream.recv(65536):
            for event in connection.receive_data(data):
                if isinstance(event, h2.events.RequestReceived):
                    seen.append({str(k, "ascii"): str(v, "ascii") for k, v in event.headers})
                    headers = [(":status", status), version]
                    connection.send_headers(event.stream_id, headers, end_stream=True)
            stream.sendall(connection.data_to_send())

    return answer


def test_http2_asks_for_nothing_but_the_head():
    seen: list[dict] = []
    with server(over_http2("200", seen)) as daemon:
        health.http2("127.0.0.1", daemon)
    assert [(s[":method"], s[":path"], s[":scheme"]) for s in seen] == [("HEAD", "/", "http")]


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (over_http2("500", []), "status 500"),
        (lambda stream: stream.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n"), "HTTP/2"),
        (lambda _: None, "closed the connection|does not answer"),
    ],
)
def test_http2_says_what_it_heard_instead(answer, said):
    with server(answer) as daemon, pytest.raises(HealthCheckFailed, match=said):
        health.http2("127.0.0.1", daemon)


def test_a_server_that_hangs_up_after_its_answer_is_healthy(monkeypatch):
    """As LUPINE does: what the check acknowledges comes too late then, and is refused."""
    hung_up = threading.Event()
    settings: list[int] = []

    def answer(stream: socket.socket) -> None:
        connection = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False))
        connection.initiate_connection()
        frame = connection.data_to_send()
        settings.append(len(frame))
        stream.sendall(frame)
        connection.receive_data(stream.recv(65536))
        connection.send_headers(1, [(":status", "200")], end_stream=True)
        stream.sendall(connection.data_to_send())
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        stream.close()  # with a reset
        hung_up.set()

    def receive(stream: socket.socket, most: int, deadline: float) -> bytes:
        assert hung_up.wait(5)
        return real(stream, settings.pop() if settings else most, deadline)

    real = health._receive
    monkeypatch.setattr(health, "_receive", receive)
    with server(answer) as daemon:
        health.http2("127.0.0.1", daemon)


def test_a_daemon_tells_its_version_in_a_header():
    def answer(told: str) -> Callable[[socket.socket], None]:
        return over_http2("200", [], ("x-lupine-wire-identity", told))

    with server(answer("7fbd364")) as daemon:
        assert health.http2("127.0.0.1", daemon) == "7fbd364"
    with server(answer("$(reboot)")) as daemon:  # what another lease would be told
        assert health.http2("127.0.0.1", daemon) is None


def test_silence_ends(monkeypatch):
    monkeypatch.setattr(health, "TIMEOUT", 0.05)
    gone = threading.Event()
    with server(lambda _: gone.wait(5)) as daemon:
        with pytest.raises(HealthCheckFailed, match="does not answer"):
            health.http2("127.0.0.1", daemon)
        gone.set()


def test_nobody_there():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        daemon = Daemon("GPU-1", listener.getsockname()[1])
    for check in health.CHECKS.values():
        with pytest.raises(
            HealthCheckFailed, match=r"accepts no connection on port|does not listen on port"
        ):
            check("127.0.0.1", daemon)


def test_a_daemon_that_serves_one_connection_after_the_other_is_not_connected_to():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        health.listens("127.0.0.1", Daemon("GPU-1", listener.getsockname()[1]))
        listener.setblocking(False)
        with pytest.raises(BlockingIOError):
            listener.accept()


def test_a_simulated_daemon_has_to_name_its_own_gpu():
    with server(lambda stream: stream.sendall(b'{"gpu": "GPU-1"}\n')) as daemon:
        health.simulated("127.0.0.1", daemon)
    with (
        server(lambda stream: stream.sendall(b'{"gpu": "GPU-2"}\n')) as daemon,
        pytest.raises(HealthCheckFailed, match="another GPU"),
    ):
        health.simulated("127.0.0.1", daemon)
    with (
        server(lambda stream: stream.sendall(b"hello\n")) as daemon,
        pytest.raises(HealthCheckFailed, match="does not name"),
    ):
        health.simulated("127.0.0.1", daemon)
