# SPDX-License-Identifier: Apache-2.0
"""The thread of an endpoint: waits for events and deadlines, and has the kernel reconciled when they come."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from gsaas.rodvr.executor import PlanExecutor
from gsaas.rodvr.kernel import Events
from gsaas.rodvr.port_bindings import PortBindings
from gsaas.rodvr.problems import Problems
from gsaas.rodvr.reconciler import Reconciler
from gsaas.rodvr.session import KernelSession

LOG = logging.getLogger(__name__)


class EventLoop:
    """One thread, from `start` to `stop`. It acquires *lock*, the endpoint's, for all that it does.

    *announce* is called without the lock after every iteration.
    """

    def __init__(
        self,
        host: str,
        lock: threading.RLock,
        session: KernelSession,
        executor: PlanExecutor,
        ports: PortBindings,
        problems: Problems,
        reconciler: Reconciler,
        announce: Callable[[], None],
    ) -> None:
        self._host = host
        self._lock = lock
        self._session = session
        self._executor = executor
        self._ports = ports
        self._problems = problems
        self._reconciler = reconciler
        self._announce = announce
        self._thread: threading.Thread | None = None
        self._stopping = False

    @property
    def running(self) -> bool:
        """Whether it was started and not stopped since."""
        return self._thread is not None

    def start(self) -> None:
        """Start the thread. The session is open."""
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name=f"rodvr-{self._host}", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread and wait until it has ended. The caller does not have the lock."""
        with self._lock:
            thread, self._thread = self._thread, None
            self._stopping = True
            self._session.wake()
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def _run(self) -> None:
        while True:
            with self._lock:
                watch = self._session.watch
                if self._stopping or watch is None:
                    return
                deadline = self._reconciler.next_deadline()
            events = watch.wait(deadline - time.monotonic())
            if self._stopping:  # `stop` waits for this thread; do not begin anything long
                return
            try:
                with self._lock:
                    self._react(events)
                if time.monotonic() >= self._reconciler.audit_at:
                    self._audit()
            except Exception as error:  # a defect must not end the thread
                LOG.exception("the endpoint of %s failed unexpectedly", self._host)
                with self._lock:
                    self._problems.add("endpoint", f"the endpoint failed unexpectedly: {error!r}")
            self._announce()

    def _react(self, events: Events) -> None:
        datapath = self._session.datapath
        changed_by_others = events.tables - {datapath.port_id}
        names = set(events.links.values())
        retry = time.monotonic() >= self._problems.retry_at
        if retry or events.overrun or changed_by_others or names & datapath.own_links:
            self._reconciler.reconcile()
            return
        self._reconciler.end_graces()
        # An event about a renamed tap has its new name only; its index identifies the chain that it had.
        renamed = {
            tap
            for tap, tag in self._executor.state.chains.items()
            if tag is not None and tag.ifindex in events.links
        }
        for tap in sorted(renamed | names):
            port_id = self._ports.owner(tap)
            if port_id is not None:
                self._reconciler.install_port(port_id)
            elif self._ports.in_grace(tap) and datapath.index(tap) is None:
                self._reconciler.reconcile()

    def _audit(self) -> None:
        """Compare the kernel with what it should contain, and reconcile if it differs.

        The tables are read without the lock: that takes a second per hundred thousand mappings, and a
        VM may be booting meanwhile.
        """
        with self._lock:
            self._reconciler.schedule_audit()
            datapath, changes = self._session.datapath, self._executor.changes
            if not self._executor.synced or self._problems or self._executor.pending_cuts:
                self._reconciler.reconcile()
                return
        found = datapath.read()
        with self._lock:
            # What was read before a change is outdated; the change itself has left the kernel as desired.
            if not self._stopping and changes == self._executor.changes:
                self._reconciler.verify(found)
