# SPDX-License-Identifier: Apache-2.0
"""A way from a network namespace to the API of a gsaas-standalone outside, also after that was started again."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable

from gsaas.netlink.namespace import entered
from tests.support.waiting import PATIENCE


class Relay:
    """Listens on 127.0.0.1 of a namespace, and connects whoever comes to the address that *target* returns."""

    def __init__(self, netns: str, target: Callable[[], tuple[str, int]]) -> None:
        with entered(netns):
            self._listener = socket.create_server(("127.0.0.1", 0), backlog=500)
        self.port = self._listener.getsockname()[1]
        self._target = target
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Accept no more connections."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                threading.Thread(target=self._connect, args=(near,), daemon=True).start()

    def _connect(self, near: socket.socket) -> None:
        with near:
            try:
                far = socket.create_connection(self._target(), timeout=PATIENCE)
            except OSError:
                return
            far.settimeout(None)
            with far:
                back = threading.Thread(target=_pump, args=(far, near), daemon=True)
                back.start()
                _pump(near, far)
                back.join()


def _pump(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            sink.sendall(data)
    with contextlib.suppress(OSError):
        sink.shutdown(socket.SHUT_WR)
