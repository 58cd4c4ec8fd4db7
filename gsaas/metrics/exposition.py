"""From metrics to the text that Prometheus reads, and the port at which an engine gives its own.

An API of several workers is scraped at one of them. For that one to tell what the others counted, they share a
directory, as prometheus_client has it: `PROMETHEUS_MULTIPROC_DIR` in the environment of the API, empty when it starts.
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

CONTENT_TYPE = exposition.CONTENT_TYPE_PLAIN_0_0_4
SHARED = "PROMETHEUS_MULTIPROC_DIR"


class _All(Collector):
    """Gauges, and what all processes counted that share a directory with this one."""

    def __init__(self, gauges: Iterable[Metric]) -> None:
        self._gauges = gauges

    def collect(self) -> Iterator[Metric]:
        yield from self._gauges
        if os.environ.get(SHARED):
            yield from multiprocess.MultiProcessCollector(None).collect()
        else:
            yield from counted.REGISTRY.collect()


def text(gauges: Iterable[Metric]) -> str:
    """All metrics in Prometheus' text format, in `CONTENT_TYPE`."""
    return exposition.generate_latest(_All(gauges)).decode()


def serve(listen: str) -> tuple[int, Callable[[], None]]:
    """Serve what this process counts at *listen* (`host:port`); return the port, and what ends it.

    Raises `OSError` when the address is not to be had.
    """
    host, port = netutils.parse_host_port(listen)
    server, thread = exposition.start_http_server(port, host, counted.REGISTRY)

    def stop() -> None:
        server.socket.shutdown(socket.SHUT_RDWR)  # wakes who waits for connections
        server.shutdown()
        server.server_close()
        thread.join()

    return server.server_port, stop
