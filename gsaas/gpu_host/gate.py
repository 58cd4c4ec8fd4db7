# SPDX-License-Identifier: Apache-2.0
"""The gate of a GPU host: a TCP port where consumers present their grants, to be admitted to the daemons' ports.

One line in, one line out, and the connection ends:

    LEASE GRANT\\n      ->      admitted\\n      or      refused CODE sentence\\n

Any machine on the GPU network can connect. So the gate reads no more than one line, waits at most `LINE_TIMEOUT`
seconds for it, serves `MAX_CONNECTIONS` at a time, and trusts nothing: it passes the grant to the engine, which has the
keys, and the address that is admitted is the one that the connection came from.
"""

from __future__ import annotations

import logging
import socket
import socketserver
import threading
import time
from collections.abc import Callable
from typing import Any

from gsaas import rpc
from gsaas.rpc.engine import RedemptionResult

LOG = logging.getLogger(__name__)

MAX_LINE = 4096
"""Upper bound of the bytes of a line."""
LINE_TIMEOUT = 5.0
"""Seconds within which the whole line has to arrive."""
MAX_CONNECTIONS = 64
"""Upper bound of connections at a time; further ones wait in the kernel's queue."""


Redeem = Callable[[str, str, str], RedemptionResult]
"""Redeems a grant; its parameters are the grant, the address that it comes from, and the lease's id."""


class Gate:
    """Serves *listener* until it is stopped, and calls *redeem* for each grant; that may raise `rpc.BusError`."""

    def __init__(self, listener: socket.socket, redeem: Redeem) -> None:
        self._server = _GateServer(listener, redeem)
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.2,), name="gate", daemon=True
        )

    @property
    def address(self) -> tuple[str, int]:
        """IPv4 address and port of the listener."""
        host, port = self._server.socket.getsockname()
        return host, port

    def start(self) -> None:
        """Serve in a thread."""
        self._thread.start()

    def stop(self) -> None:
        """Take no more connections, and close the listener."""
        # shutdown(2) wakes the thread that waits for connections; closing the socket alone would not.
        self._server.socket.shutdown(socket.SHUT_RDWR)
        self._server.shutdown()
        self._server.server_close()


class _GateServer(socketserver.ThreadingMixIn, socketserver.TCPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, listener: socket.socket, redeem: Redeem) -> None:
        super().__init__(listener.getsockname(), _GrantHandler, bind_and_activate=False)
        # TCPServer makes a socket of its own; the listener that is there already takes its place.
        self.socket.close()
        self.socket = listener
        self.redeem = redeem
        self.slots = threading.BoundedSemaphore(MAX_CONNECTIONS)

    def process_request(self, request: Any, client_address: Any) -> None:
        self.slots.acquire()  # blocks the thread that accepts connections: that is the limit
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.slots.release()

    def handle_error(self, request: object, client_address: object) -> None:
        LOG.debug("a connection to the gate ended early", exc_info=True)


class _GrantHandler(socketserver.StreamRequestHandler):
    timeout = LINE_TIMEOUT
    server: _GateServer

    def handle(self) -> None:
        words = self._read_line().split()
        if len(words) != 2 or not all(map(bytes.isascii, words)):
            self._answer(
                "refused gsaas.bad-request send the id of a lease and its grant, in one line"
            )
            return
        lease_id, key = (word.decode() for word in words)
        try:
            result = self.server.redeem(key, self.client_address[0], lease_id)
        except rpc.BusError as error:
            LOG.warning("a grant could not be redeemed now: %s", error)
            self._answer("refused gsaas.unhealthy the service cannot redeem grants now; try again")
            return
        if result.refusal is None:
            self._answer("admitted")
        else:
            self._answer(f"refused {result.code} {result.refusal}")

    def _read_line(self) -> bytes:
        """Return the line; raises `TimeoutError` after `timeout` seconds, also for a client that sends byte by byte."""
        deadline = time.monotonic() + self.timeout
        received = b""
        while b"\n" not in received and len(received) < MAX_LINE:
            self.connection.settimeout(max(deadline - time.monotonic(), 0.001))
            chunk = self.connection.recv(MAX_LINE - len(received))
            if not chunk:
                break
            received += chunk
            if time.monotonic() > deadline:
                raise TimeoutError
        self.connection.settimeout(self.timeout)
        return received.partition(b"\n")[0]

    def _answer(self, line: str) -> None:
        self.wfile.write(f"{line}\n".encode())
