# SPDX-License-Identifier: Apache-2.0
"""The engine as a service: its workers, its audit and its endpoint on the message bus, started and stopped together."""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

from oslo_config import cfg
from oslo_utils import timeutils

from gsaas import exceptions, rpc
from gsaas.cloud.base import ServerChange
from gsaas.db import hosts, leases
from gsaas.db.database import Database, retried
from gsaas.engine import notifications
from gsaas.engine.driver import LeaseDriver
from gsaas.engine.rpc_endpoint import RpcEndpoint, may_send
from gsaas.engine.workqueue import WorkQueue
from gsaas.gpgpums.claims import Claims
from gsaas.grants.keyring import Keyring
from gsaas.notifications.cadf import SecurityEvent
from gsaas.objects.gpu_network import GpuNetwork
from gsaas.objects.lifecycle import Status
from gsaas.rpc.monitor import MonitorClient
from gsaas.rpc.rodvr import EndpointClient

LOG = logging.getLogger(__name__)

_SERVERS_PER_QUERY = 100


class Engine:
    """One engine. However suddenly it stops, the next engine can continue with every lease.

    Without *keyring*, no grant can be redeemed. *audit* is called with each grant that is refused. Daemons and compute
    hosts are in *gpu_network*.
    """

    def __init__(
        self,
        conf: cfg.ConfigOpts,
        *,
        database: Database,
        bus: rpc.Bus,
        endpoint: EndpointClient,
        driver: LeaseDriver,
        claims: Claims,
        keyring: Keyring | None = None,
        gpu_network: GpuNetwork = GpuNetwork(),  # noqa: B008  (immutable)
        audit: Callable[[SecurityEvent], None] = lambda _: None,
    ) -> None:
        self._conf = conf
        self._database = database
        self._driver = driver
        self._claims = claims
        self._queue = WorkQueue()
        self._stopping = threading.Event()
        self._server = rpc.server(
            bus,
            rpc.ENGINE,
            socket.gethostname(),
            RpcEndpoint(
                database,
                endpoint,
                MonitorClient(bus),
                driver.gpu_hosts,
                self._queue.add,
                driver.callers,
                claims.queue.advance,
                keyring,
                audit,
                gpu_network,
            ),
            may_send,
        )
        self._threads = [
            threading.Thread(target=self._work, name=f"engine-worker-{number}", daemon=True)
            for number in range(conf.engine.workers)
        ]
        self._threads += [
            threading.Thread(target=self._audit, name="engine-audit", daemon=True),
            threading.Thread(target=self._watch_servers, name="engine-watch", daemon=True),
        ]
        self._notifications = (
            notifications.listener(conf, self._requeue_changed) if driver.cloud.notifies else None
        )

    def start(self) -> None:
        """Start to serve the message bus and to drive leases. Raises what the bus raises."""
        self._server.start()
        if self._notifications is not None:
            self._notifications.start()
        for thread in self._threads:
            thread.start()

    def stop(self, timeout: float = 5.0) -> None:
        """Stop all threads; wait up to *timeout* seconds for steps that are being executed.

        A step that is interrupted is repeated by another engine.
        """
        self._stopping.set()
        self._queue.close()
        self._server.stop()
        if self._notifications is not None:
            self._notifications.stop()
        deadline = time.monotonic() + timeout
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    def describe(self) -> dict[str, Any]:
        """Return what this engine does now, for a report."""
        processing, waiting = self._queue.describe()
        return {
            "name": self._driver.engine,
            "leases that are driven now": processing,
            "leases that wait, and for how many seconds": waiting,
            "database connections": self._database.engine.pool.status(),
        }

    def _work(self) -> None:
        """Drive the leases of the queue, one after the other, until the queue is closed."""
        while (lease_id := self._queue.get()) is not None:
            requeue_after = None
            try:
                requeue_after = self._driver.drive(lease_id)
            except exceptions.NotFound:
                LOG.warning("there is no lease %s to drive", lease_id)
            except Exception:  # other leases must go on; the audit requeues this one
                LOG.exception("lease %s stays as it is until the next audit", lease_id)
            finally:
                self._queue.done(lease_id)
            if requeue_after is not None:
                self._queue.add(lease_id, after=requeue_after)

    def _audit(self) -> None:
        """Audit the queue, requeue every lease that has steps left, and delete forgotten hosts, again and again."""
        while not self._stopping.is_set():
            try:
                abandoned = self._claims.run_audit()
                with self._database.read() as session:
                    found = [*abandoned, *leases.unsettled(session.connection())]
                    any_forgotten = hosts.has_forgotten(session)
                if any_forgotten:
                    self._remove_forgotten_hosts()
            except Exception:  # the database may be down for a while
                LOG.exception("the audit could not read the leases; the next one tries again")
            else:
                for lease_id in found:
                    self._queue.add(lease_id)
            self._stopping.wait(self._conf.engine.audit_interval)

    @retried
    def _remove_forgotten_hosts(self) -> None:
        with self._database.write() as session:
            hosts.delete_forgotten(session)

    def _watch_servers(self) -> None:
        """Requeue the leases whose servers were changed or deleted in the cloud, as often as configured."""
        since = None
        while not self._stopping.is_set():
            began = (
                timeutils.utcnow()
            )  # before the query: a change during it is found by the next one
            try:
                changes = self._driver.cloud.server_changes(since)
                if changes is None or since is None:
                    self._requeue_moved()
                self._requeue_changed(changes or ())
            except exceptions.CloudUnavailable as error:
                LOG.warning("the changes of servers cannot be read now: %s", error)
            except Exception:
                LOG.exception("the changes of servers could not be read; this is tried again")
            else:
                since = began
            self._stopping.wait(
                max(self._conf.engine.audit_interval, self._driver.cloud.audit_interval)
            )

    def _requeue_moved(self) -> None:
        """Requeue each ACTIVE lease whose server is not on the recorded host; all, if the cloud does not list hosts."""
        hosts_by_server = self._driver.cloud.server_hosts()
        with self._database.reading() as connection:
            known = leases.servers(connection, Status.ACTIVE)
        for lease_id, server_id, host in known:
            # Without a server id there is no server to be found on a host.
            current = (
                None
                if hosts_by_server is None or server_id is None
                else hosts_by_server.get(server_id)
            )
            if hosts_by_server is None or current != host:
                self._queue.add(lease_id)

    def _requeue_changed(self, changes: Iterable[ServerChange]) -> None:
        """Requeue the leases that these servers belong to; servers of no lease are ignored."""
        changes = list(changes)
        for start in range(0, len(changes), _SERVERS_PER_QUERY):
            batch = changes[start : start + _SERVERS_PER_QUERY]
            lease_ids = {change.lease_id for change in batch if change.lease_id is not None}
            server_ids = {change.server_id for change in batch}
            with self._database.reading() as connection:
                found = leases.ids_of(connection, lease_ids, server_ids)
            for lease_id in found:
                self._queue.add(lease_id)
