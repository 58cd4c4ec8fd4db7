# SPDX-License-Identifier: Apache-2.0
"""The RODVR endpoint of one host: keeps the kernel equal to the desired bindings.

Its rules:

1. Read the kernel, plan, execute, read again: at start, periodically, and when links change or another
   program changes the tables. A single binding is planned against the state read last; if the kernel disagrees,
   everything is read again.
2. What cannot be done now stays desired, is reported as a problem, and is tried again after a pause.
3. Until `replace` has named all desired bindings, unknown ones are not removed: a binding that a former
   process installed may serve a running job.
4. A binding that is removed loses its mappings and connections at once. Its chain stays for a grace
   period, so that the VM's programs get a reset and do not hang (`port_bindings`).
5. A mapping leads into the GPU network, and to no other address of this host (`real_addresses`). A binding with any
   other mapping is not installed, and is a problem.
6. Programs of the host itself have no tap and no chain: their bindings are map elements and nothing
   else, in the kernel as soon as they are desired (`local_bindings`).

This module knows neither how a binding arrives (by RPC, or from a test) nor netlink.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace

from gsaas.objects.address import Address
from gsaas.objects.binding import Binding, LocalBinding
from gsaas.objects.endpoint_audit import EndpointAudit
from gsaas.objects.endpoint_report import ConntrackLevel, EndpointReport, Traffic
from gsaas.objects.gpu_network import GpuNetwork
from gsaas.objects.refusals import Refusals
from gsaas.rodvr import plan
from gsaas.rodvr.config import DatapathConfig, Periods
from gsaas.rodvr.differences import TABLES, differences
from gsaas.rodvr.identities import NoIdentityLeft
from gsaas.rodvr.installations import Installations
from gsaas.rodvr.kernel import Datapath, DatapathSnapshot, Events, Kernel
from gsaas.rodvr.local_bindings import LocalBindings, is_in
from gsaas.rodvr.port_bindings import PortBindings, Wanted
from gsaas.rodvr.problems import Problems
from gsaas.rodvr.real_addresses import RealAddresses
from gsaas.rodvr.recent_refusals import RecentRefusals, RefusalCounts

LOG = logging.getLogger(__name__)

_MOST_SAMPLES = 8
_MASKED_PORT = 8308
"""Stands for any port of a masked address."""
_MOST_TOLD = 5
"""Leases whose refusals a report names among its problems."""


class NotRemoved(Exception):
    """The kernel refused to remove a binding: its VM or its programs may still reach their daemons."""


def _ignore(port_id: str) -> None:
    """Do nothing: the default for callers that read reports instead."""


class Endpoint:
    """The endpoint of one host. All methods may be called from any thread.

    A binding that leads out of *gpu_network*, or to this host's own addresses, is a problem and is not installed.
    *on_installed* is called with the port id of every binding that becomes installed other than by the
    call that is under way: its tap appeared, or another try succeeded.
    """

    def __init__(
        self,
        host: str,
        config: DatapathConfig,
        *,
        gpu_network: GpuNetwork = GpuNetwork(),  # noqa: B008  (immutable)
        periods: Periods = Periods(),  # noqa: B008  (immutable)
        on_installed: Callable[[str], None] = _ignore,
    ) -> None:
        self.host = host
        self._config = config
        self._periods = periods
        self._on_installed = on_installed
        self._lock = threading.RLock()
        self._kernel = Kernel(host, config)
        self._real_addresses = RealAddresses(config.gpu_device, gpu_network, config.networks)
        self._thread: threading.Thread | None = None
        self._stopping = False
        self._audit_at = 0.0
        """When the next audit is due, as `time.monotonic` counts."""
        self._forget_bindings()

    def _forget_bindings(self) -> None:
        networks, check = self._config.networks, self._real_addresses.check
        self._ports = PortBindings(networks.identities, self._periods.grace, check)
        self._local = LocalBindings(networks.local, check)
        self._problems = Problems(self._periods.retry, self._kernel.wake)
        self._installations = Installations()
        self._refusals = RecentRefusals(time.monotonic())

    # -- life cycle ---------------------------------------------------------------------------------

    def start(self) -> None:
        """Take over what the kernel contains and begin to watch it.

        Raises `RuntimeError` if it is running, and `OSError` if the sockets cannot be opened; anything else
        that the kernel refuses becomes a problem.
        """
        with self._lock:
            if self._thread is not None:
                raise RuntimeError(f"the endpoint of {self.host} is running already")
            self._kernel.open()
            self._reconcile()
            self._installations.take_unannounced()  # found installed, not installed now
            self._stopping = False
            self._thread = threading.Thread(
                target=self._run, name=f"rodvr-{self.host}", daemon=True
            )
            self._thread.start()

    def stop(self) -> None:
        """End the thread and leave the kernel as it is: packets flow on."""
        with self._lock:
            thread, self._thread = self._thread, None
            self._stopping = True
            self._kernel.wake()
        if thread is not None and thread is not threading.current_thread():
            thread.join()
        with self._lock:
            self._kernel.close()

    def teardown(self) -> None:
        """Stop, remove everything of RODVR, whichever process made it, and forget all desired bindings.

        Raises `OSError` if the kernel refuses.
        """
        self.stop()
        with self._lock:
            self._kernel.teardown()
            self._forget_bindings()

    # -- desired bindings ---------------------------------------------------------------------------

    def replace(self, bindings: Iterable[Binding | LocalBinding]) -> EndpointReport:
        """Make *bindings* the desired bindings of this host; all others are removed.

        Returns the report on *bindings*.
        """
        bindings = list(bindings)
        with self._lock:
            self._ports.replace(one for one in bindings if isinstance(one, Binding))
            self._local.replace(one for one in bindings if isinstance(one, LocalBinding))
            port_ids = [binding.port_id for binding in bindings]
            self._installations.keep_only(port_ids)
            self._reconcile(connections=True)
            if self._kernel.synced:
                with suppress(OSError):  # the next report counts, too, and tells what is wrong
                    self._refusals.begin(self._count(self._kernel.datapath))
            report = self._report_installed(port_ids)
        self._announce()
        return report

    def apply(self, binding: Binding | LocalBinding) -> EndpointReport:
        """Install *binding* in the place of its port's former one: now, or when its tap appears.

        Returns the report on this port. Raises `ValueError` for a local binding with a masked address outside
        the local prefix.
        """
        if isinstance(binding, LocalBinding):
            self._local.validate(binding)
        with self._lock:
            if isinstance(binding, LocalBinding):
                self._apply_local(binding)
            elif self._ports.put(binding):
                self._install_port(binding.port_id)
            else:
                self._reconcile()
            report = self._report_installed((binding.port_id,))
        self._announce()
        return report

    def remove(self, port_id: str) -> EndpointReport:
        """Remove the binding of *port_id*: its mappings and connections are gone on return.

        A binding that does not exist is no error. Raises `NotRemoved` if the kernel refuses; it is tried
        again until it succeeds.
        """
        with self._lock:
            self._remove_local(port_id)
            self._remove_port(port_id)
            report = self._report(())
        self._announce()
        return report

    def report(self, *, traffic: bool = False) -> EndpointReport:
        """Return the report on all bindings and all problems, with what is counted: refused packets, connections.

        With *traffic*, it has the traffic of each VM, too.
        """
        with self._lock:
            report = self._report([*self._ports, *self._local], count=True)
            return replace(report, traffic=self._traffic()) if traffic else report

    def audit(self, *, repair: bool = False) -> EndpointAudit:
        """Return the desired bindings, and how the kernel differs from them; with *repair*, make it equal afterwards.

        Raises `OSError` if the kernel cannot be read.
        """
        with self._lock:
            if not self._kernel.synced:
                self._reconcile()
            found = self._kernel.datapath.read()
            wanted, change = self._compare(found)
            told = differences(change, found.state, wanted.attachments)
            told += () if found.intact else (TABLES,)
            if repair and told:
                self._reconcile(connections=True)
            return EndpointAudit((*self._ports.all(), *self._local.all()), told)

    def connections(self, port_id: str) -> int | None:
        """Return how many connections to daemons the VM or the programs of a binding have open now.

        None if the kernel does not tell; 0 for a binding that does not exist.
        """
        with self._lock:
            if not self._kernel.synced:
                return None
            datapath = self._kernel.datapath
            try:
                if (masked := self._local.masked_of(port_id)) is not None:
                    found = datapath.open_local_connections()
                    return sum(found.get(each, 0) for each in masked)
                counts = datapath.open_connections()
            except OSError as error:
                LOG.warning("connections of %s could not be counted: %s", port_id, error)
                return None
            return sum(counts.get(each, 0) for each in self._ports.identities.of_port(port_id))

    def _remove_port(self, port_id: str) -> None:
        if self._ports.discard(port_id):
            self._reconcile()
        self._installations.remove(port_id)
        self._problems.resolve(f"port {port_id}")
        identities = self._ports.identities.of_port(port_id)
        self._start_grace(port_id)
        if not self._kernel.are_cut_off(identities):
            self._reconcile()
        if not self._kernel.are_cut_off(identities):
            reasons = "; ".join(self._problems.texts())
            raise NotRemoved(f"port {port_id} may still be connected on {self.host}: {reasons}")

    def _apply_local(self, binding: LocalBinding) -> None:
        self._installations.start_timing()
        former = self._local.put(binding)
        self._replace_local(former, binding)
        installed = self._kernel.synced and is_in(self._kernel.state, binding)
        self._installations.record(binding.port_id, installed)

    def _remove_local(self, port_id: str) -> None:
        former = self._local.discard(port_id)
        if former is None:
            # A former process may have installed it, and nothing in the kernel says for which lease.
            self._remove_local_strays(port_id)
            return
        self._replace_local(former, None)
        if not self._kernel.is_local_cut_off(former):
            self._local.put(former)  # another call of `remove` tries again
            reasons = "; ".join(self._problems.texts())
            raise NotRemoved(f"lease {port_id} may still be connected on {self.host}: {reasons}")
        self._kernel.datapath.reset_unmapped_local({masked.ip for masked in former.mappings})

    def _remove_local_strays(self, port_id: str) -> None:
        if port_id in self._ports or self._ports.identities.of_port(port_id):
            return  # it is that of a VM
        if self._has_local_strays():
            self._reconcile()
        if self._has_local_strays():
            reasons = "; ".join(self._problems.texts())
            raise NotRemoved(f"lease {port_id} may still be connected on {self.host}: {reasons}")

    def _has_local_strays(self) -> bool:
        """Return whether programs of the host may reach a daemon by a binding that is not desired any more."""
        known = self._local.known_keys()
        return known is not None and self._kernel.has_local_strays(known)

    # -- reports ------------------------------------------------------------------------------------

    def _report_installed(self, port_ids: Iterable[str]) -> EndpointReport:
        """Return the report on *port_ids*; those that are installed need no further announcement."""
        port_ids = tuple(port_ids)
        self._installations.mark_announced(port_ids)
        return self._report(port_ids)

    def _report(self, port_ids: Iterable[str], *, count: bool = False) -> EndpointReport:
        port_ids = tuple(port_ids)
        counted: dict[str, RefusalCounts] = {}
        refusals: dict[str, Refusals] = {}
        level: ConntrackLevel | None = None
        datapath = self._kernel.datapath if self._kernel.synced else None
        if count and datapath is not None:
            try:
                level = datapath.conntrack_level()
                counted = self._count(datapath)
                refusals = self._recent_refusals(datapath, counted)
            except OSError as error:
                self._problems.add("counters", f"dropped packets could not be counted: {error}")
        seconds = self._installations.seconds
        bindings = self._ports.reports(port_ids, seconds, counted)
        bindings |= self._local.reports(port_ids, seconds, counted)
        address = datapath.gpu_address() if datapath is not None else None
        problems = (*self._problems.texts(), *self._tell(refusals))
        return EndpointReport(self.host, bindings, problems, address, level, refusals=refusals)

    def _count(self, datapath: Datapath) -> dict[str, RefusalCounts]:
        """Return what was refused to each desired binding, by port id."""
        dropped = {tap: counts.dropped for tap, counts in datapath.tap_counters().items()}
        local = datapath.unmapped_local() if self._local else {}
        return self._ports.refusals(datapath.unmapped(), dropped) | self._local.refusals(local)

    def _recent_refusals(
        self, datapath: Datapath, counted: dict[str, RefusalCounts]
    ) -> dict[str, Refusals]:
        now = time.monotonic()
        self._refusals.look(counted, now, host_is_sound=not self._problems.has_obstacles)
        found = self._refusals.reports({}, now)
        if not any(each.foreign for each in found.values()):
            return found
        strangers = self._ports.strangers(datapath.strangers(), self._kernel.state)
        return self._refusals.reports(strangers, now)

    def _tell(self, refusals: dict[str, Refusals]) -> list[str]:
        """Return problems for operators: those of a few bindings, and how many others have some."""
        told = [
            (self._ports if port_id in self._ports else self._local).told(port_id, each)
            for port_id, each in sorted(refusals.items())
        ]
        more = len(told) - _MOST_TOLD
        return told[:_MOST_TOLD] + ([f"and so for {more} more leases"] if more > 0 else [])

    def _traffic(self) -> dict[str, Traffic]:
        """Return the traffic of the installed bindings of VMs; none of it if the kernel refuses to tell."""
        if not self._kernel.synced:
            return {}
        datapath = self._kernel.datapath
        try:
            sent = {tap: counts.sent_bytes for tap, counts in datapath.tap_counters().items()}
            return self._ports.traffic(sent, datapath.received(), datapath.open_connections())
        except OSError as error:
            self._problems.add("traffic", f"the traffic of VMs could not be counted: {error}")
            return {}

    def _announce(self) -> None:
        """Call `on_installed`. Without the lock: the listener may call this endpoint."""
        with self._lock:
            port_ids = self._installations.take_unannounced()
        for port_id in port_ids:
            try:
                self._on_installed(port_id)
            except Exception:  # the next report contains the same information
                LOG.exception(
                    "the installed binding of port %s could not be announced on %s",
                    port_id,
                    self.host,
                )

    # -- the kernel, all of it ----------------------------------------------------------------------

    def _reconcile(self, *, connections: bool = False) -> None:
        """Read the kernel, plan, execute, read again. All problems are found anew, and nothing is raised.

        With *connections*, also cut connections that no mapping leads where they go.
        """
        kernel = self._kernel
        self._installations.start_timing()
        self._schedule_audit()
        self._problems.clear()
        # Until the kernel was read. If that fails, every later call reads it.
        kernel.invalidate()
        try:
            self._learn_addresses()
            kernel.refresh()
            wanted = self._plan_all()
            for key, text in kernel.converge(wanted, self._local.plan_all).items():
                self._problems.add(key, text)
            self._installations.record_all(
                self._ports.installed(kernel.state, wanted.attachments)
                | self._local.installed(kernel.state)
            )
            if connections:
                kernel.cut_stale()
            kernel.cut()
            self._release_identities()
            self._find_obstacles()
            kernel.forget_strays()
        except OSError as error:
            LOG.warning("the datapath of %s: %s", self.host, error)
            self._problems.add("datapath", f"the datapath could not be set up: {error}")
        self._note_cuts()
        kernel.watch_tables()

    def _plan_all(self) -> Wanted:
        """Return what every tap's chain has to be; bindings that are refused become problems."""
        kernel = self._kernel
        wanted = self._ports.plan_all(kernel.state, kernel.datapath.index, time.monotonic())
        for port_id, text in (wanted.refused | self._local.refused()).items():
            self._problems.add(f"port {port_id}", text)
        return wanted

    def _learn_addresses(self) -> None:
        routes = self._real_addresses.needs_routes
        self._real_addresses.learn(self._kernel.datapath.host_addresses(routes=routes))

    def _find_obstacles(self) -> None:
        datapath = self._kernel.datapath
        obstacles = datapath.obstacles(self._samples())
        if datapath.index(datapath.gpu_device) is None:
            obstacles.append(
                f"there is no interface {datapath.gpu_device} (option gpu_device); no VM of this host "
                "reaches its GPUs"
            )
        self._problems.set_obstacles(obstacles)

    def _samples(self) -> list[tuple[str, Address, Address | None]]:
        """Return connections that stand for all: one to each of a few hosts, or one that may go anywhere."""
        own = self._kernel.datapath.gpu_address()
        found: dict[str, tuple[str, Address, Address | None]] = {}
        for identity, mappings in self._kernel.state.mappings.items():
            for masked, real in mappings.items():
                # What goes to a daemon of this host is not forwarded.
                if len(found) < _MOST_SAMPLES and real.ip != own:
                    found.setdefault(real.ip, (identity, masked, real))
        networks = self._config.networks
        anyone = str(networks.identities.network_address + 1)
        anything = Address(str(networks.masked.network_address + 1), _MASKED_PORT)
        return list(found.values()) or [(anyone, anything, None)]

    # -- the kernel, a part of it -------------------------------------------------------------------

    def _install_port(self, port_id: str) -> None:
        """Make the tap of a desired port what it should be."""
        self._installations.start_timing()
        kernel = self._kernel
        if not kernel.synced or not self._ports.owns_its_tap(port_id):
            self._reconcile()
            return
        try:
            change, installed = self._ports.plan_port(port_id, kernel.state, kernel.datapath.index)
            self._execute(change)
        except (OSError, ValueError, NoIdentityLeft):
            # This becomes a problem only if it fails again with the state that is read now.
            self._reconcile()
        else:
            self._problems.resolve(f"port {port_id}")
            self._installations.record(port_id, installed)

    def _start_grace(self, port_id: str) -> None:
        """Remove the mappings of a port that is not desired; its chains go after the grace period."""
        for tap, tag in self._ports.start_grace(port_id, self._kernel.state, time.monotonic()):
            try:
                state = self._kernel.state
                self._execute(plan.attach(state, tap, plan.unmapped_attachment(state, tag)))
            except OSError:
                self._reconcile()
        self._kernel.wake()  # the thread has a new deadline

    def _end_graces(self) -> None:
        """Remove the chains whose grace period is over."""
        try:
            for tap in self._ports.expired_taps(time.monotonic()):
                self._execute(plan.detach(self._kernel.state, tap))
                self._ports.end_grace(tap)
            if self._kernel.synced:
                self._release_identities()
        except OSError:
            self._reconcile()

    def _release_identities(self) -> None:
        datapath = self._kernel.datapath
        for identity, holder in self._ports.unused_identities(self._kernel.state):
            # A connection may have been under way while the first cut was made.
            datapath.cut([plan.Cut(identity)], silently=True)
            datapath.reset_unmapped(identity)
            self._ports.identities.release(*holder)

    def _replace_local(self, former: LocalBinding | None, desired: LocalBinding | None) -> None:
        """Put *desired* into the place of *former*; None stands for no binding."""
        if not self._kernel.synced:
            self._reconcile()
            return
        try:
            self._execute(self._local.plan_one(self._kernel.state, former, desired))
        except (OSError, ValueError):
            self._reconcile()

    def _execute(self, change: plan.Plan) -> None:
        """Execute *change*, and report connections that cannot be cut; raises what `Kernel.execute` raises."""
        self._kernel.execute(change)
        self._note_cuts()

    def _note_cuts(self) -> None:
        refusal = self._kernel.cut_refusal
        if refusal is None:
            self._problems.resolve("connections")
        else:
            self._problems.add("connections", f"connections could not be cut: {refusal}")

    # -- the thread: events and deadlines -----------------------------------------------------------

    def _run(self) -> None:
        while True:
            with self._lock:
                watch = self._kernel.watch
                if self._stopping or watch is None:
                    return
                deadline = self._next_deadline()
            events = watch.wait(deadline - time.monotonic())
            if self._stopping:  # `stop` waits for this thread; do not begin anything long
                return
            try:
                with self._lock:
                    self._react(events)
                if time.monotonic() >= self._audit_at:
                    self._audit()
            except Exception as error:  # a defect must not end the thread
                LOG.exception("the endpoint of %s failed unexpectedly", self.host)
                with self._lock:
                    self._problems.add("endpoint", f"the endpoint failed unexpectedly: {error!r}")
            self._announce()

    def _next_deadline(self) -> float:
        """Return when something is to be done even without an event, as `time.monotonic` counts."""
        deadlines = [self._audit_at, self._problems.retry_at]
        if self._kernel.synced:  # else the chains whose grace is over cannot be removed now
            deadlines += self._ports.grace_deadlines()
        return min(deadlines)

    def _react(self, events: Events) -> None:
        datapath = self._kernel.datapath
        changed_by_others = events.tables - {datapath.port_id}
        names = set(events.links.values())
        retry = time.monotonic() >= self._problems.retry_at
        if retry or events.overrun or changed_by_others or names & datapath.own_links:
            self._reconcile()
            return
        self._end_graces()
        # An event about a renamed tap has its new name only; its index identifies the chain that it had.
        renamed = {
            tap
            for tap, tag in self._kernel.state.chains.items()
            if tag is not None and tag.ifindex in events.links
        }
        for tap in sorted(renamed | names):
            port_id = self._ports.owner(tap)
            if port_id is not None:
                self._install_port(port_id)
            elif self._ports.in_grace(tap) and datapath.index(tap) is None:
                self._reconcile()

    def _schedule_audit(self) -> None:
        self._audit_at = time.monotonic() + self._periods.audit

    def _audit(self) -> None:
        """Compare the kernel with what it should contain, and reconcile if it differs.

        The tables are read without the lock: that takes a second per hundred thousand mappings, and a
        VM may be booting meanwhile.
        """
        with self._lock:
            self._schedule_audit()
            datapath, changes = self._kernel.datapath, self._kernel.changes
            if not self._kernel.synced or self._problems or self._kernel.pending_cuts:
                self._reconcile()
                return
        found = datapath.read()
        with self._lock:
            # What was read before a change is outdated; the change itself has left the kernel as desired.
            if not self._stopping and changes == self._kernel.changes:
                self._verify(found)

    def _verify(self, found: DatapathSnapshot) -> None:
        """Reconcile, unless *found*, which was just read, is what it should be."""
        _, change = self._compare(found)
        if not change.operations and found.intact and self._kernel.datapath.prepare():
            self._find_obstacles()
        else:
            self._reconcile()

    def _compare(self, found: DatapathSnapshot) -> tuple[Wanted, plan.Plan]:
        """Return what the chains of taps have to be, and the plan that makes what was *found* equal to all bindings."""
        self._learn_addresses()
        wanted = self._plan_all()
        change = plan.reconcile(found.state, wanted.attachments, keep=wanted.keep)
        change.extend(self._local.plan_all(found.state))
        return wanted, change
