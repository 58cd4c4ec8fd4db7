"""A WSGI server for a service in one process: threads that each accept a connection and answer what comes over it.

Nothing is handed from thread to thread, so a request costs little more than its answer, and who waits costs nobody
else anything. HTTP is read by the standard library. In a cloud the API runs under uWSGI or gunicorn instead, behind
a proxy.
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
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import unquote

LOG = logging.getLogger(__name__)

CONNECTION = "gsaas.connection"
"""In the environment of a request: the socket that it came by."""
PATIENCE = 60.0
"""Seconds that a client may take to send, or to be sent, the next piece; then its connection is closed."""
BACKLOG = 4096
"""Connections that may wait for a thread."""
PIECE = 65536
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
                    _Conversation(connection, client, self)
            except OSError as error:
                LOG.debug("lost the connection from %s: %s", client[0], error)
            except Exception:
                LOG.exception("a request from %s was not answered", client[0])
            finally:
                with self._state:
                    self._accepting += 1
                    self._idle.discard(connection)


class _Conversation(BaseHTTPRequestHandler):
    """What is said over one connection, from its first request to its last."""

    protocol_version = "HTTP/1.1"
    timeout = PATIENCE
    server: HttpServer

    def _answer(self) -> None:
        environ = self._environ()
        if environ is None:
            return
        status, headers, body = self.server.answer(self.connection, environ)
        self.close_connection |= self.server.stopped
        lines = [f"{self.protocol_version} {status}", f"Date: {_date(int(time.time()))}"]
        lines += [f"{name}: {value}" for name, value in headers]
        if not any(name.lower() == "content-length" for name, _ in headers):
            lines.append(f"Content-Length: {len(body)}")
        if self.close_connection:
            lines.append("Connection: close")
        self.connection.sendall("\r\n".join([*lines, "", ""]).encode("latin-1") + body)

    def __getattr__(self, name: str) -> Any:
        """Let every method reach the application, which knows the ones that it serves."""
        if name.startswith("do_"):
            return self._answer
        raise AttributeError(name)

    def _environ(self) -> dict[str, Any] | None:
        """The request as PEP 3333 describes it; None if it was not understood, and has been answered."""
        length = self.headers.get_all("Content-Length", ["0"])
        if "Transfer-Encoding" in self.headers:
            self.send_error(411, "Say the length of the body")
            return None
        if len(length) > 1 or not (length[0].isascii() and length[0].isdigit()):
            self.send_error(400, "The length of the body is not a number")
            return None
        path, _, query = self.path.partition("?")
        environ = {
            **self.server.environ,
            "REQUEST_METHOD": self.command,
            "PATH_INFO": unquote(path, "latin-1"),
            "QUERY_STRING": query,
            "SERVER_PROTOCOL": self.request_version,
            "REMOTE_ADDR": self.client_address[0],
            "wsgi.input": io.BytesIO(self._body(int(length[0]))),
            CONNECTION: self.connection,
        }
        for name, value in self.headers.items():
            if "_" in name:
                continue  # it would pass for the one with hyphens, which a proxy may have looked at
            key = name.upper().replace("-", "_")
            if key not in ("CONTENT_TYPE", "CONTENT_LENGTH"):
                key = f"HTTP_{key}"
            environ[key] = f"{environ[key]},{value}" if key in environ else value
        return environ

    def _body(self, length: int) -> bytes:
        """Read a body; what is more than the application may have is dropped, so that the client hears of it."""
        body = self.rfile.read(min(length, self.server.body_bytes))
        left = length - len(body)
        while left > 0:
            piece = self.rfile.read(min(left, PIECE))
            if not piece:
                raise ConnectionResetError("the client has gone in the middle of a request")
            left -= len(piece)
        return body

    def log_message(self, format: str, *arguments: Any) -> None:
        LOG.debug(format, *arguments)


@functools.lru_cache(maxsize=1)
def _date(second: int) -> str:
    return email.utils.formatdate(second, usegmt=True)
