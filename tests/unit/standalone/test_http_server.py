# SPDX-License-Identifier: Apache-2.0
"""The WSGI server of gsaas-standalone, tested with the standard library's HTTP client and with bare sockets."""

from __future__ import annotations

import http.client
import json
import re
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from gsaas.api.disconnects import is_disconnected
from gsaas.standalone import http_server
from gsaas.standalone.http_server import HttpServer
from tests.support.waiting import until

MAX_BODY_BYTES = 1000


@contextmanager
def serving(app: Callable, threads: int = 8, connections: int = 100) -> Iterator[HttpServer]:
    server = HttpServer(
        app,
        "127.0.0.1",
        0,
        threads=threads,
        connections=connections,
        body_bytes=MAX_BODY_BYTES,
    )
    thread = threading.Thread(target=server.serve)
    thread.start()
    try:
        yield server
    finally:
        server.close()
        thread.join()


def echo(environ: dict, start_response: Callable) -> list[bytes]:
    """Answer with the environ and the body of the request, as JSON."""
    received = {key: value for key, value in environ.items() if isinstance(value, str)}
    received["body"] = environ["wsgi.input"].read().decode()
    start_response("200 OK", [("Content-Type", "application/json")])
    return [json.dumps(received).encode()]


@pytest.fixture(scope="module")
def echoing() -> Iterator[HttpServer]:
    with serving(echo) as server:
        yield server


def connect(server: HttpServer) -> http.client.HTTPConnection:
    return http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)


def send_raw(server: HttpServer, request: bytes) -> bytes:
    """Send *request*, and return everything that the server sends until it closes the connection."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as connection:
        connection.sendall(request)
        return b"".join(iter(lambda: connection.recv(65536), b""))


def test_a_request_reaches_the_application_as_pep_3333_says(echoing):
    client = connect(echoing)
    client.request("POST", "/v1/a%20b?x=1&y", b"hello", {"X-Auth-Token": "secret"})
    answer = client.getresponse()
    assert answer.status == 200 and answer.version == 11
    assert answer.getheader("Date").endswith("GMT")
    received = json.load(answer)
    assert received["REQUEST_METHOD"] == "POST"
    assert (received["PATH_INFO"], received["QUERY_STRING"]) == ("/v1/a b", "x=1&y")
    assert (received["HTTP_X_AUTH_TOKEN"], received["CONTENT_LENGTH"]) == ("secret", "5")
    assert (received["body"], received["REMOTE_ADDR"]) == ("hello", "127.0.0.1")


def test_a_connection_serves_one_request_after_the_other(echoing):
    client = connect(echoing)
    client.request("GET", "/")
    client.getresponse().read()
    kept = client.sock
    client.request("DELETE", "/again")
    assert json.load(client.getresponse())["REQUEST_METHOD"] == "DELETE"
    assert client.sock is kept


@pytest.mark.parametrize("method", ["OPTIONS", "TRACE", "PURGE"])
def test_any_method_is_passed_to_the_application(echoing, method):
    client = connect(echoing)
    client.request(method, "/")
    assert json.load(client.getresponse())["REQUEST_METHOD"] == method


def test_a_client_of_http_1_0_is_told_that_its_connection_ends(echoing):
    answer = send_raw(echoing, b"GET / HTTP/1.0\r\n\r\n")
    assert answer.startswith(b"HTTP/1.0 200 OK\r\n")
    assert b"\r\nConnection: close\r\n" in answer


def test_repeated_headers_are_joined(echoing):
    answer = send_raw(
        echoing, b"GET / HTTP/1.1\r\nHost: x\r\nVia: a\r\nVia: b\r\nConnection: close\r\n\r\n"
    )
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["HTTP_VIA"] == "a, b"


def test_bytes_that_are_no_http_are_refused(echoing):
    assert b"400" in send_raw(echoing, b"\x16\x03\x01\x02\x00 hello there\r\n\r\n")


@pytest.mark.parametrize("length", [b"1001", b"1" * 30])
def test_a_body_that_is_too_long_is_refused_before_it_is_read(echoing, length):
    answer = send_raw(echoing, b"POST / HTTP/1.1\r\nContent-Length: " + length + b"\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 413 ")


def test_a_client_that_is_still_sending_sees_the_refusal(echoing):
    """Sockets take less than is sent, and a connection that is closed with bytes unread is reset."""
    body = b"x" * 8_000_000
    for sent in (body, (body[start : start + 50_000] for start in range(0, len(body), 50_000))):
        client = connect(echoing)
        client.request("POST", "/", sent)
        assert client.getresponse().status == 413


def test_of_a_refused_request_no_more_is_read_than_a_bound(monkeypatch):
    monkeypatch.setattr(http_server, "MOST_UNREAD", 100_000)
    with serving(echo) as server:
        client = socket.create_connection(("127.0.0.1", server.port), timeout=20)
        client.sendall(b"POST / HTTP/1.1\r\nContent-Length: 99999999\r\n\r\n")
        with pytest.raises(ConnectionError):
            while True:
                client.sendall(b"x" * 65536)
        client.close()


def test_a_body_may_be_chunked_and_its_trailers_are_dropped(echoing):
    answer = send_raw(
        echoing,
        b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
        b"3\r\nhel\r\n2\r\nlo\r\n0\r\nX-Auth-Token: late\r\n\r\n",
    )
    received = json.loads(answer.partition(b"\r\n\r\n")[2])
    assert (received["body"], received["CONTENT_LENGTH"]) == ("hello", "5")
    assert not {"HTTP_X_AUTH_TOKEN", "HTTP_TRANSFER_ENCODING"} & received.keys()


def test_a_client_that_expects_100_continue_gets_it(echoing):
    with socket.create_connection(("127.0.0.1", echoing.port), timeout=20) as connection:
        connection.sendall(
            b"POST / HTTP/1.1\r\nContent-Length: 5\r\nConnection: close\r\nExpect: 100-continue\r\n\r\n"
        )
        assert connection.recv(65536) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(b"hello")
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
    assert b'"body": "hello"' in answer


def test_requests_in_pieces_or_pipelined_are_answered_one_by_one(echoing):
    two = b"GET /one HTTP/1.1\r\n\r\nGET /two HTTP/1.1\r\nConnection: close\r\n\r\n"
    assert send_raw(echoing, two).count(b"HTTP/1.1 200 OK") == 2
    with socket.create_connection(("127.0.0.1", echoing.port), timeout=20) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in two:
            connection.sendall(bytes([byte]))
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
    assert re.findall(rb'"PATH_INFO": "([^"]*)"', answer) == [b"/one", b"/two"]


CHUNKED = b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    ("beginning", "length", "status"),
    [
        (b"GET / HTTP/1.1\r\nX-Long: ", http_server.MAX_HEAD_BYTES, b"431"),
        (b"GET /", http_server.MAX_HEAD_BYTES, b"431"),
        (CHUNKED + b"1\r\na\r\n0\r\nX-Late: ", len(CHUNKED) + MAX_BODY_BYTES, b"413"),
        (CHUNKED + b"1;x=", len(CHUNKED) + MAX_BODY_BYTES, b"413"),
    ],
)
def test_a_line_without_end_is_refused(echoing, beginning, length, status):
    answer = send_raw(echoing, beginning.ljust(length, b"x"))
    assert answer.partition(b"\r\n")[0].split()[1] == status


def test_half_a_request_does_not_reach_the_application():
    environs = []
    with serving(lambda environ, _: environs.append(environ) or []) as server:
        connection = socket.create_connection(("127.0.0.1", server.port), timeout=20)
        connection.sendall(b"POST / HTTP/1.1\r\nContent-Length: 9\r\n\r\nhalf")
        connection.shutdown(socket.SHUT_WR)
        assert connection.recv(1) == b""
        connection.close()
    assert environs == []


def test_an_application_that_raises_costs_only_its_client_the_answer(caplog):
    def fail_once(environ, start_response):
        if environ["PATH_INFO"] == "/bad":
            raise RuntimeError("a bug")
        return echo(environ, start_response)

    with serving(fail_once, threads=1) as server:
        answer = send_raw(server, b"GET /bad HTTP/1.1\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 500 ") and b"a bug" not in answer
        assert send_raw(server, b"GET /good HTTP/1.0\r\n\r\n").startswith(b"HTTP/1.0 200")
    assert "a bug" in caplog.text


@pytest.mark.slow
def test_a_client_that_sends_nothing_for_too_long_is_disconnected(monkeypatch):
    monkeypatch.setattr(http_server, "CLIENT_TIMEOUT", 0.05)
    with serving(echo) as server, socket.create_connection(("127.0.0.1", server.port)) as silent:
        silent.settimeout(20)
        assert silent.recv(1) == b""


def test_a_server_that_was_never_started_can_be_closed():
    server = HttpServer(echo, "127.0.0.1", 0, threads=1, connections=8, body_bytes=1000)
    server.close()
    with pytest.raises(ConnectionRefusedError):
        connect(server).connect()


def test_an_application_can_find_out_that_its_client_has_disconnected():
    begun, noticed = threading.Event(), threading.Event()

    def wait(environ, start_response):
        if not is_disconnected(environ):
            begun.set()
        until(lambda: is_disconnected(environ), "the client to be gone")
        noticed.set()
        return echo(environ, start_response)

    with serving(wait) as server:
        client = connect(server)
        client.request("GET", "/")
        assert begun.wait(20)
        client.close()
        assert noticed.wait(20)


def test_a_request_under_way_is_answered_before_the_server_stops():
    begun, go_on = threading.Event(), threading.Event()

    def wait(environ, start_response):
        begun.set()
        assert go_on.wait(20)
        return echo(environ, start_response)

    with serving(wait) as server:
        client = connect(server)
        client.request("GET", "/last")
        assert begun.wait(20)
        stopping = threading.Thread(target=server.close)
        stopping.start()
        go_on.set()
        assert json.load(client.getresponse())["PATH_INFO"] == "/last"
        stopping.join()
    with pytest.raises(ConnectionRefusedError):
        connect(server).connect()


def test_an_idle_connection_is_closed_when_the_server_stops():
    with serving(echo) as server:
        client = connect(server)
        client.request("GET", "/")
        client.getresponse().read()
        server.close()
        assert client.sock.recv(1) == b""
