# SPDX-License-Identifier: Apache-2.0
"""The HTTP server of gsaas-standalone: waitress, with a deadline for each request and room for new connections.

waitress reads requests in one thread and answers whole ones in others, so a client that sends slowly costs a
connection and no thread. In a cloud the API runs under uWSGI or gunicorn instead, behind a proxy.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

from waitress import wasyncore
from waitress.adjustments import Adjustments
from waitress.channel import HTTPChannel
from waitress.server import TcpWSGIServer

CLIENT_TIMEOUT = 60.0
"""Seconds within which a client has to send a whole request, from when it has connected or has the answer to the one
before, however many pieces it sends; and within which it has to accept an answer. Then its connection is closed."""
BACKLOG = 4096
"""Connections that may wait to be accepted."""
MAX_HEAD_BYTES = 65536
"""Bytes of a request's first line and headers."""
LOOKAHEAD = 1
"""Requests of a client that are read while one is being answered. Without any, waitress would not notice that the
client has disconnected meanwhile."""
MOST_UNREAD = 16 << 20
"""Bytes that are read and thrown away of a refused request, whose client would not see the answer otherwise."""
STOP_GRACE = 1.0
"""Seconds for which a stopping server waits for requests that are being answered; long polls may take longer."""

Application = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


class HttpServer:
    """Serves *app* on *host* and *port*; port 0 takes a free one. Raises `OSError` if it cannot listen there.

    It answers *threads* requests at once, and keeps *connections* connections open. When there are as many, the one
    that has gone longest without a whole request is closed. A longer body than *body_bytes* is refused.
    """

    def __init__(
        self,
        app: Application,
        host: str,
        port: int,
        *,
        threads: int,
        connections: int,
        body_bytes: int,
    ) -> None:
        listener = socket.create_server((host, port), backlog=BACKLOG)
        self.host, self.port = listener.getsockname()
        adjustments = Adjustments(
            sockets=[listener],
            threads=threads,
            backlog=BACKLOG,
            connection_limit=connections,
            channel_request_lookahead=LOOKAHEAD,
            cleanup_interval=1,
            max_request_header_size=MAX_HEAD_BYTES,
            max_request_body_size=body_bytes,
            inbuf_overflow=body_bytes,  # nothing of a request is written to a file
            clear_untrusted_proxy_headers=False,  # the API reads them only if it is configured so
            ident=None,
        )
        self._open: dict[int, wasyncore.dispatcher] = {}
        """Everything that waitress waits for, by file descriptor."""
        self._server = _Server(
            app,
            map=self._open,
            _sock=listener,
            adj=adjustments,
            bind_socket=False,
            sockinfo=(listener.family, listener.type, listener.proto, listener.getsockname()),
        )
        self._is_over = False
        self._loop = threading.Thread(target=self._wait_for_clients, name="api", daemon=True)
        self._stopping = threading.Lock()
        """Acquired by the first caller of `close`, and kept."""
        self._stopped = threading.Event()

    def serve(self) -> None:
        """Answer requests until `close` is called, or a signal handler raises an exception in this thread."""
        self._loop.start()
        self._stopped.wait()

    def close(self) -> None:
        """Accept no more requests, and wait up to `STOP_GRACE` seconds for those being answered. Idempotent."""
        if not self._stopping.acquire(blocking=False):
            return
        trigger, threads = self._server.trigger, self._server.task_dispatcher
        trigger.pull_trigger(self._server.stop_listening)
        threads.shutdown(timeout=STOP_GRACE)
        self._is_over = True
        trigger.pull_trigger()
        if self._loop.ident is not None:  # it was started
            self._loop.join()
        for one in list(self._open.values()):
            # Threads that are still running pull the trigger yet: its descriptors must not be those of other files.
            if one is not trigger or not threads.threads:
                one.close()
        self._stopped.set()

    def _wait_for_clients(self) -> None:
        try:
            while not self._is_over:
                wasyncore.loop(timeout=1, map=self._open, use_poll=True, count=1)
        finally:
            self._stopped.set()


class _Channel(HTTPChannel):
    """A connection that knows how long it has gone without a whole request."""

    close_when_flushed: bool
    will_close: bool

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.idle_since = self.creation_time
        self._is_refused = False
        """Whether waitress itself refuses the request, of which it has not read everything."""
        self._unread: int | None = None
        """Once the refusal is sent: how many bytes more of the request are read."""

    def service(self) -> None:
        """Answer one request."""
        self._is_refused = self.requests[0].error is not None
        super().service()
        self.idle_since = time.time()

    def readable(self) -> bool:
        """Return whether something is to be read."""
        return self._unread is not None or bool(super().readable())

    def handle_read(self) -> None:
        """Read a request, or what is left of a refused one. waitress would close at once, which resets a connection."""
        if self._unread is None:
            super().handle_read()
            return
        try:
            self._unread -= len(self.recv(self.adj.recv_bytes))
        except OSError:
            self.handle_close()
        if self._unread < 0:
            self.will_close = True

    def handle_write(self) -> None:
        """Send; after a refusal, tell the client that nothing follows it, and wait for the client to close."""
        if self._unread is None and self._is_refused and self.close_when_flushed:
            self._flush_exception(self._flush_some)
            if not self.will_close:
                if not self.total_outbufs_len:
                    self.close_when_flushed = False
                    self._unread = MOST_UNREAD
                    with suppress(OSError):
                        self.socket.shutdown(socket.SHUT_WR)
                return
        super().handle_write()


class _Server(TcpWSGIServer):
    """waitress's server, which would let a client have as much time again with each byte that it sends."""

    channel_class = _Channel

    def maintenance(self, now: float) -> None:
        """Close connections whose clients had `CLIENT_TIMEOUT` seconds and have not sent a whole request."""
        for channel in self._idle():
            if channel.idle_since < now - CLIENT_TIMEOUT:
                channel.will_close = True

    def handle_accept(self) -> None:
        """Accept a connection; if it is the last one that there is room for, close the one that is idle for longest."""
        super().handle_accept()
        if len(self._map) >= self.adj.connection_limit and (idle := self._idle()):
            min(idle, key=lambda channel: channel.idle_since).will_close = True

    def stop_listening(self) -> None:
        """Accept no more connections, and close those over which no request is being answered."""
        wasyncore.dispatcher.close(self)
        for channel in self._idle():
            channel.will_close = True

    def _idle(self) -> list[_Channel]:
        return [channel for channel in self.active_channels.values() if not channel.requests]
