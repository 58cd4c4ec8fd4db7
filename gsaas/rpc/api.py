# SPDX-License-Identifier: Apache-2.0
"""Messages to API workers: which leases have left the queue, so that waiting clients can be answered."""

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
    """Messages to all API workers, by version:

    1.0  leases_changed

    A message that is lost does no harm: a worker with waiting clients polls the database, only later.
    """

    VERSION = "1.0"

    def __init__(self, bus: rpc.Bus) -> None:
        self._client = rpc.RpcClient(bus, rpc.API, self.VERSION)

    def leases_changed(self, lease_ids: Sequence[str]) -> None:
        """Notify all API workers that these leases have left the queue; a bus that is down is logged."""
        context = RequestContext(overwrite=False)
        try:
            self._client.cast(
                context, "leases_changed", retry=0, fanout=True, lease_ids=list(lease_ids)
            )
        except rpc.BusError as error:
            LOG.warning("clients that wait for leases will be answered late: %s", error)


class ApiListener:
    """Receives the messages of `ApiClient`, and calls *notify* with the id of each lease."""

    target = rpc.Target(version=ApiClient.VERSION)

    def __init__(self, bus: rpc.Bus, notify: Callable[[str], object]) -> None:
        self._bus = bus
        self._notify = notify
        self._once = threading.Lock()

    def start(self) -> None:
        """Begin to listen in the background, until the process ends; further calls do nothing.

        It has to be called by a worker, when the first client waits: a WSGI server forks its workers after it has
        loaded the application, and threads do not survive a fork.
        """
        if self._once.acquire(blocking=False):
            name = f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
            server = rpc.server(self._bus, rpc.API, name, self)
            threading.Thread(target=server.start, name="api-listener", daemon=True).start()

    def leases_changed(self, context: RequestContext, lease_ids: list[str]) -> None:
        """RPC method: wake the clients of this process that wait for one of these leases."""
        for lease_id in lease_ids:
            self._notify(str(lease_id))
