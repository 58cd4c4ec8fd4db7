"""The API behind a real WSGI server on loopback, for clients that speak HTTP."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import flask
import waitress
from waitress import wasyncore


@contextmanager
def serving(app: flask.Flask) -> Iterator[str]:
    """Serve *app* on a free port while the block runs; yield its URL."""
    server = waitress.create_server(
        app, host="127.0.0.1", port=0, threads=12, channel_request_lookahead=1
    )
    thread = threading.Thread(target=server.run, name="api")
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.effective_port}"
    finally:
        with suppress(OSError):  # the server's own thread closes it, perhaps before we have rung
            server.trigger.pull_trigger(lambda: wasyncore.close_all(server._map))
        thread.join()
        server.task_dispatcher.shutdown()
