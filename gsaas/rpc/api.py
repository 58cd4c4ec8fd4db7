"""What API workers are told: which leases have changed, so that clients that wait can be answered."""

from __future__ import annotations

import logging
import os
import socket
import threading
import uuid
from collections.abc import Callable, Sequence

from gsaas import rpc
from gsaas.context import RequestContext

LOG = logging.getLogger(__name__)


class ApiClient:
    """Tells every API worker at once, by version:

    1.0  leases_changed

    Nothing is lost when it does not arrive: who waits looks again by himself, only later.
    """

    VERSION = "1.0"

    def __init__(self, bus: rpc.Bus) -> None:
        self._client = rpc.Client(bus, rpc.API, self.VERSION)

    def leases_changed(self, lease_ids: Sequence[str]) -> None:
        """Say that these leases have left the queue."""
        context = RequestContext(overwrite=False)
        try:
            self._client.cast(
                context, "leases_changed", retry=0, fanout=True, lease_ids=list(lease_ids)
            )
        except rpc.BusError as error:
            LOG.warning("who waits for leases will notice late: %s", error)


class ApiListener:
    """Hears what `ApiClient` says, and calls *ring* for each lease."""

    target = rpc.Target(version=ApiClient.VERSION)

    def __init__(self, bus: rpc.Bus, ring: Callable[[str], object]) -> None:
        self._bus = bus
        self._ring = ring
        self._once = threading.Lock()

    def start(self) -> None:
        """Begin to listen, in the background and once in this process, for as long as it runs.

        Not before somebody waits: a WSGI server forks its workers after it has loaded the application.
        """
        if self._once.acquire(blocking=False):
            name = f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
            server = rpc.server(self._bus, rpc.API, name, self)
            threading.Thread(target=server.start, name="api-listener", daemon=True).start()

    def leases_changed(self, context: RequestContext, lease_ids: list[str]) -> None:
        """Wake whoever waits here for one of these leases."""
        for lease_id in lease_ids:
            self._ring(str(lease_id))
