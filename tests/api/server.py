# SPDX-License-Identifier: Apache-2.0
"""The API on a real WSGI server on a loopback address, for HTTP clients."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import flask

from gsaas.standalone import service
from gsaas.standalone.http_server import HttpServer


@contextmanager
def serving(app: flask.Flask) -> Iterator[str]:
    """Serve *app* on a free port during the block; yield the URL."""
    most = app.config["MAX_CONTENT_LENGTH"] + service.LARGER_BODIES
    server = HttpServer(app, "127.0.0.1", 0, threads=32, connections=64, body_bytes=most)
    thread = threading.Thread(target=server.serve, name="api")
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.port}"
    finally:
        server.close()
        thread.join()
