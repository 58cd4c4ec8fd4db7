"""The WSGI server of a service in one process, asked by the standard library's client and by bare sockets."""

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

MOST = 1000


@contextmanager
def serving(app: Callable, connections: int = 8) -> Iterator[HttpServer]:
    server = HttpServer(app, "127.0.0.1", 0, connections=connections, body_bytes=MOST)
    thread = threading.Thread(target=server.serve)
    thread.start()
    try:
        yield server
    finally:
        server.close()
        thread.join()


def echo(environ: dict, start_response: Callable) -> list[bytes]:
    """Answer what was understood of the request."""
    said = {key: value for key, value in environ.items() if isinstance(value, str)}
    said["body"] = environ["wsgi.input"].read().decode()
    start_response("200 OK", [("Content-Type", "application/json")])
    return [json.dumps(said).encode()]


@pytest.fixture(scope="module")
def echoing() -> Iterator[HttpServer]:
    with serving(echo) as server:
        yield server


def connect(server: HttpServer) -> http.client.HTTPConnection:
    return http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)


def raw(server: HttpServer, request: bytes) -> bytes:
    """Send *request*, and return all that is said until the server hangs up."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as connection:
        connection.sendall(request)
        connection.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: connection.recv(65536), b""))


def test_a_request_reaches_the_application_as_pep_3333_says(echoing):
    client = connect(echoing)
    client.request("POST", "/v1/a%20b?x=1&y", b"hello", {"X-Auth-Token": "secret"})
    answer = client.getresponse()
    assert answer.status == 200 and answer.version == 11
    assert answer.getheader("Date").endswith("GMT")
    said = json.load(answer)
    assert said["REQUEST_METHOD"] == "POST"
    assert (said["PATH_INFO"], said["QUERY_STRING"]) == ("/v1/a b", "x=1&y")
    assert (said["HTTP_X_AUTH_TOKEN"], said["CONTENT_LENGTH"]) == ("secret", "5")
    assert (said["body"], said["REMOTE_ADDR"]) == ("hello", "127.0.0.1")


def test_a_connection_serves_one_request_after_the_other(echoing):
    client = connect(echoing)
    client.request("GET", "/")
    client.getresponse().read()
    kept = client.sock
    client.request("DELETE", "/again")
    assert json.load(client.getresponse())["REQUEST_METHOD"] == "DELETE"
    assert client.sock is kept


@pytest.mark.parametrize("method", ["OPTIONS", "TRACE", "PURGE"])
def test_what_to_do_with_a_method_is_for_the_application_to_say(echoing, method):
    client = connect(echoing)
    client.request(method, "/")
    assert json.load(client.getresponse())["REQUEST_METHOD"] == method


def test_a_client_of_http_1_0_is_told_that_its_connection_ends(echoing):
    answer = raw(echoing, b"GET / HTTP/1.0\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"\r\nConnection: close\r\n" in answer


def test_headers_that_come_twice_come_as_one(echoing):
    answer = raw(echoing, b"GET / HTTP/1.1\r\nHost: x\r\nVia: a\r\nVia: b\r\n\r\n")
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["HTTP_VIA"] == "a,b"


def test_a_header_that_passes_for_another_one_is_dropped(echoing):
    answer = raw(echoing, b"GET / HTTP/1.1\r\nHost: x\r\nX_Auth_Token: forged\r\n\r\n")
    assert "HTTP_X_AUTH_TOKEN" not in json.loads(answer.partition(b"\r\n\r\n")[2])


@pytest.mark.parametrize(
    ("header", "status"),
    [
        (b"Content-Length: many", b"400"),
        (b"Content-Length: -1", b"400"),
        (b"Content-Length: 1\r\nContent-Length: 2", b"400"),
        (b"Transfer-Encoding: gzip", b"400"),
        (b"Transfer-Encoding: chunked", b"400"),
        (b"Transfer-Encoding: chunked\r\nContent-Length: 2", b"400"),
    ],
)
def test_a_body_whose_end_is_not_clear_is_refused_and_nothing_after_it_is_believed(
    echoing, header, status
):
    smuggled = b"GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n"
    answer = raw(echoing, b"POST / HTTP/1.1\r\nHost: x\r\n" + header + b"\r\n\r\n" + smuggled)
    assert answer.startswith(b"HTTP/1.1 " + status)
    assert b"smuggled" not in answer


def test_what_is_no_http_is_refused(echoing):
    assert b"400" in raw(echoing, b"\x16\x03\x01\x02\x00 hello there\r\n\r\n")


def test_a_body_that_is_too_long_is_dropped_and_the_connection_goes_on(echoing):
    client = connect(echoing)
    client.request("POST", "/", b"x" * 200_000)
    said = json.load(client.getresponse())
    assert (said["CONTENT_LENGTH"], len(said["body"])) == ("200000", MOST)
    client.request("GET", "/next")
    assert json.load(client.getresponse())["PATH_INFO"] == "/next"


def test_a_body_may_come_in_chunks_and_what_comes_after_it_is_no_header(echoing):
    answer = raw(
        echoing,
        b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
        b"3\r\nhel\r\n2\r\nlo\r\n0\r\nX-Auth-Token: late\r\n\r\n",
    )
    said = json.loads(answer.partition(b"\r\n\r\n")[2])
    assert (said["body"], said["CONTENT_LENGTH"]) == ("hello", "5")
    assert not {"HTTP_X_AUTH_TOKEN", "HTTP_TRANSFER_ENCODING"} & said.keys()


def test_a_client_that_waits_for_leave_to_send_its_body_gets_it(echoing):
    with socket.create_connection(("127.0.0.1", echoing.port), timeout=20) as connection:
        connection.sendall(
            b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n"
        )
        assert connection.recv(65536) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(b"hello")
        assert b'"body": "hello"' in connection.recv(65536)


def test_requests_that_come_in_pieces_or_together_are_answered_one_by_one(echoing):
    two = b"GET /one HTTP/1.1\r\nHost: x\r\n\r\nGET /two HTTP/1.1\r\nHost: x\r\n\r\n"
    assert raw(echoing, two).count(b"HTTP/1.1 200 OK") == 2
    with socket.create_connection(("127.0.0.1", echoing.port), timeout=20) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in two:
            connection.sendall(bytes([byte]))
        connection.shutdown(socket.SHUT_WR)
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
    assert re.findall(rb'"PATH_INFO": "([^"]*)"', answer) == [b"/one", b"/two"]


def test_what_asks_for_another_protocol_is_answered_in_this_one_and_no_more(echoing):
    answer = raw(
        echoing,
        b"GET / HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\nPRI * HTTP/2.0\r\n\r\n",
    )
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n") and b"HTTP/1.1 501 " in answer


@pytest.mark.parametrize(
    "beginning",
    [
        b"GET / HTTP/1.1\r\nHost: x\r\nX-Long: ",
        b"GET /",
        b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\nX-Late: ",
        b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1;x=",
    ],
)
def test_a_line_without_end_is_refused(echoing, beginning):
    with socket.create_connection(("127.0.0.1", echoing.port), timeout=20) as connection:
        connection.sendall(beginning + b"x" * (http_server.HEAD_BYTES - len(beginning)))
        connection.sendall(b"xx")  # one of all these may be a body's
        assert connection.recv(65536).startswith(b"HTTP/1.1 431 ")


def test_half_a_request_is_not_given_to_the_application():
    asked = []
    with serving(lambda environ, _: asked.append(environ) or []) as server:
        assert raw(server, b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nhalf") == b""
    assert asked == []


def test_an_application_that_fails_costs_its_client_the_connection_and_nobody_else_anything(caplog):
    def fail_once(environ, start_response):
        if environ["PATH_INFO"] == "/bad":
            raise RuntimeError("a bug")
        return echo(environ, start_response)

    with serving(fail_once, connections=1) as server:
        assert raw(server, b"GET /bad HTTP/1.1\r\nHost: x\r\n\r\n") == b""
        assert raw(server, b"GET /good HTTP/1.0\r\n\r\n").startswith(b"HTTP/1.1 200")
    assert "a bug" in caplog.text


def test_more_connections_than_are_served_wait_for_one_to_end(echoing):
    with serving(echo, connections=2) as server:
        first, second, third = (connect(server) for _ in range(3))
        for client in (first, second):
            client.request("GET", "/")
            client.getresponse().read()
        third.request("GET", "/third")
        first.close()
        assert json.load(third.getresponse())["PATH_INFO"] == "/third"


def test_a_client_that_says_nothing_for_too_long_loses_its_connection(monkeypatch):
    monkeypatch.setattr(http_server, "PATIENCE", 0.05)
    with serving(echo) as server, socket.create_connection(("127.0.0.1", server.port)) as silent:
        silent.settimeout(20)
        assert silent.recv(1) == b""


def test_an_application_can_tell_that_its_client_has_hung_up():
    begun, told = threading.Event(), threading.Event()

    def wait(environ, start_response):
        if not is_disconnected(environ):
            begun.set()
        until(lambda: is_disconnected(environ), "the client to be gone", 20)
        told.set()
        return echo(environ, start_response)

    with serving(wait) as server:
        client = connect(server)
        client.request("GET", "/")
        assert begun.wait(20)
        client.close()
        assert told.wait(20)


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


def test_a_connection_that_is_kept_ends_when_the_server_stops():
    with serving(echo) as server:
        client = connect(server)
        client.request("GET", "/")
        client.getresponse().read()
        server.close()
        assert client.sock.recv(1) == b""
