# SPDX-License-Identifier: Apache-2.0
"""A proxy that ends TLS in front of a server on loopback."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from urllib.parse import urlsplit


@contextmanager
def ending_tls(url: str, certificate: tuple[str, str]) -> Iterator[str]:
    """Pass what comes over TLS on to the server at *url* during the block; yield the https URL."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    server = (urlsplit(url).hostname or "", urlsplit(url).port or 0)
    listener = socket.create_server(("127.0.0.1", 0))
    thread = threading.Thread(target=_accept, args=(listener, context, server), daemon=True)
    thread.start()
    try:
        yield f"https://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        with suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()


def _accept(listener: socket.socket, context: ssl.SSLContext, server: tuple[str, int]) -> None:
    with suppress(OSError):
        while True:
            connection, _ = listener.accept()
            threading.Thread(target=_serve, args=(connection, context, server), daemon=True).start()


def _serve(connection: socket.socket, context: ssl.SSLContext, server: tuple[str, int]) -> None:
    with (
        connection,
        suppress(OSError),
        context.wrap_socket(connection, server_side=True) as outer,
        socket.create_connection(server) as inner,
    ):
        back = threading.Thread(target=_copy, args=(inner, outer), daemon=True)
        back.start()
        _copy(outer, inner)
        back.join()


def _copy(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
    for each in (source, target):
        with suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
