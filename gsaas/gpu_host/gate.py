"""The gate of a GPU host: a TCP port where consumers show their grants, before the daemons' ports know them.

One line in, one line out, and the connection ends:

    LEASE GRANT\\n      ->      admitted\\n      or      refused CODE sentence\\n

It faces whoever is on the GPU network. So it reads no more than a line, waits for nobody longer than
`PATIENCE`, serves `MOST` at a time, and believes nothing: what was shown goes to the engine, which knows
the keys, and the address that is admitted is the one that the connection came from.
"""

from __future__ import annotations

import logging
import socket
import socketserver
import threading
import time
from collections.abc import Callable

from gsaas import rpc
from gsaas.rpc.engine import GrantAnswer

LOG = logging.getLogger(__name__)

LONGEST_LINE = 4096
PATIENCE = 5.0
"""Seconds for a whole line to come, however slowly."""
MOST = 64
"""Consumers at a time; others wait in the kernel's queue."""


Redeem = Callable[[str, str, str], GrantAnswer]
"""Given a grant, the address it was shown from, and the lease it was shown with."""


class Gate:
    """Listens on *listener* until it is stopped, and asks *redeem* about what is shown."""

    def __init__(self, listener: socket.socket, redeem: Redeem) -> None:
        self._server = _Server(listener, redeem)
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.2,), name="gate", daemon=True
        )

    @property
    def address(self) -> tuple[str, int]:
        return self._server.socket.getsockname()

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._server.socket.shutdown(socket.SHUT_RDWR)  # wakes who waits for connections
        self._server.shutdown()
        self._server.server_close()


class _Server(socketserver.ThreadingMixIn, socketserver.TCPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, listener: socket.socket, redeem: Redeem) -> None:
        super().__init__(listener.getsockname(), _Visit, bind_and_activate=False)
        self.socket.close()
        self.socket = listener
        self.redeem = redeem
        self.places = threading.BoundedSemaphore(MOST)

    def process_request(self, request: socket.socket, client_address: tuple[str, int]) -> None:
        self.places.acquire()
        super().process_request(request, client_address)

    def process_request_thread(self, request: socket.socket, client_address: object) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.places.release()

    def handle_error(self, request: object, client_address: object) -> None:
        LOG.debug("a visitor of the gate left early", exc_info=True)


class _Visit(socketserver.StreamRequestHandler):
    timeout = PATIENCE
    server: _Server

    def handle(self) -> None:
        words = self._line().split()
        if len(words) != 2 or not all(map(bytes.isascii, words)):
            self._say("refused gsaas.bad-request show a lease and its grant, in one line")
            return
        lease_id, key = (word.decode() for word in words)
        try:
            answer = self.server.redeem(key, self.client_address[0], lease_id)
        except rpc.BusError as error:
            LOG.warning("a grant could not be redeemed now: %s", error)
            self._say("refused gsaas.unhealthy the service cannot look at grants now; try again")
            return
        if answer.refusal is None:
            self._say("admitted")
        else:
            self._say(f"refused {answer.code} {answer.refusal}")

    def _line(self) -> bytes:
        """What is shown; raises `TimeoutError` for who takes his time, byte by byte."""
        end = time.monotonic() + self.timeout
        read = b""
        while b"\n" not in read and len(read) < LONGEST_LINE:
            self.connection.settimeout(max(end - time.monotonic(), 0.001))
            said = self.connection.recv(LONGEST_LINE - len(read))
            if not said:
                break
            read += said
            if time.monotonic() > end:
                raise TimeoutError
        self.connection.settimeout(self.timeout)
        return read.partition(b"\n")[0]

    def _say(self, line: str) -> None:
        self.wfile.write(f"{line}\n".encode())
