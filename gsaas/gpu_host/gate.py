# SPDX-License-Identifier: Apache-2.0
"""The gate of a GPU host: a TCP port where consumers present their grants, to be admitted to the daemons' ports.

One line in, one line out, and the connection ends:

    LEASE GRANT\\n      ->      admitted\\n      or      refused CODE sentence\\n

Any machine on the GPU network can connect. So the gate reads no more than one line, waits at most `LINE_TIMEOUT`
seconds for it, and serves `MAX_CONNECTIONS` at a time. `MAX_PER_ADDRESS` of them may be from one address, and further
ones are closed at once. When all are taken, or `MAX_SILENT_PER_ADDRESS` of one address, the one that has been silent
for longest makes room for the next. The gate trusts nothing: it passes the grant to the engine, which has the keys, and
the address that is admitted is the one that the connection came from.
"""

from __future__ import annotations

import logging
import socket
import socketserver
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
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
MAX_PER_ADDRESS = 32
"""Upper bound of connections at a time from one address: a host has one for each program that begins at that moment."""
MAX_SILENT_PER_ADDRESS = 8
"""Upper bound of those of one address whose line has not arrived: all others wait for the engine's answer."""


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
        self._state = threading.Condition()
        """Guards the attributes that follow; notified when a connection has ended."""
        self._per_address: Counter[str] = Counter()
        self._reading: dict[socket.socket, str] = {}
        """Connections whose line has not arrived -> their addresses; the oldest comes first."""

    def verify_request(self, request: Any, client_address: Any) -> bool:
        """Return whether the address may have another connection; it is closed otherwise."""
        with self._state:
            return self._per_address[client_address[0]] < MAX_PER_ADDRESS

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._state:
            silent = [one for one, host in self._reading.items() if host == client_address[0]]
            if len(silent) >= MAX_SILENT_PER_ADDRESS:
                self._stop_reading(silent[0])
            if self._connections >= MAX_CONNECTIONS and self._reading:
                self._stop_reading(next(iter(self._reading)))
            # Blocks the thread that accepts connections: that is the limit.
            self._state.wait_for(lambda: self._connections < MAX_CONNECTIONS)
            self._per_address[client_address[0]] += 1
            self._reading[request] = client_address[0]
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            with self._state:
                self._reading.pop(request, None)
                self._per_address[client_address[0]] -= 1
                self._per_address += Counter()  # forgets addresses without connections
                self._state.notify()

    def line_arrived(self, request: socket.socket) -> None:
        """Note that the line of a connection has arrived: from now on it does not make room for others."""
        with self._state:
            self._reading.pop(request, None)

    @property
    def _connections(self) -> int:
        return self._per_address.total()

    def _stop_reading(self, connection: socket.socket) -> None:
        del self._reading[connection]
        with suppress(OSError):  # its client may have closed it
            connection.shutdown(socket.SHUT_RD)  # a line that is there already is still answered

    def handle_error(self, request: object, client_address: object) -> None:
        LOG.debug("a connection to the gate ended early", exc_info=True)


class _GrantHandler(socketserver.StreamRequestHandler):
    timeout = LINE_TIMEOUT
    server: _GateServer

    def handle(self) -> None:
        words = self._read_line().split()
        self.server.line_arrived(self.connection)
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
