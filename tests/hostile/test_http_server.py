# SPDX-License-Identifier: Apache-2.0
"""What anybody who reaches the server of gsaas-standalone tries, without a token."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from gsaas.standalone import http_server
from gsaas.standalone.http_server import HttpServer
from tests.support.waiting import PATIENCE
from tests.unit.standalone.test_http_server import echo, send_raw, serving

CONNECTIONS = 24


def hello(_environ: dict, start_response: Callable) -> list[bytes]:
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [b"hello"]


@pytest.fixture(scope="module")
def echoing() -> Iterator[HttpServer]:
    with serving(echo) as made:
        yield made


@pytest.fixture
def server() -> Iterator[HttpServer]:
    with serving(hello, connections=CONNECTIONS) as made:
        yield made


def ask(server: HttpServer, timeout: float = PATIENCE) -> int:
    client = http.client.HTTPConnection("127.0.0.1", server.port, timeout=timeout)
    client.request("GET", "/")
    status = client.getresponse().status
    client.close()
    return status


def test_a_client_that_sends_its_request_byte_by_byte_is_cut_off_at_a_deadline(server, monkeypatch):
    """Each byte used to give it as much time again."""
    monkeypatch.setattr(http_server, "CLIENT_TIMEOUT", 0.5)
    for beginning in (b"GET / HTTP/1.1\r\nX: ", b"\r\n" * 10):  # of a request, or before one
        with socket.create_connection(("127.0.0.1", server.port)) as slow:
            slow.sendall(beginning)
            slow.settimeout(0.05)
            for _ in range(4800):
                try:
                    slow.sendall(b"x" if beginning.startswith(b"G") else b"\r\n")
                    if slow.recv(1) == b"":
                        break
                except TimeoutError:
                    continue
                except ConnectionError:
                    break
            else:
                pytest.fail("it is still listened to")


@pytest.mark.parametrize(
    "beginning", [b"", b"GET / HT", b"POST / HTTP/1.1\r\nContent-Length: 9\r\n\r\nx"]
)
def test_more_slow_connections_than_there_is_room_for_do_not_keep_others_waiting(server, beginning):
    with ExitStack() as slow:
        for _ in range(3 * CONNECTIONS):
            connection = socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE)
            slow.enter_context(connection)
            connection.sendall(beginning)
        for _ in range(5):
            assert ask(server, http_server.CLIENT_TIMEOUT / 3) == 200


def test_a_header_with_an_underscore_is_dropped(echoing):
    answer = send_raw(
        echoing, b"GET / HTTP/1.1\r\nHost: x\r\nX_Auth_Token: forged\r\nConnection: close\r\n\r\n"
    )
    assert "HTTP_X_AUTH_TOKEN" not in json.loads(answer.partition(b"\r\n\r\n")[2])


@pytest.mark.parametrize(
    ("header", "status"),
    [
        (b"Content-Length: many", b"400"),
        (b"Content-Length: -1", b"400"),
        (b"Content-Length: 1\r\nContent-Length: 2", b"400"),
        (b"Transfer-Encoding: gzip", b"501"),
        (b"Transfer-Encoding: chunked", b"400"),
        (b"Transfer-Encoding: chunked\r\nContent-Length: 2", b"400"),
    ],
)
def test_a_body_of_unclear_length_is_refused_and_nothing_after_it_is_parsed(
    echoing, header, status
):
    smuggled = b"GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n"
    answer = send_raw(echoing, b"POST / HTTP/1.1\r\nHost: x\r\n" + header + b"\r\n\r\n" + smuggled)
    assert answer.startswith(b"HTTP/1.1 " + status)
    assert b"smuggled" not in answer
