# SPDX-License-Identifier: Apache-2.0
"""The RODVR endpoint of one host: keeps the kernel equal to the desired bindings.

Its rules:

1. Read the kernel, plan, execute, read again: at start, periodically, and when links change or another
   program changes the tables (`reconciler`, `event_loop`). A single binding is planned against the state
   read last; if the kernel disagrees, everything is read again.
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

import ipaddress
import logging
import threading
from collections.abc import Callable, Iterable
from dataclasses import replace

from gsaas.objects.binding import Binding, LocalBinding
from gsaas.objects.endpoint_report import ConntrackLevel, EndpointReport, Traffic
from gsaas.objects.gpu_network import GpuNetwork
from gsaas.rodvr.event_loop import EventLoop
from gsaas.rodvr.executor import PlanExecutor
from gsaas.rodvr.installations import Installations
from gsaas.rodvr.kernel import Datapath
from gsaas.rodvr.limits import USUAL, ConnectionLimits
from gsaas.rodvr.local_bindings import LocalBindings, is_in
from gsaas.rodvr.port_bindings import PortBindings
from gsaas.rodvr.problems import Problems
from gsaas.rodvr.real_addresses import RealAddresses
from gsaas.rodvr.reconciler import Reconciler
from gsaas.rodvr.session import KernelSession

LOG = logging.getLogger(__name__)

MASKED_PREFIX = "169.254.71.0/24"
IDENTITY_NETWORK = "240.71.0.0/16"
LOCAL_PREFIX = "169.254.72.0/21"
_METADATA = ipaddress.IPv4Address("169.254.169.254")


class NotRemoved(Exception):
    """The kernel refused to remove a binding: its VM or its programs may still reach their daemons."""


def _ignore(port_id: str) -> None:
    """Do nothing: the default for callers that read reports instead."""


class Endpoint:
    """All methods may be called from any thread; *netns* is a namespace's name, for simulated hosts.

    *on_installed* is called with the port id of every binding that becomes installed other than by the
    call that is under way: its tap appeared, or another try succeeded. *grace* is the grace period of
    rule 4; it and the intervals are in seconds. *limits* hold for each VM port. A table of
    connections that is filled beyond *conntrack_threshold*, 0 to 1, is a problem. With *protected* or
    *filtered_cuts* False, the endpoint does without table owners or deletion of connections by filter, as
    on older kernels.

    A binding that leads out of *gpu_network*, or to this host's own addresses, is a problem and is not installed.

    Raises `ValueError` if the prefixes overlap, cover the metadata service, or are no IPv4 networks.
    """

    def __init__(
        self,
        host: str,
        gpu_device: str,
        *,
        netns: str | None = None,
        masked_prefix: str = MASKED_PREFIX,
        identity_network: str = IDENTITY_NETWORK,
        local_prefix: str = LOCAL_PREFIX,
        limits: ConnectionLimits = USUAL,
        conntrack_threshold: float = 0.8,
        gpu_network: GpuNetwork = GpuNetwork(),  # noqa: B008  (immutable)
        on_installed: Callable[[str], None] = _ignore,
        audit_interval: float = 30.0,
        retry_interval: float = 5.0,
        grace: float = 60.0,
        protected: bool = True,
        filtered_cuts: bool = True,
    ) -> None:
        self.host = host
        self._gpu_device = gpu_device
        masked = ipaddress.IPv4Network(masked_prefix)
        self._identity_network = ipaddress.IPv4Network(identity_network)
        self._local_prefix = ipaddress.IPv4Network(local_prefix)
        _check_prefixes(masked, self._local_prefix)
        self._real_addresses = RealAddresses(
            gpu_device, gpu_network, (masked, self._local_prefix, self._identity_network)
        )
        self._on_installed = on_installed
        self._audit_interval = audit_interval
        self._retry_interval = retry_interval
        self._grace = grace

        def open_datapath() -> Datapath:
            return Datapath(
                gpu_device,
                masked,
                self._identity_network,
                self._local_prefix,
                limits=limits,
                conntrack_threshold=conntrack_threshold,
                netns=netns,
                protected=protected,
                filtered_cuts=filtered_cuts,
            )

        self._lock = threading.RLock()
        self._session = KernelSession(host, open_datapath)
        self._create_parts()

    def _create_parts(self) -> None:
        """Create everything that remembers bindings, empty."""
        self._problems = Problems(self._retry_interval, self._session.wake)
        self._installations = Installations()
        self._executor = PlanExecutor(self._session, self._problems)
        self._ports = PortBindings(
            self._identity_network,
            self._grace,
            self._problems,
            self._installations,
            self._real_addresses.check,
        )
        self._local = LocalBindings(
            self._local_prefix, self._installations, self._problems, self._real_addresses.check
        )
        self._reconciler = Reconciler(
            self.host,
            self._gpu_device,
            self._session,
            self._executor,
            self._ports,
            self._local,
            self._problems,
            self._installations,
            self._real_addresses,
            self._audit_interval,
        )
        self._loop = EventLoop(
            self.host,
            self._lock,
            self._session,
            self._executor,
            self._ports,
            self._problems,
            self._reconciler,
            self._announce,
        )

    # -- life cycle ---------------------------------------------------------------------------------

    def start(self) -> None:
        """Take over what the kernel contains and begin to watch it.

        Raises `RuntimeError` if it is running, and `OSError` if the sockets cannot be opened; anything else
        that the kernel refuses becomes a problem.
        """
        with self._lock:
            if self._loop.running:
                raise RuntimeError(f"the endpoint of {self.host} is running")
            self._session.open()
            self._reconciler.reconcile()
            self._installations.take_unannounced()  # found installed, not installed now
            self._loop.start()

    def stop(self) -> None:
        """End the thread and leave the kernel as it is: packets flow on."""
        self._loop.stop()
        with self._lock:
            self._session.close()

    def teardown(self) -> None:
        """Stop, remove everything of RODVR, whichever process made it, and forget all desired bindings.

        Raises `OSError` if the kernel refuses.
        """
        self.stop()
        with self._lock:
            self._session.teardown()
            self._create_parts()

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
            self._reconciler.reconcile(connections=True)
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
                self._reconciler.install_port(binding.port_id)
            else:
                self._reconciler.reconcile()
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

    def _remove_port(self, port_id: str) -> None:
        if self._ports.discard(port_id):
            self._reconciler.reconcile()
        self._installations.remove(port_id)
        self._problems.resolve(f"port {port_id}")
        identity = self._ports.identities.get(port_id)
        self._reconciler.start_grace(port_id)
        if not self._executor.is_cut_off(identity):
            self._reconciler.reconcile()
        if not self._executor.is_cut_off(identity):
            reasons = "; ".join(self._problems.texts())
            raise NotRemoved(f"port {port_id} may still be connected on {self.host}: {reasons}")

    def _apply_local(self, binding: LocalBinding) -> None:
        self._installations.start_timing()
        former = self._local.put(binding)
        self._reconciler.replace_local(former, binding)
        installed = self._executor.synced and is_in(self._executor.state, binding)
        self._installations.record(binding.port_id, installed)

    def _remove_local(self, port_id: str) -> None:
        former = self._local.discard(port_id)
        if former is None:
            return
        self._reconciler.replace_local(former, None)
        if not self._executor.is_local_cut_off(former):
            self._local.put(former)  # another call of `remove` tries again
            reasons = "; ".join(self._problems.texts())
            raise NotRemoved(f"lease {port_id} may still be connected on {self.host}: {reasons}")
        self._session.datapath.reset_unmapped_local({masked.ip for masked in former.mappings})

    # -- reports ------------------------------------------------------------------------------------

    def _report_installed(self, port_ids: Iterable[str]) -> EndpointReport:
        """Return the report on *port_ids*; those that are installed need no further announcement."""
        port_ids = tuple(port_ids)
        self._installations.mark_announced(port_ids)
        return self._report(port_ids)

    def _report(self, port_ids: Iterable[str], *, count: bool = False) -> EndpointReport:
        port_ids = tuple(port_ids)
        unmapped: dict[str, int] = {}
        unmapped_local: dict[str, int] = {}
        refused: dict[str, int] = {}
        level: ConntrackLevel | None = None
        datapath = self._session.datapath if self._executor.synced else None
        if count and datapath is not None:
            try:
                level = datapath.conntrack_level()
                unmapped = datapath.unmapped()
                refused = {tap: counts.refused for tap, counts in datapath.tap_counters().items()}
                unmapped_local = datapath.unmapped_local() if self._local else {}
            except OSError as error:
                self._problems.add("counters", f"dropped packets could not be counted: {error}")
        bindings = self._ports.reports(port_ids, unmapped, refused)
        bindings |= self._local.reports(port_ids, unmapped_local)
        address = datapath.gpu_address() if datapath is not None else None
        return EndpointReport(self.host, bindings, self._problems.texts(), address, level)

    def _traffic(self) -> dict[str, Traffic]:
        """Return the traffic of the installed bindings of VMs; none of it if the kernel refuses to tell."""
        if not self._executor.synced:
            return {}
        datapath = self._session.datapath
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


def _check_prefixes(masked: ipaddress.IPv4Network, local: ipaddress.IPv4Network) -> None:
    if _METADATA in masked:
        raise ValueError(f"the masked prefix {masked} covers the metadata service")
    if _METADATA in local:
        raise ValueError(f"the local prefix {local} covers the metadata service")
    if local.overlaps(masked):
        raise ValueError(f"the local prefix {local} and the masked prefix {masked} overlap")
