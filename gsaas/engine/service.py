"""The engine as it runs: workers, the audit and the inbox, started and stopped together."""

from __future__ import annotations

import logging
import socket
import threading
import time

from oslo_config import cfg

from gsaas import exceptions, rpc
from gsaas.db import leases
from gsaas.db.database import Database
from gsaas.engine.driver import LeaseDriver
from gsaas.engine.inbox import Inbox
from gsaas.engine.worklist import Worklist
from gsaas.lifecycle import Status
from gsaas.rpc.rodvr import EndpointClient

LOG = logging.getLogger(__name__)


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
    ) -> None:
        self._conf = conf
        self._database = database
        self._driver = driver
        self._worklist = Worklist()
        self._stopping = threading.Event()
        self._server = rpc.server(
            bus,
            rpc.ENGINE,
            socket.gethostname(),
            Inbox(database, endpoint, self._worklist.add),
        )
        self._threads = [
            threading.Thread(target=self._work, name=f"engine-worker-{number}", daemon=True)
            for number in range(conf.engine.workers)
        ]
        self._threads.append(threading.Thread(target=self._audit, name="engine-audit", daemon=True))

    def start(self) -> None:
        self._server.start()
        for thread in self._threads:
            thread.start()

    def stop(self, patience: float = 5.0) -> None:
        """Take no more steps. A step under way has *patience* seconds to end, or is
        taken again later."""
        self._stopping.set()
        self._worklist.close()
        self._server.stop()
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
        """Look at every lease that is under way, and at the active ones, whose servers may be gone."""
        while not self._stopping.is_set():
            try:
                with self._database.read() as session:
                    found = leases.unsettled(session)
                    found += leases.ids(session, Status.ACTIVE)
            except Exception:  # a database that is away comes back
                LOG.exception("the audit could not read the leases; the next one tries again")
            else:
                for lease_id in found:
                    self._worklist.add(lease_id)
            self._stopping.wait(self._conf.engine.audit_interval)
