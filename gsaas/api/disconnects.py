"""Has the client hung up? WSGI does not say; the servers do, each in its own way."""

from __future__ import annotations

import select
import socket
from collections.abc import Mapping
from typing import Any

CONNECTION = "gsaas.connection"
"""Under which name gsaas-standalone's HTTP server hands out the connection of a request."""


def gone(environ: Mapping[str, Any]) -> bool:
    """Return whether the client of a request has closed its connection, as far as that can be told.

    gunicorn hands out the socket, and so does gsaas-standalone's own server; uWSGI keeps it to itself.
    """
    connection = environ.get(CONNECTION) or environ.get("gunicorn.socket")
    return connection is not None and _is_closed(connection)


def _is_closed(connection: socket.socket) -> bool:
    try:
        said = select.poll()
        said.register(connection, select.POLLIN)
        return bool(said.poll(0)) and connection.recv(1, socket.MSG_PEEK) == b""
    except (BlockingIOError, InterruptedError):
        return False
    except (OSError, ValueError):  # a TLS socket cannot be peeked at; a broken one is closed
        return connection.fileno() < 0
