"""A WSGI server for a service in one process: threads that each accept a connection and answer what comes over it.

Nothing is handed from thread to thread, so a request costs little more than its answer, and who waits costs nobody
else anything. HTTP is read by llhttp, the parser of Node.js, as httptools wraps it. In a cloud the API runs under uWSGI
or gunicorn instead, behind a proxy.
"""

from __future__ import annotations

import email.utils
import functools
import io
import logging
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any
from urllib.parse import unquote

import httptools

from gsaas.api.disconnects import CONNECTION

LOG = logging.getLogger(__name__)

PATIENCE = 60.0
"""Seconds that a client may take to send, or to be sent, the next piece; then its connection is closed."""
BACKLOG = 4096
"""Connections that may wait for a thread."""
PIECE = 65536
HEAD_BYTES = 65536
"""Of a request besides its body: its first line, its headers, and what holds chunks together."""
GRACE = 1.0
"""Seconds that requests under way are given when the server stops; one that is held is not waited for any longer."""
BREATHER = 0.1
"""Seconds until the next try when the system has no more sockets to give."""

Headers = list[tuple[str, str]]
Application = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


class HttpServer:
    """Serves *app* on *host* and *port*; 0 takes a free one. Raises `OSError` if the address is not to be had.

    No more than *connections* are served at a time, each by a thread of its own; further ones wait. Of a body, no more
    than *body_bytes* reach the application, which refuses longer ones by their length.
    """

    def __init__(
        self, app: Application, host: str, port: int, *, connections: int, body_bytes: int
    ) -> None:
        self.app = app
        self.body_bytes = body_bytes
        self._listener = socket.create_server((host, port), backlog=BACKLOG)
        self.host, self.port = self._listener.getsockname()
        self.environ: dict[str, Any] = {
            "SCRIPT_NAME": "",
            "SERVER_NAME": self.host,
            "SERVER_PORT": str(self.port),
            "wsgi.version": (1, 0),
            "wsgi.url_scheme": "http",
            "wsgi.errors": sys.stderr,
            "wsgi.multithread": True,
            "wsgi.multiprocess": False,
            "wsgi.run_once": False,
        }
        self._most = connections
        self._state = threading.Condition()
        self._threads = self._accepting = self._answering = 0
        self._idle: set[socket.socket] = set()
        """Connections over which nothing is asked just now."""
        self._stopped = threading.Event()

    def serve(self) -> None:
        """Answer until `close` is called, or something is raised in this thread."""
        with self._state:
            self._add_thread()
        self._stopped.wait()

    def close(self) -> None:
        """Take no more requests, and let those under way end. A second time changes nothing."""
        with self._state:
            if self._stopped.is_set():
                return
            self._stopped.set()
            for waiting in (self._listener, *self._idle):
                with suppress(OSError):  # its client may have gone
                    waiting.shutdown(socket.SHUT_RDWR)  # wakes who waits for it; closing would not
            self._listener.close()
            self._state.wait_for(lambda: not self._answering, GRACE)

    @property
    def stopped(self) -> bool:
        """Has it been told to take no more requests?"""
        return self._stopped.is_set()

    def answer(
        self, connection: socket.socket, environ: dict[str, Any]
    ) -> tuple[str, Headers, bytes]:
        """Return what the application answers to a request over *connection*: status, headers and body."""
        head: list[Any] = []
        body: list[bytes] = []

        def start_response(status: str, headers: Headers, _error: Any = None) -> Callable:
            head[:] = status, headers
            return body.append

        with self._state:
            self._answering += 1
            self._idle.discard(connection)
        try:
            answer = self.app(environ, start_response)
            try:
                body.extend(answer)
            finally:
                if hasattr(answer, "close"):
                    answer.close()
        finally:
            with self._state:
                self._answering -= 1
                self._idle.add(connection)
                self._state.notify_all()
        return head[0], head[1], b"".join(body)

    def _add_thread(self) -> None:
        self._threads += 1
        self._accepting += 1
        threading.Thread(target=self._work, name=f"api-{self._threads}", daemon=True).start()

    def _work(self) -> None:
        while not self.stopped:
            try:
                connection, client = self._listener.accept()
            except OSError as error:
                if not self.stopped:
                    LOG.warning("cannot accept a connection: %s", error)
                    time.sleep(BREATHER)
                continue
            with self._state:
                self._accepting -= 1
                self._idle.add(connection)
                if not self._accepting and self._threads < self._most:
                    self._add_thread()
            try:
                with connection:
                    _Conversation(connection, client[0], self).hold()
            except OSError as error:
                LOG.debug("lost the connection from %s: %s", client[0], error)
            except Exception:
                LOG.exception("a request from %s was not answered", client[0])
            finally:
                with self._state:
                    self._accepting += 1
                    self._idle.discard(connection)


class _Conversation:
    """What is said over one connection, from its first request to its last. The parser calls what begins with `on_`."""

    def __init__(self, connection: socket.socket, address: str, server: HttpServer) -> None:
        self._connection = connection
        self._address = address
        self._server = server
        self._parser = httptools.HttpRequestParser(self)
        self._in_head = False
        self._besides = 0
        """Bytes received of a request that is not complete, besides its body: the parser keeps whole lines."""
        self._whole: list[tuple[dict[str, Any], bool]] = []
        """Requests that are, and whether their client would go on afterwards."""

    def hold(self) -> None:
        """Answer until either side has had enough. `OSError` when the connection is lost."""
        self._connection.settimeout(PATIENCE)
        while piece := self._connection.recv(PIECE):
            refusal = self._hear(piece)
            for environ, goes_on in self._whole:
                if not self._answer(environ, goes_on):
                    return
            self._whole.clear()
            if refusal:
                self._send(*refusal, goes_on=False)
                return

    def _hear(self, piece: bytes) -> tuple[str, Headers, bytes] | None:
        """Take the next piece of what the client says; return what to answer if it cannot be understood."""
        self._besides += len(piece)
        try:
            self._parser.feed_data(piece)
        except httptools.HttpParserUpgrade:
            return _refusal("501 Not Implemented", "nothing but HTTP/1.1 is spoken here")
        except httptools.HttpParserCallbackError:
            raise
        except httptools.HttpParserError as error:
            return _refusal("400 Bad Request", str(error))
        if self._besides > HEAD_BYTES:
            return _refusal("431 Request Header Fields Too Large", f"{HEAD_BYTES} bytes may be")
        return None

    def on_message_begin(self) -> None:
        self._in_head = True
        self._target = b""
        self._environ = {
            **self._server.environ,
            "REMOTE_ADDR": self._address,
            CONNECTION: self._connection,
        }
        self._body: list[bytes] = []
        self._length = 0

    def on_url(self, part: bytes) -> None:
        self._target += part

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._in_head or b"_" in name:
            return  # a trailer comes too late; an underscore would pass for a hyphen, which a proxy may have looked at
        environ = self._environ
        key = "HTTP_" + name.decode("latin-1").upper().replace("-", "_")
        text = value.decode("latin-1")
        environ[key] = f"{environ[key]},{text}" if key in environ else text

    def on_headers_complete(self) -> None:
        self._in_head = False
        if self._environ.get("HTTP_EXPECT", "").lower() == "100-continue":
            self._connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, part: bytes) -> None:
        """Keep as much as the application may have; the rest is counted, so that the client hears of it."""
        if room := max(0, self._server.body_bytes - self._length):
            self._body.append(part[:room])
        self._length += len(part)
        self._besides -= len(part)

    def on_message_complete(self) -> None:
        """Describe the request as PEP 3333 does."""
        environ = self._environ
        path, _, query = self._target.decode("latin-1").partition("?")
        environ["REQUEST_METHOD"] = self._parser.get_method().decode("latin-1")
        environ["PATH_INFO"] = unquote(path, "latin-1")
        environ["QUERY_STRING"] = query
        environ["SERVER_PROTOCOL"] = f"HTTP/{self._parser.get_http_version()}"
        environ["wsgi.input"] = io.BytesIO(b"".join(self._body))
        if "HTTP_CONTENT_TYPE" in environ:
            environ["CONTENT_TYPE"] = environ.pop("HTTP_CONTENT_TYPE")
        if "HTTP_CONTENT_LENGTH" in environ or environ.pop("HTTP_TRANSFER_ENCODING", None):
            environ.pop("HTTP_CONTENT_LENGTH", None)
            environ["CONTENT_LENGTH"] = str(self._length)
        self._whole.append((environ, self._parser.should_keep_alive()))
        self._besides = 0

    def _answer(self, environ: dict[str, Any], goes_on: bool) -> bool:
        """Answer a request; return whether there may be another one."""
        status, headers, body = self._server.answer(self._connection, environ)
        goes_on = goes_on and not self._server.stopped
        self._send(status, headers, body, goes_on=goes_on)
        return goes_on

    def _send(self, status: str, headers: Headers, body: bytes, *, goes_on: bool) -> None:
        lines = [f"HTTP/1.1 {status}", f"Date: {_date(int(time.time()))}"]
        lines += [f"{name}: {value}" for name, value in headers]
        if not any(name.lower() == "content-length" for name, _ in headers):
            lines.append(f"Content-Length: {len(body)}")
        if not goes_on:
            lines.append("Connection: close")
        self._connection.sendall("\r\n".join([*lines, "", ""]).encode("latin-1") + body)


def _refusal(status: str, why: str) -> tuple[str, Headers, bytes]:
    return status, [("Content-Type", "text/plain; charset=utf-8")], f"{why}\n".encode()


@functools.lru_cache(maxsize=1)
def _date(second: int) -> str:
    return email.utils.formatdate(second, usegmt=True)
