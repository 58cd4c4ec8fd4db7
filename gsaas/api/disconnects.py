"""Has the client hung up? WSGI does not say; the servers do, each in its own way."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from typing import Any


def gone(environ: Mapping[str, Any]) -> bool:
    """Return whether the client of a request has closed its connection, as far as that can be told.

    waitress tells if it reads ahead (`channel_request_lookahead`); gunicorn hands out the socket.
    """
    ask = environ.get("waitress.client_disconnected")
    if ask is not None:
        return bool(ask())
    connection = environ.get("gunicorn.socket")
    return connection is not None and _is_closed(connection)


def _is_closed(connection: socket.socket) -> bool:
    try:
        return connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b""
    except (BlockingIOError, InterruptedError):
        return False
    except (OSError, ValueError):  # a TLS socket cannot be peeked at; a broken one is closed
        return connection.fileno() < 0
