# SPDX-License-Identifier: Apache-2.0
"""Whether a client has disconnected. WSGI does not define how to find out; each server has its own way."""

from __future__ import annotations

import select
import socket
from collections.abc import Mapping
from typing import Any


def is_disconnected(environ: Mapping[str, Any]) -> bool:
    """Return whether the client of a request has closed its connection; False if that is unknown.

    waitress, the server of gsaas-standalone, says so. gunicorn passes the socket to the application. uWSGI has neither.
    """
    if (client_disconnected := environ.get("waitress.client_disconnected")) is not None:
        return bool(client_disconnected())
    connection = environ.get("gunicorn.socket")
    return connection is not None and _is_closed(connection)


def _is_closed(connection: socket.socket) -> bool:
    try:
        # A closed connection is readable and has no bytes; MSG_PEEK leaves the bytes of a next request in place.
        poll = select.poll()
        poll.register(connection, select.POLLIN)
        return bool(poll.poll(0)) and connection.recv(1, socket.MSG_PEEK) == b""
    except (BlockingIOError, InterruptedError):
        return False
    except (OSError, ValueError):  # a TLS socket does not support MSG_PEEK; a broken one is closed
        return connection.fileno() < 0
