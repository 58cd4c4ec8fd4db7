# SPDX-License-Identifier: Apache-2.0
"""Metrics as the text that Prometheus reads, and the server at which it reads those of an engine.

Prometheus scrapes one of several API workers. All workers share a directory, in prometheus_client's multiprocess
mode, so that each of them can report what all have counted: `PROMETHEUS_MULTIPROC_DIR` in the environment of the API
names it, and it must be empty when the API starts.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterable, Iterator

from oslo_utils import netutils
from prometheus_client import exposition, multiprocess
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from gsaas.metrics import counted

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
"""The format that every release of prometheus_client writes by default; before 0.23 it has no name for it."""
SHARED = "PROMETHEUS_MULTIPROC_DIR"


class _All(Collector):
    """Collects *gauges*, and the counters of this process or of all that share its directory."""

    def __init__(self, gauges: Iterable[Metric]) -> None:
        self._gauges = gauges

    def collect(self) -> Iterator[Metric]:
        yield from self._gauges
        if os.environ.get(SHARED):
            collector = multiprocess.MultiProcessCollector(None)  # type: ignore[no-untyped-call]
            yield from collector.collect()  # type: ignore[no-untyped-call]
        else:
            yield from counted.REGISTRY.collect()


def text(gauges: Iterable[Metric]) -> str:
    """Return *gauges* and all counters in Prometheus' text format, whose type is `CONTENT_TYPE`."""
    return exposition.generate_latest(_All(gauges)).decode()


def serve(listen: str) -> tuple[int, Callable[[], None]]:
    """Serve the counters of this process at *listen* (`host:port`); return the port, and a function that stops it.

    Raises `OSError` if the server cannot listen at that address.
    """
    host, port = netutils.parse_host_port(listen)
    server, thread = exposition.start_http_server(port, host, counted.REGISTRY)

    def stop() -> None:
        server.socket.shutdown(socket.SHUT_RDWR)  # wakes the thread that waits for connections
        server.shutdown()
        server.server_close()
        thread.join()

    return server.server_port, stop
