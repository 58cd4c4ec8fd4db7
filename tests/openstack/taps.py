# SPDX-License-Identifier: Apache-2.0
"""The taps of servers on fake hypervisors, which make none: until its server has a tap, a lease stays BOOTING."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from openstack.connection import Connection

from gsaasclient import sdk
from tests.openstack.bed import machines, settings
from tests.openstack.servers import Servers

LOG = logging.getLogger(__name__)
INTERVAL = 0.5


@contextmanager
def with_taps(admin: Connection, servers: Servers) -> Iterator[None]:
    """Add the tap of each server of the tenant that needs one, from a thread; remove them all at the end.

    *servers* remembers each of these servers.
    """
    sdk.add_service(admin)
    made: set[tuple[str, str]] = set()
    end = threading.Event()

    def work() -> None:
        while not end.wait(INTERVAL):
            try:
                for server in _need_taps(admin):
                    tap = (server["host"], servers.watch(server["id"]))
                    machines.add_tap(*tap)
                    made.add(tap)
            except Exception:  # a server may just be deleted; the next turn looks again
                LOG.debug("a tap could not be added", exc_info=True)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        yield
    finally:
        end.set()
        thread.join()
        for host, tap in made:
            machines.remove_tap(host, tap)


def _need_taps(admin: Connection) -> list[dict[str, Any]]:
    """Return the servers of fake hypervisors whose leases wait for something."""
    servers = [
        lease.server or {}
        for lease in admin.gpu_scheduling.leases(all_projects=True, status="BOOTING")
    ]
    return [each for each in servers if each.get("id") and each.get("host") in settings.FAKE_HOSTS]
