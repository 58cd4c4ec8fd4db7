# SPDX-License-Identifier: Apache-2.0
"""A WSGI server for gsaas-standalone: each thread accepts a connection and answers the requests that arrive over it.

A request is not passed between threads, so it costs little more than its answer, and a request that waits does not
delay others. HTTP is parsed by llhttp, the parser of Node.js, through httptools. In a cloud the API runs under uWSGI or
gunicorn instead, behind a proxy.
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

SOCKET_TIMEOUT = 60.0
"""Seconds within which a client has to send a whole request, from when it has connected or has the answer to the one
before, however many pieces it sends; and within which it has to accept an answer. Then its connection is closed."""
BACKLOG = 4096
"""Connections that may wait for a thread."""
RECEIVE_BYTES = 65536
"""Bytes that one call of `recv` returns at most."""
MAX_HEAD_BYTES = 65536
"""Bytes of a request that are not of its body: request line, headers, the framing of chunks, trailers."""
STOP_GRACE = 1.0
"""Seconds for which a stopping server waits for requests that are being answered; long polls may take longer."""
ACCEPT_RETRY_INTERVAL = 0.1
"""Seconds until the next attempt after `accept` failed, for instance because there are too many open files."""

Headers = list[tuple[str, str]]
Application = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


class HttpServer:
    """Serves *app* on *host* and *port*; port 0 takes a free one. Raises `OSError` if it cannot listen there.

    It serves at most *connections* at a time, each in a thread of its own. When all threads have a connection, the
    one that has gone longest without a whole request is closed, so that clients which send slowly, or nothing, do not
    keep others waiting; while all are being answered, further ones wait in the listen queue. At most *body_bytes* of
    a request's body reach the application, which refuses longer ones by their Content-Length.
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
        self._max_threads = connections
        self._state = threading.Condition()
        """Guards the four attributes that follow; notified when an answer is complete."""
        self._threads = self._accepting = self._answering = 0
        self._idle: dict[socket.socket, None] = {}
        """Connections over which no request is being answered; the one that is so for the longest time comes first."""
        self._stopped = threading.Event()

    def serve(self) -> None:
        """Answer requests until `close` is called, or a signal handler raises an exception in this thread."""
        with self._state:
            self._add_thread()
        self._stopped.wait()

    def close(self) -> None:
        """Accept no more requests, and wait up to `STOP_GRACE` seconds for those being answered. Idempotent."""
        with self._state:
            if self._stopped.is_set():
                return
            self._stopped.set()
            for waiting in (self._listener, *self._idle):
                with suppress(OSError):  # the client may have closed the connection
                    # shutdown(2) wakes the thread that waits; closing the socket would not.
                    waiting.shutdown(socket.SHUT_RDWR)
            self._listener.close()
            self._state.wait_for(lambda: not self._answering, STOP_GRACE)

    @property
    def stopped(self) -> bool:
        """Whether `close` has been called."""
        return self._stopped.is_set()

    def answer(
        self, connection: socket.socket, environ: dict[str, Any]
    ) -> tuple[str, Headers, bytes]:
        """Call the application with *environ*, a request over *connection*; return status, headers and body."""
        head: list[Any] = []
        body: list[bytes] = []

        def start_response(
            status: str, headers: Headers, _error: Any = None
        ) -> Callable[[bytes], None]:
            head[:] = status, headers
            return body.append

        with self._state:
            self._answering += 1
            self._idle.pop(connection, None)
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
                self._idle[connection] = None
                self._state.notify_all()
        return head[0], head[1], b"".join(body)

    def _add_thread(self) -> None:
        """Start one more thread; call it with the lock."""
        self._threads += 1
        self._accepting += 1
        threading.Thread(
            target=self._serve_connections, name=f"api-{self._threads}", daemon=True
        ).start()

    def _close_idlest(self) -> None:
        """Close the connection that has gone longest without a whole request, if there is one; call it with the lock.

        Only its reading end is shut down: a request that has arrived completely is still answered.
        """
        idlest = next(iter(self._idle), None)
        if idlest is not None:
            del self._idle[idlest]
            with suppress(OSError):  # the client may have closed the connection
                idlest.shutdown(socket.SHUT_RD)

    def _serve_connections(self) -> None:
        """Accept and serve one connection after the other, in a thread of its own."""
        while not self.stopped:
            try:
                connection, client = self._listener.accept()
            except OSError as error:
                if not self.stopped:
                    LOG.warning("cannot accept a connection: %s", error)
                    time.sleep(ACCEPT_RETRY_INTERVAL)
                continue
            with self._state:
                self._accepting -= 1
                # At least one thread is always ready to accept, until there are as many as allowed.
                if not self._accepting and self._threads < self._max_threads:
                    self._add_thread()
                elif not self._accepting:
                    self._close_idlest()
                self._idle[connection] = None
            try:
                with connection:
                    _Connection(connection, client[0], self).serve()
            except OSError as error:
                LOG.debug("lost the connection from %s: %s", client[0], error)
            except Exception:
                LOG.exception("a request from %s was not answered", client[0])
            finally:
                with self._state:
                    self._accepting += 1
                    self._idle.pop(connection, None)


class _Connection:
    """One connection, from its first request to its last. The parser calls the methods whose names begin with `on_`."""

    def __init__(self, sock: socket.socket, address: str, server: HttpServer) -> None:
        self._socket = sock
        self._address = address
        self._server = server
        self._parser = httptools.HttpRequestParser(self)
        self._in_head = False
        self._head_bytes = 0
        """Bytes of the incomplete request that are not of its body; the parser stores lines until they are complete."""
        self._complete: list[tuple[dict[str, Any], bool]] = []
        """The environ of each complete request, and whether its client keeps the connection open after it."""

    def serve(self) -> None:
        """Answer requests until either side closes the connection; raise `OSError` if it is lost."""
        deadline = time.monotonic() + SOCKET_TIMEOUT
        while data := self._receive(deadline):
            refusal = self._parse(data)
            for environ, keep_alive in self._complete:
                if not self._answer(environ, keep_alive):
                    return
                deadline = time.monotonic() + SOCKET_TIMEOUT
            self._complete.clear()
            if refusal:
                self._send(*refusal, keep_alive=False)
                return

    def _receive(self, deadline: float) -> bytes:
        """Return the next bytes, none if the client has closed; raise `TimeoutError` at *deadline*."""
        self._socket.settimeout(max(deadline - time.monotonic(), 0.001))
        return self._socket.recv(RECEIVE_BYTES)

    def _parse(self, data: bytes) -> tuple[str, Headers, bytes] | None:
        """Parse the next bytes from the client; return the answer to send if they are no valid request."""
        self._head_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            return _refusal(
                "501 Not Implemented",
                "this server supports HTTP/1.1 only; send the request without Upgrade",
            )
        except httptools.HttpParserCallbackError:
            raise  # a method of this class raised it: it is no fault of the client
        except httptools.HttpParserError as error:
            return _refusal("400 Bad Request", str(error))
        if self._head_bytes > MAX_HEAD_BYTES:
            return _refusal(
                "431 Request Header Fields Too Large",
                f"the headers of a request may have {MAX_HEAD_BYTES} bytes at most",
            )
        return None

    def on_message_begin(self) -> None:
        self._in_head = True
        self._target = b""
        self._environ = {
            **self._server.environ,
            "REMOTE_ADDR": self._address,
            CONNECTION: self._socket,
        }
        self._body: list[bytes] = []
        self._length = 0

    def on_url(self, part: bytes) -> None:
        self._target += part

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._in_head or b"_" in name:
            # A trailer arrives after the body. WSGI maps `_` and `-` to the same name, so a header with an underscore
            # could replace one that a proxy has checked or set.
            return
        environ = self._environ
        key = "HTTP_" + name.decode("latin-1").upper().replace("-", "_")
        text = value.decode("latin-1")
        environ[key] = f"{environ[key]},{text}" if key in environ else text

    def on_headers_complete(self) -> None:
        self._in_head = False
        if self._environ.get("HTTP_EXPECT", "").lower() == "100-continue":
            self._socket.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, part: bytes) -> None:
        """Store the body up to its limit, and count the rest: the application refuses the request by its length."""
        if room := max(0, self._server.body_bytes - self._length):
            self._body.append(part[:room])
        self._length += len(part)
        self._head_bytes -= len(part)

    def on_message_complete(self) -> None:
        """Complete the environ of the request, as PEP 3333 describes it."""
        environ = self._environ
        path, _, query = self._target.decode("latin-1").partition("?")
        environ["REQUEST_METHOD"] = self._parser.get_method().decode("latin-1")
        environ["PATH_INFO"] = unquote(path, "latin-1")
        environ["REQUEST_URI"] = self._target.decode("latin-1")
        environ["QUERY_STRING"] = query
        environ["SERVER_PROTOCOL"] = f"HTTP/{self._parser.get_http_version()}"
        environ["wsgi.input"] = io.BytesIO(b"".join(self._body))
        if "HTTP_CONTENT_TYPE" in environ:
            environ["CONTENT_TYPE"] = environ.pop("HTTP_CONTENT_TYPE")
        if "HTTP_CONTENT_LENGTH" in environ or environ.pop("HTTP_TRANSFER_ENCODING", None):
            environ.pop("HTTP_CONTENT_LENGTH", None)
            environ["CONTENT_LENGTH"] = str(self._length)
        self._complete.append((environ, self._parser.should_keep_alive()))
        self._head_bytes = 0

    def _answer(self, environ: dict[str, Any], keep_alive: bool) -> bool:
        """Answer a request; return whether the connection stays open for another one."""
        status, headers, body = self._server.answer(self._socket, environ)
        keep_alive = keep_alive and not self._server.stopped
        self._send(status, headers, body, keep_alive=keep_alive)
        return keep_alive

    def _send(self, status: str, headers: Headers, body: bytes, *, keep_alive: bool) -> None:
        lines = [f"HTTP/1.1 {status}", f"Date: {_date(int(time.time()))}"]
        lines += [f"{name}: {value}" for name, value in headers]
        if not any(name.lower() == "content-length" for name, _ in headers):
            lines.append(f"Content-Length: {len(body)}")
        if not keep_alive:
            lines.append("Connection: close")
        self._socket.settimeout(SOCKET_TIMEOUT)  # for all of it
        self._socket.sendall("\r\n".join([*lines, "", ""]).encode("latin-1") + body)


def _refusal(status: str, why: str) -> tuple[str, Headers, bytes]:
    return status, [("Content-Type", "text/plain; charset=utf-8")], f"{why}\n".encode()


@functools.lru_cache(maxsize=1)
def _date(second: int) -> str:
    """Return the value of a Date header; cached, as it is the same for all answers within a second."""
    return email.utils.formatdate(second, usegmt=True)
