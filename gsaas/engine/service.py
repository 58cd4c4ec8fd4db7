# SPDX-License-Identifier: Apache-2.0
"""The engine as a service: its workers, its audit and its endpoint on the message bus, started and stopped together."""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from oslo_config import cfg
from oslo_db import exception as db_exception
from oslo_utils import timeutils

from gsaas import exceptions, rpc
from gsaas.cloud.base import ServerChange
from gsaas.db import clock, hosts, leases, readings
from gsaas.db.database import Database, retried
from gsaas.engine import nova_notifications, second_servers
from gsaas.engine.cloud_clock import CloudClock
from gsaas.engine.drains import Drains
from gsaas.engine.gpu_losses import GpuLosses
from gsaas.engine.idle_leases import IdleLeases
from gsaas.engine.lease_ends import LeaseEnds
from gsaas.engine.reconciler import LeaseReconciler
from gsaas.engine.rpc_endpoint import HANDLERS, RpcEndpoint, may_send
from gsaas.engine.workqueue import WorkQueue
from gsaas.gpgpums.claims import Claims
from gsaas.gpgpums.plain_servers import PlainServers
from gsaas.grants.keyring import Keyring
from gsaas.notifications.cadf import SecurityEvent
from gsaas.objects.lifecycle import Status

LOG = logging.getLogger(__name__)

_SERVERS_PER_QUERY = 100
_FORGETTING_INTERVAL = 600.0
"""Seconds between two deletions of old readings."""
_IDLE_INTERVAL = 60.0
"""Seconds between two looks for idle leases; readings are no more frequent."""


class Engine:
    """One engine. However suddenly it stops, the next engine can continue with every lease.

    Without *keyring*, no grant can be redeemed. *audit* is called with each grant that is refused. Without
    *plain_servers*, servers that their owners make get no cGPUs.
    """

    def __init__(
        self,
        conf: cfg.ConfigOpts,
        *,
        database: Database,
        bus: rpc.Bus,
        reconciler: LeaseReconciler,
        claims: Claims,
        keyring: Keyring | None = None,
        audit: Callable[[SecurityEvent], None] = lambda _: None,
        plain_servers: PlainServers | None = None,
    ) -> None:
        self._conf = conf
        self._plain_servers = plain_servers
        self._database = database
        self._reconciler = reconciler
        self._claims = claims
        self._idle_leases = IdleLeases(conf, database, claims, reconciler.cloud)
        self._lease_ends = LeaseEnds(conf, database, claims)
        self._drains = Drains(database, claims)
        self._gpu_losses = GpuLosses(conf, database, claims)
        self._looked_for_idle_at: float | None = None
        """When idle leases were looked for last, as `time.monotonic` counts."""
        self._queue = WorkQueue()
        self._told: set[str] = set()
        """Leases of which a message to this engine said that something has changed."""
        self._stopping = threading.Event()
        self._forgot_at: float | None = None
        """When old readings were deleted last, as `time.monotonic` counts."""
        self._server = rpc.server(
            bus,
            rpc.ENGINE,
            socket.gethostname(),
            RpcEndpoint(
                database,
                reconciler.agents,
                self._tell,
                reconciler.callers,
                advance_queue=claims.queue.advance,
                keyring=keyring,
                audit=audit,
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
        self._nova_notifications = (
            nova_notifications.listener(conf, self._notified) if reconciler.cloud.notifies else None
        )

    def start(self) -> None:
        """Start to serve the message bus and to reconcile leases. Raises what the bus raises."""
        self._conf.set_default("executor_thread_pool_size", HANDLERS)
        self._server.start()
        if self._nova_notifications is not None:
            self._nova_notifications.start()
        for thread in self._threads:
            thread.start()

    def stop(self, timeout: float = 5.0) -> None:
        """Stop all threads; wait up to *timeout* seconds for steps that are being executed.

        A step that is interrupted is repeated by another engine, and others watch the leases that this one watched.
        """
        self._stopping.set()
        self._queue.close()
        self._server.stop()
        if self._nova_notifications is not None:
            self._nova_notifications.stop()
        deadline = time.monotonic() + timeout
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        # In a thread of its own: a database that does not answer must not keep the engine from its end.
        last = threading.Thread(target=self._end_watches, name="engine-stop", daemon=True)
        last.start()
        last.join(timeout)

    def _end_watches(self) -> None:
        try:
            self._database.change(
                lambda connection: leases.end_watches(connection, self._reconciler.engine)
            )
        except Exception as error:  # noqa: BLE001  (the watches end by themselves, only later)
            LOG.warning(
                "the leases that this engine watches could not be left to other engines: %s", error
            )

    def describe(self) -> dict[str, Any]:
        """Return what this engine does now, for a report."""
        processing, waiting = self._queue.describe()
        return {
            "name": self._reconciler.engine,
            "leases that are being reconciled": processing,
            "leases that wait, and for how many seconds": waiting,
            "database connections": self._database.engine.pool.status(),
        }

    def _work(self) -> None:
        """Reconcile the leases of the queue, one after the other, until the queue is closed."""
        while (lease_id := self._queue.get()) is not None:
            requeue_after = None
            try:
                requeue_after = self._reconciler.reconcile(lease_id, told=self._was_told(lease_id))
            except exceptions.NotFound:
                LOG.warning("lease %s does not exist, and cannot be reconciled", lease_id)
            except Exception:  # other leases must go on
                LOG.exception("lease %s stays as it is until it is tried again", lease_id)
                # The audit requeues no lease that is ACTIVE, and a change of its server is told once.
                requeue_after = self._conf.engine.audit_interval
            finally:
                self._queue.done(lease_id)
            if requeue_after is not None:
                self._queue.add(lease_id, after=requeue_after)

    def _audit(self) -> None:
        """Audit queue, leases and hosts, requeue leases with steps left, delete forgotten hosts, again and again."""
        while not self._stopping.is_set():
            try:
                ended = [*self._lease_ends.audit(), *self._claims.run_audit()]
                ended += self._audit_idle_leases()
                ended += [*self._drains.audit(), *self._gpu_losses.audit()]
                with self._database.read() as session:
                    found = [*ended, *leases.unsettled(session.connection())]
                    any_forgotten = hosts.has_forgotten(session)
                if any_forgotten:
                    self._remove_forgotten_hosts()
                self._forget_readings()
            except Exception:  # the database may be down for a while
                LOG.exception("the audit could not read the leases; the next one tries again")
            else:
                for lease_id in found:
                    self._queue.add(lease_id)
            self._stopping.wait(self._conf.engine.audit_interval)

    def _audit_idle_leases(self) -> list[str]:
        """Apply the operator's policy for idle leases, now and then; return the leases to reconcile."""
        now = time.monotonic()
        last = self._looked_for_idle_at
        if last is not None and now - last < _IDLE_INTERVAL:
            return []
        found = self._idle_leases.audit()
        self._looked_for_idle_at = now
        return found

    @retried
    def _remove_forgotten_hosts(self) -> None:
        with self._database.write() as session:
            hosts.delete_forgotten(session)

    def _forget_readings(self) -> None:
        """Delete readings of more than a day ago, now and then, in small transactions. Any engine may do it."""
        if (
            self._forgot_at is not None
            and time.monotonic() - self._forgot_at < _FORGETTING_INTERVAL
        ):
            return
        while not self._stopping.is_set() and self._forget_some_readings():
            pass
        self._forgot_at = time.monotonic()

    def _forget_some_readings(self) -> bool:
        return self._database.change(
            lambda connection: readings.forget_some(connection, clock.now(connection))
        )

    def _watch_servers(self) -> None:
        """Requeue the leases whose servers were changed or deleted in the cloud, as often as configured."""
        since = None
        cloud_clock = CloudClock(timeutils.utcnow(), time.monotonic())
        while not self._stopping.is_set():
            # A change during the query is found by the next one.
            began, own_time = time.monotonic(), timeutils.utcnow()
            try:
                found = self._reconciler.cloud.server_changes(since)
                changes = None if found is None else list(found)
                for at in {change.at for change in changes or () if change.at is not None}:
                    cloud_clock.has_reached(at, time.monotonic())
                if changes is None or since is None:
                    self._requeue_moved()
                    self._requeue_failed()
                self._equip(changes or ())
                self._delete_second_servers(changes or ())
                for lease_id in self._leases_of(changes or ()):
                    self._queue.add(lease_id)
            except exceptions.CloudUnavailable as error:
                LOG.warning("the changes of servers cannot be read now: %s", error)
            except Exception:
                LOG.exception("the changes of servers could not be read; this is tried again")
            else:
                # A clock of the cloud that was ahead of the others, and was set right, does not matter for ever.
                since = min(cloud_clock.at_least(began), own_time)
            self._stopping.wait(
                max(self._conf.engine.audit_interval, self._reconciler.cloud.audit_interval)
            )

    def _requeue_moved(self) -> None:
        """Requeue each ACTIVE lease whose server is not on the recorded host; all, if the cloud does not list hosts."""
        hosts_by_server = self._reconciler.cloud.server_hosts()
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

    def _requeue_failed(self) -> None:
        """Requeue each lease in ERROR that ends when its plain server does: that may have been deleted meanwhile."""
        with self._database.reading() as connection:
            found = leases.failed_of_plain_servers(connection)
        for lease_id in found:
            self._queue.add(lease_id)

    def _tell(self, lease_id: str) -> None:
        """Reconcile a lease of which a message to this engine, and to no other, says that something has changed."""
        self._told.add(lease_id)
        self._queue.add(lease_id)

    def _was_told(self, lease_id: str) -> bool:
        """Return whether a message is the reason to reconcile a lease now; a message is the reason once."""
        try:
            # In one operation: a message that comes between two would be lost.
            self._told.remove(lease_id)
        except KeyError:
            return False
        return True

    def _notified(self, changes: Iterable[ServerChange]) -> None:
        """Reconcile the leases whose servers have changed, as a notification to this engine says."""
        changes = list(changes)
        try:
            self._equip(changes)
        except exceptions.CloudUnavailable as error:
            LOG.warning(
                "whether servers ask for cGPUs could not be read; Nova is asked again later: %s",
                error,
            )
        try:
            self._delete_second_servers(changes)
        except exceptions.CloudUnavailable as error:
            LOG.warning("second servers of leases, if any, are left: %s", error)
        for lease_id in self._leases_of(changes):
            self._tell(lease_id)

    def _delete_second_servers(self, changes: Sequence[ServerChange]) -> None:
        for batch in _batches(changes):
            second_servers.delete(self._database, self._reconciler.cloud, batch)

    def _equip(self, changes: Iterable[ServerChange]) -> None:
        """Have cGPUs claimed for those of these servers that ask for some; a refusal is logged.

        Raises `CloudUnavailable` after the last one, if the cloud did not answer for one of them.
        """
        if self._plain_servers is None:
            return
        failure: exceptions.CloudUnavailable | None = None
        for change in changes:
            if not change.asks or change.lease_id is not None:
                continue
            try:
                self._plain_servers.equip(change.server_id)
            except exceptions.CloudUnavailable as error:
                failure = error
            except exceptions.GsaasError as error:
                LOG.info("server %s gets no cGPUs: %s", change.server_id, error)
            except db_exception.DBConnectionError:
                raise
            except Exception:  # others must go on
                LOG.exception(
                    "server %s could not be examined for cGPUs that it asks for", change.server_id
                )
        if failure is not None:
            raise failure

    def _leases_of(self, changes: Iterable[ServerChange]) -> Iterator[str]:
        """Yield the leases that these servers belong to; servers of no lease are ignored."""
        for batch in _batches(list(changes)):
            lease_ids = {change.lease_id for change in batch if change.lease_id is not None}
            server_ids = {change.server_id for change in batch}
            with self._database.reading() as connection:
                found = leases.ids_of(connection, lease_ids, server_ids)
            yield from found


def _batches(changes: Sequence[ServerChange]) -> Iterator[Sequence[ServerChange]]:
    for start in range(0, len(changes), _SERVERS_PER_QUERY):
        yield changes[start : start + _SERVERS_PER_QUERY]
