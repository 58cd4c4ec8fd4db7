# SPDX-License-Identifier: Apache-2.0
"""The bodies of requests where WSGI servers differ: uWSGI's in chunks, and what the API has not read of a body.

A request in chunks has no Content-Length. gunicorn puts its body together; uWSGI leaves that to the application.

A connection that is closed with bytes that nobody has read is reset, and a client that is still sending then never
sees the answer that refuses its request. So what is left of a body is read after the answer, within bounds.
"""

from __future__ import annotations

import functools
import importlib
import io
import time
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from werkzeug.wsgi import ClosingIterator

from gsaas.wsgi.filters import Environ, StartResponse, Wsgi

MOST_UNREAD = 16 << 20
"""Bytes that are read after an answer, at most: of a client that sends more, the connection is reset."""
SECONDS = 10.0
"""For how long a client may go on sending after its answer."""
PAUSE = 4.0
"""For how long it may send nothing meanwhile, under gunicorn; uWSGI has `socket-timeout`, which is the same."""
_STEP = 1 << 16


def readable(app: Wsgi) -> Wsgi:
    """Return *app* with bodies that it can read, whatever the server, and that it may leave unread."""

    def with_body(environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        chunked = environ.get("HTTP_TRANSFER_ENCODING", "").lower() == "chunked"
        if not chunked and environ.get("CONTENT_LENGTH") in (None, "", "0"):
            return app(environ, start_response)
        if chunked and "wsgi.input_terminated" not in environ and "uwsgi.version" in environ:
            environ["wsgi.input"] = io.BufferedReader(_Chunks())
            environ["wsgi.input_terminated"] = True
        rest = functools.partial(_discard, environ["wsgi.input"], environ.get("gunicorn.socket"))
        return ClosingIterator(app(environ, start_response), rest)

    return with_body


class _Chunks(io.RawIOBase):
    """The body of the request that this thread of uWSGI answers, without its chunks.

    Reading raises `OSError` for a body that breaks off or whose chunks are none, or larger than `chunked-input-limit`.
    """

    def __init__(self) -> None:
        # uWSGI makes this module in its processes.
        self._read_chunk = importlib.import_module("uwsgi").chunked_read
        self._chunk = b""

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read as much as *buffer* takes of one chunk; return its length, 0 at the end."""
        self._chunk = self._chunk or self._read_chunk()
        taken = self._chunk[: len(buffer)]
        buffer[: len(taken)] = taken
        self._chunk = self._chunk[len(taken) :]
        return len(taken)


def _discard(body: Any, connection: Any) -> None:
    """Read what is left of a *body*, which comes over *connection* where the server tells."""
    if connection is not None:
        connection.settimeout(PAUSE)
    left, deadline = MOST_UNREAD, time.monotonic() + SECONDS
    # The answer has been sent, and servers raise what they like for a body that breaks off.
    with suppress(Exception):
        while left > 0 and time.monotonic() < deadline and (read := body.read(_STEP)):
            left -= len(read)
