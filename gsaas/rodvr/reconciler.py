# SPDX-License-Identifier: Apache-2.0
"""Makes the kernel equal to the desired bindings: all of them, or a single one, which is faster.

A single binding is planned against the state that was read last. If the kernel refuses that plan, that state
is out of date, and everything is read and compared.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Set

from gsaas.objects.binding import LocalBinding
from gsaas.rodvr import plan
from gsaas.rodvr.executor import PlanExecutor
from gsaas.rodvr.identities import NoIdentityLeft
from gsaas.rodvr.installations import Installations
from gsaas.rodvr.kernel import DatapathSnapshot
from gsaas.rodvr.local_bindings import LocalBindings
from gsaas.rodvr.port_bindings import PortBindings
from gsaas.rodvr.problems import Problems
from gsaas.rodvr.real_addresses import RealAddresses
from gsaas.rodvr.session import KernelSession

LOG = logging.getLogger(__name__)


class Reconciler:
    """Reconciles the kernel of one host. Used with the endpoint's lock acquired.

    What the kernel refuses becomes a problem, except where a method says otherwise. *audit_interval* is
    the time in seconds between two audits.
    """

    def __init__(
        self,
        host: str,
        gpu_device: str,
        session: KernelSession,
        executor: PlanExecutor,
        ports: PortBindings,
        local: LocalBindings,
        problems: Problems,
        installations: Installations,
        real_addresses: RealAddresses,
        audit_interval: float,
    ) -> None:
        self._host = host
        self._gpu_device = gpu_device
        self._session = session
        self._executor = executor
        self._ports = ports
        self._local = local
        self._problems = problems
        self._installations = installations
        self._real_addresses = real_addresses
        self._audit_interval = audit_interval
        self.audit_at = 0.0
        """When the next audit is due, as `time.monotonic` counts."""
        self._strays_possible = True
        """The tables were missing, maybe before this process, and strays have not been forgotten since."""

    # -- everything ---------------------------------------------------------------------------------

    def schedule_audit(self) -> None:
        """Have the next audit one interval from now."""
        self.audit_at = time.monotonic() + self._audit_interval

    def next_deadline(self) -> float:
        """Return when something is to be done even without an event, as `time.monotonic` counts."""
        deadlines = [self.audit_at, self._problems.retry_at]
        if self._executor.synced:  # else the chains whose grace is over cannot be removed now
            deadlines += self._ports.grace_deadlines()
        return min(deadlines)

    def reconcile(self, *, connections: bool = False) -> None:
        """Read the kernel, plan, execute, read again. All problems are found anew.

        With *connections*, also cut connections that no mapping leads where they go.
        """
        self._installations.start_timing()
        self.schedule_audit()
        self._problems.clear()
        # Until the kernel was read. If that fails, `synced` stays False, and every later call reconciles.
        self._executor.invalidate()
        datapath = self._session.datapath
        try:
            matching = datapath.prepare()
            self._learn_addresses()
            found = datapath.read()
            self._executor.load(found.state)
            intact = matching and found.intact
            self._strays_possible |= not intact
            attachments, keep = self._ports.plan_all(found.state, datapath.index)
            base = found.state if intact else plan.DatapathState()
            change = plan.reconcile(base, attachments, keep=keep)
            change.extend(self._local.plan_all(base))
            if change.operations or not intact:
                self._execute_all(change, base, attachments, keep, rebuild=not intact)
                self._executor.load(datapath.read().state)
            self._ports.record_installed(self._executor.state, attachments)
            self._local.record_installed(self._executor.state)
            if connections:
                self._cut_stale_connections()
            self._executor.cut()
            self._release_identities()
            self._find_obstacles()
            if self._strays_possible:
                datapath.forget_strays()
                self._strays_possible = False
        except OSError as error:
            LOG.warning("the datapath of %s: %s", self._host, error)
            self._problems.add("datapath", f"the datapath is not as it should be: {error}")
        if self._session.watch is not None and not datapath.protected:
            # Other programs can change these tables, so their changes have to be noticed.
            self._session.watch.watch_tables()

    def verify(self, found: DatapathSnapshot) -> None:
        """Reconcile, unless *found*, which was just read, is what it should be."""
        datapath = self._session.datapath
        self._learn_addresses()
        attachments, keep = self._ports.plan_all(self._executor.state, datapath.index)
        differs = (
            plan.reconcile(found.state, attachments, keep=keep).operations
            or self._local.plan_all(found.state).operations
        )
        if not differs and found.intact and datapath.prepare():
            self._find_obstacles()
        else:
            self.reconcile()

    def _execute_all(
        self,
        change: plan.Plan,
        base: plan.DatapathState,
        attachments: Mapping[str, plan.Attachment],
        keep: Set[str],
        *,
        rebuild: bool,
    ) -> None:
        """Execute *change* in one transaction if possible; tap by tap if something in it is refused."""
        try:
            self._executor.execute(change, rebuild=rebuild)
            return
        except (OSError, ValueError) as error:
            LOG.warning("%s: %s; trying each tap by itself", self._host, error)
        if rebuild:
            self._executor.execute(plan.Plan(), rebuild=True)
        # Removals first: they free identities and return paths that additions may need.
        present = attachments.keys() & base.chains.keys()
        self._executor.execute(plan.reconcile(self._executor.state, {}, keep=keep | present))
        for tap, attachment in attachments.items():
            try:
                self._executor.execute(plan.attach(self._executor.state, tap, attachment))
            except (OSError, ValueError) as error:
                port_id = attachment.tag.port_id
                self._problems.add(f"port {port_id}", f"port {port_id} on tap {tap}: {error}")
        try:
            self._executor.execute(self._local.plan_all(self._executor.state))
        except (OSError, ValueError) as error:
            self._problems.add("local", f"leases of this host's own programs: {error}")

    def _learn_addresses(self) -> None:
        routes = self._real_addresses.needs_routes
        self._real_addresses.learn(self._session.datapath.host_addresses(routes=routes))

    def _cut_stale_connections(self) -> None:
        datapath, state = self._session.datapath, self._executor.state
        self._executor.cut(plan.stale_connections(datapath.connections(), state))
        local = datapath.local_connections()
        self._executor.cut(plan.stale_local_connections(local, state))

    def _find_obstacles(self) -> None:
        obstacles = self._session.datapath.obstacles()
        if self._session.datapath.index(self._gpu_device) is None:
            obstacles.append(
                f"there is no interface {self._gpu_device} (option gpu_device); no VM of this host "
                "reaches its GPUs"
            )
        self._problems.set_obstacles(obstacles)

    # -- one VM port --------------------------------------------------------------------------------

    def install_port(self, port_id: str) -> None:
        """Make the tap of a desired port what it should be."""
        self._installations.start_timing()
        if not self._executor.synced or not self._ports.owns_its_tap(port_id):
            self.reconcile()
            return
        try:
            state, datapath = self._executor.state, self._session.datapath
            change, installed = self._ports.plan_port(port_id, state, datapath.index)
            self._executor.execute(change)
        except (OSError, ValueError, NoIdentityLeft):
            # This becomes a problem only if it fails again with the state that is read now.
            self.reconcile()
        else:
            self._problems.resolve(f"port {port_id}")
            self._installations.record(port_id, installed)

    def start_grace(self, port_id: str) -> None:
        """Remove the mappings of a port that is not desired; its chains go after the grace period."""
        for tap, tag in self._ports.start_grace(port_id, self._executor.state):
            try:
                empty = plan.attach(self._executor.state, tap, plan.Attachment(tag))
                self._executor.execute(empty)
            except OSError:
                self.reconcile()
        self._session.wake()  # the thread has a new deadline

    def end_graces(self) -> None:
        """Remove the chains whose grace period is over."""
        try:
            for tap in self._ports.expired_taps():
                self._executor.execute(plan.detach(self._executor.state, tap))
                self._ports.end_grace(tap)
            if self._executor.synced:
                self._release_identities()
        except OSError:
            self.reconcile()

    def _release_identities(self) -> None:
        datapath = self._session.datapath
        for port_id, identity in self._ports.unused_identities(self._executor.state):
            # A connection may have been under way while the first cut was made.
            datapath.cut([plan.Cut(identity)], silently=True)
            datapath.reset_unmapped(identity)
            self._ports.identities.release(port_id)

    # -- one local binding --------------------------------------------------------------------------

    def replace_local(self, former: LocalBinding | None, desired: LocalBinding | None) -> None:
        """Put *desired* into the place of *former*; None stands for no binding."""
        if not self._executor.synced:
            self.reconcile()
            return
        try:
            self._executor.execute(self._local.plan_one(self._executor.state, former, desired))
        except (OSError, ValueError):
            self.reconcile()
