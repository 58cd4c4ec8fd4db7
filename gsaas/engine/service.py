"""The engine as it runs: workers, the audit and the inbox, started and stopped together."""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Iterable

from oslo_config import cfg
from oslo_utils import timeutils

from gsaas import exceptions, rpc
from gsaas.cloud.base import Trace
from gsaas.db import hosts, leases
from gsaas.db.database import Database, retried
from gsaas.engine import notifications
from gsaas.engine.driver import LeaseDriver
from gsaas.engine.rpc_endpoint import RpcEndpoint
from gsaas.engine.workqueue import WorkQueue
from gsaas.gpgpums.claims import Claims
from gsaas.grants.keyring import Keyring
from gsaas.objects.lifecycle import Status
from gsaas.rpc.monitor import MonitorClient
from gsaas.rpc.rodvr import EndpointClient

LOG = logging.getLogger(__name__)

_AT_ONCE = 100
"""Servers that one query asks about."""


class Engine:
    """One engine. Stopping it, however suddenly, leaves every lease where the next one takes it up."""

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
    ) -> None:
        self._conf = conf
        self._database = database
        self._driver = driver
        self._claims = claims
        self._worklist = WorkQueue()
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
                self._worklist.add,
                driver.callers,
                claims.queue.advance,
                keyring,
            ),
        )
        self._threads = [
            threading.Thread(target=self._work, name=f"engine-worker-{number}", daemon=True)
            for number in range(conf.engine.workers)
        ]
        self._threads += [
            threading.Thread(target=self._audit, name="engine-audit", daemon=True),
            threading.Thread(target=self._watch, name="engine-watch", daemon=True),
        ]
        self._notifications = (
            notifications.listener(conf, self._heard) if driver.cloud.notifies else None
        )

    def start(self) -> None:
        self._server.start()
        if self._notifications is not None:
            self._notifications.start()
        for thread in self._threads:
            thread.start()

    def stop(self, patience: float = 5.0) -> None:
        """Take no more steps. A step under way has *patience* seconds to end, or is
        taken again later."""
        self._stopping.set()
        self._worklist.close()
        self._server.stop()
        if self._notifications is not None:
            self._notifications.stop()
        deadline = time.monotonic() + patience
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    def _work(self) -> None:
        while (lease_id := self._worklist.take()) is not None:
            again = None
            try:
                again = self._driver.drive(lease_id)
            except exceptions.NotFound:
                LOG.warning("there is no lease %s to look at", lease_id)
            except (
                Exception
            ):  # whatever it is, the other leases go on; the audit comes back to this one
                LOG.exception("lease %s stays where it is until the next audit", lease_id)
            finally:
                self._worklist.done(lease_id)
            if again is not None:
                self._worklist.add(lease_id, after=again)

    def _audit(self) -> None:
        """Look at the queue, at every lease that is under way, and at hosts that are gone for good."""
        while not self._stopping.is_set():
            try:
                deserted = self._claims.run_audit()
                with self._database.read() as session:
                    found = [*deserted, *leases.unsettled(session.connection())]
                    forgotten = hosts.has_forgotten(session)
                if forgotten:
                    self._bury()
            except Exception:  # a database that is away comes back
                LOG.exception("the audit could not read the leases; the next one tries again")
            else:
                for lease_id in found:
                    self._worklist.add(lease_id)
            self._stopping.wait(self._conf.engine.audit_interval)

    @retried
    def _bury(self) -> None:
        with self._database.write() as session:
            hosts.delete_forgotten(session)

    def _watch(self) -> None:
        """Look at the leases whose servers changed, or may be gone, behind our back."""
        since = None
        while not self._stopping.is_set():
            began = timeutils.utcnow()
            try:
                traces = self._driver.cloud.changed(since)
                if traces is None or since is None:
                    self._wake_active()
                self._heard(traces or ())
            except exceptions.CloudUnavailable as error:
                LOG.warning("what happened to servers is not known yet: %s", error)
            except Exception:
                LOG.exception("the watch over servers failed; it is tried again")
            else:
                since = began
            self._stopping.wait(
                max(self._conf.engine.audit_interval, self._driver.cloud.audit_interval)
            )

    def _wake_active(self) -> None:
        """Look at each lease whose server is not where it was; at all, if the cloud cannot say where they are."""
        placed = self._driver.cloud.placed()
        with self._database.reading() as connection:
            known = leases.servers(connection, Status.ACTIVE)
        for lease_id, server_id, host in known:
            if placed is None or placed.get(server_id) != host:
                self._worklist.add(lease_id)

    def _heard(self, traces: Iterable[Trace]) -> None:
        """Look at the leases that *traces* lead to, if there are such leases."""
        traces = list(traces)
        for start in range(0, len(traces), _AT_ONCE):
            some = traces[start : start + _AT_ONCE]
            claimed = {trace.lease_id for trace in some if trace.lease_id is not None}
            with self._database.reading() as connection:
                found = leases.ids_of(connection, claimed, {trace.server_id for trace in some})
            for lease_id in found:
                self._worklist.add(lease_id)
