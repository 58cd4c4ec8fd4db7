"""The RODVR endpoint of one host: keeps the kernel equal to the bindings it was given.

Its rules:

1. Read the kernel, plan, apply, read again: at start, on a timer, when links or tables change behind
   its back. A single binding takes a short cut, a plan against the state read last; if the kernel
   disagrees, everything is read again.
2. What cannot be done now stays wanted, is reported as a problem, and is tried again after a pause.
3. Until `replace` has told everything that is wanted, nothing that is unknown is removed: what a
   former process left behind may be somebody's running job.
4. A binding that goes away loses its mappings and connections in that moment. Its chain stays for a
   while, so that the VM's programs are told (by a reset) and do not hang.
5. Programs of the host itself have no tap and no chain: their bindings are map elements and nothing
   else, in the kernel as soon as they are wanted.

How a binding arrives (RPC, a test) is not known here, and neither is any netlink.
"""

from __future__ import annotations

import ipaddress
import logging
import math
import threading
import time
from collections.abc import Callable, Iterable

from gsaas.objects.address import Address
from gsaas.objects.binding import Binding, LocalBinding
from gsaas.objects.endpoint_report import BindingReport, EndpointReport
from gsaas.rodvr import plan
from gsaas.rodvr.identities import Identities, NoIdentityLeft
from gsaas.rodvr.kernel import Datapath, Events, Watch

LOG = logging.getLogger(__name__)

MASKED_PREFIX = "169.254.71.0/24"
IDENTITY_NETWORK = "240.71.0.0/16"
LOCAL_PREFIX = "169.254.72.0/21"
_METADATA = ipaddress.IPv4Address("169.254.169.254")


class NotRemoved(Exception):
    """The kernel would not let go of a binding: its VM may still reach what it reached."""


def _ignore(port_id: str) -> None:
    """For callers who read reports instead."""


class Endpoint:
    """All methods may be called from any thread; *netns* is a namespace's name, for simulated hosts.

    *on_installed* hears of every binding that becomes installed other than by the call that is under
    way: its tap appeared, or what failed has succeeded. *farewell* is how many seconds rule 4 means by
    "a while". *protected* and *filtered_cuts* False do what older kernels make necessary.
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
        on_installed: Callable[[str], None] = _ignore,
        audit_interval: float = 30.0,
        retry_interval: float = 5.0,
        farewell: float = 60.0,
        protected: bool = True,
        filtered_cuts: bool = True,
    ) -> None:
        self.host = host
        self._gpu_device = gpu_device
        self._netns = netns
        self._masked_prefix = ipaddress.IPv4Network(masked_prefix)
        self._identity_network = ipaddress.IPv4Network(identity_network)
        self._local_prefix = ipaddress.IPv4Network(local_prefix)
        if _METADATA in self._masked_prefix:
            raise ValueError(f"the masked prefix {masked_prefix} covers the metadata service")
        if _METADATA in self._local_prefix:
            raise ValueError(f"the local prefix {local_prefix} covers the metadata service")
        if self._local_prefix.overlaps(self._masked_prefix):
            raise ValueError(
                f"the local prefix {local_prefix} and the masked prefix {masked_prefix} overlap"
            )
        self._on_installed = on_installed
        self._audit_interval = audit_interval
        self._retry_interval = retry_interval
        self._farewell = farewell
        self._protected = protected
        self._filtered_cuts = filtered_cuts

        self._lock = threading.RLock()
        self._datapath: Datapath | None = None
        self._watch: Watch | None = None
        self._thread: threading.Thread | None = None
        self._stopping = False
        self._forget()

    def _forget(self) -> None:
        self._wanted: dict[str, Binding] = {}
        self._by_tap: dict[str, str] = {}
        self._local: dict[str, LocalBinding] = {}
        """The wanted bindings of the host's own programs, by port id."""
        self._told = False
        self._identities = Identities(self._identity_network)
        self._state = plan.State()
        self._leaving: dict[str, float] = {}
        """Tap of a removed binding -> when its farewell ends."""
        self._cuts: list[plan.Cut | plan.CutLocal] = []
        """Connections that must end and have not yet."""
        self._installed: dict[str, float] = {}
        """Port -> seconds it took until its binding was in the kernel."""
        self._began = 0.0
        """When the work that may install something was begun."""
        self._news: list[str] = []
        self._problems: dict[str, str] = {}
        self._audit_at = self._retry_at = 0.0
        self._changes = 0
        """Counts our own changes, so that an audit knows when what it has read is outdated."""
        self._ready = False

    # -- life ---------------------------------------------------------------------------------------

    def start(self) -> None:
        """Take over what the kernel holds and begin to watch. Kernel trouble becomes a problem."""
        with self._lock:
            if self._thread is not None:
                raise RuntimeError(f"the endpoint of {self.host} is running")
            self._datapath = self._open()
            self._watch = self._datapath.watch()
            self._stopping = False
            self._reconcile()
            self._news.clear()
            self._thread = threading.Thread(
                target=self._run, name=f"rodvr-{self.host}", daemon=True
            )
            self._thread.start()

    def stop(self) -> None:
        """End the thread and leave the kernel as it is: packets flow on."""
        with self._lock:
            thread, self._thread = self._thread, None
            self._stopping = True
            if self._watch is not None:
                self._watch.wake()
        if thread is not None and thread is not threading.current_thread():
            thread.join()
        with self._lock:
            if self._watch is not None:
                self._watch.close()
            if self._datapath is not None:
                self._datapath.close()
            self._watch = self._datapath = None

    def teardown(self) -> None:
        """Stop, take away everything of ours, whichever process made it, and want nothing more."""
        self.stop()
        with self._lock:
            datapath = self._open()
            try:
                datapath.teardown()
            finally:
                datapath.close()
            self._forget()

    # -- what is wanted -----------------------------------------------------------------------------

    def replace(self, bindings: Iterable[Binding | LocalBinding]) -> EndpointReport:
        """Make *bindings* everything that is wanted on this host; the rest is removed."""
        bindings = list(bindings)
        with self._lock:
            self._wanted = {one.port_id: one for one in bindings if isinstance(one, Binding)}
            self._local = {one.port_id: one for one in bindings if isinstance(one, LocalBinding)}
            self._by_tap = {binding.tap: port_id for port_id, binding in self._wanted.items()}
            port_ids = [binding.port_id for binding in bindings]
            for port_id in self._installed.keys() - set(port_ids):
                del self._installed[port_id]
            self._told = True
            self._reconcile(connections=True)
            report = self._report(port_ids)
            self._forget_news(port_ids)
        self._announce()
        return report

    def apply(self, binding: Binding | LocalBinding) -> EndpointReport:
        """Want *binding*, replacing its port's former one: in the kernel now, or when the tap comes.

        The report is about this port.
        """
        if isinstance(binding, LocalBinding):
            return self._apply_local(binding)
        port_id = binding.port_id
        with self._lock:
            former = self._wanted.pop(port_id, None)
            self._wanted[port_id] = binding
            rival = self._by_tap.get(binding.tap, port_id)
            self._by_tap[binding.tap] = port_id
            self._leaving.pop(binding.tap, None)
            moved = former is not None and former.tap != binding.tap
            if former is not None and moved:
                self._give_up_tap(former)
            if moved or rival != port_id:
                self._reconcile()
            else:
                self._settle(port_id)
            report = self._report((port_id,))
            self._forget_news((port_id,))
        self._announce()
        return report

    def remove(self, port_id: str) -> EndpointReport:
        """Stop wanting the binding of *port_id*: mappings and connections are gone on return.

        One that is not there is no error. `NotRemoved` if the kernel would not let go; it is tried
        again until it does.
        """
        with self._lock:
            self._remove_local(port_id)
            former = self._wanted.pop(port_id, None)
            if former is not None:
                self._give_up_tap(former)
            self._installed.pop(port_id, None)
            self._problems.pop(f"port {port_id}", None)
            self._forget_news((port_id,))
            identity = self._identities.get(port_id)
            self._take_leave(port_id)
            if not self._is_cut_off(identity):
                self._reconcile()
            if not self._is_cut_off(identity):
                reasons = "; ".join(self._problems.values())
                raise NotRemoved(f"port {port_id} may still be connected on {self.host}: {reasons}")
            report = self._report(())
        self._announce()
        return report

    def report(self) -> EndpointReport:
        """All bindings, what their VMs tried in vain (read now), and all problems."""
        with self._lock:
            return self._report([*self._wanted, *self._local], count=True)

    # -- programs of the host -----------------------------------------------------------------------

    def _apply_local(self, binding: LocalBinding) -> EndpointReport:
        port_id, wanted = binding.port_id, plan.ways(binding)
        outside = [
            str(masked)
            for masked in binding.mappings
            if ipaddress.IPv4Address(masked.ip) not in self._local_prefix
        ]
        if outside:
            raise ValueError(
                f"{', '.join(outside)} is not in the local prefix {self._local_prefix}"
            )
        with self._lock:
            self._began = time.monotonic()
            former = self._local.pop(port_id, None)
            self._local[port_id] = binding
            self._relocate(former, wanted)
            self._note(port_id, self._holds(wanted))
            report = self._report((port_id,))
            self._forget_news((port_id,))
        self._announce()
        return report

    def _remove_local(self, port_id: str) -> None:
        """Stop wanting a binding of the host's own programs; `NotRemoved` if the kernel would not let go."""
        former = self._local.pop(port_id, None)
        if former is None:
            return
        self._relocate(former, {})
        masked = set(former.mappings)
        left = [way for way in plan.ways(former) if way in self._state.local]
        uncut = [cut for cut in self._cuts if cut.masked in masked]
        if left or uncut or not self._ready:
            self._local[port_id] = former  # still there: to be removed by whoever asks again
            reasons = "; ".join(self._problems.values())
            raise NotRemoved(f"lease {port_id} may still be connected on {self.host}: {reasons}")
        self._kernel.uncount_local({address.ip for address in masked})

    def _relocate(self, former: LocalBinding | None, wanted: dict[plan.Way, Address]) -> None:
        if self._ready:
            try:
                held = plan.ways(former) if former else {}
                self._carry_out(plan.relocate(self._state, held, wanted))
            except (OSError, ValueError):
                self._reconcile()
        else:
            self._reconcile()

    def _holds(self, wanted: dict[plan.Way, Address]) -> bool:
        return self._ready and wanted.items() <= self._state.local.items()

    def _local_change(self, state: plan.State) -> plan.Plan:
        """What makes *state* hold the wanted bindings of the host's own programs, and once told no other."""
        wanted = {
            way: real
            for binding in self._local.values()
            for way, real in plan.ways(binding).items()
        }
        return plan.relocate(state, list(state.local) if self._told else [], wanted)

    # -- one binding --------------------------------------------------------------------------------

    def _settle(self, port_id: str) -> None:
        """Bring one port to what is wanted by the shortest way."""
        self._began = time.monotonic()
        binding = self._wanted[port_id]
        if not self._ready or self._by_tap[binding.tap] != port_id:
            self._reconcile()
            return
        try:
            index = self._kernel.index(binding.tap)
            if index is None:
                change = plan.detach(self._state, binding.tap)
            else:
                identity = self._identities.allocate(port_id)
                wanted = plan.Attachment.of(binding, identity, index)
                change = plan.attach(self._state, binding.tap, wanted)
            self._carry_out(change)
        except (OSError, ValueError, NoIdentityLeft):
            # The kernel is not as we think, or will not: look at everything before saying so.
            self._reconcile()
        else:
            self._problems.pop(f"port {port_id}", None)
            self._note(port_id, index is not None)

    def _take_leave(self, port_id: str) -> None:
        """Empty the chains of a port that is not wanted; the chains themselves go later."""
        taps = [
            (tap, tag)
            for tap, tag in self._state.chains.items()
            if tag is not None and tag.port_id == port_id and tap not in self._by_tap
        ]
        for tap, tag in taps:
            self._leaving.setdefault(tap, time.monotonic() + self._farewell)
            try:
                self._carry_out(plan.attach(self._state, tap, plan.Attachment(tag)))
            except OSError:
                self._reconcile()
        self._nudge()

    def _end_farewells(self) -> None:
        now = time.monotonic()
        over = [tap for tap, at in self._leaving.items() if at <= now]
        try:
            for tap in over:
                self._carry_out(plan.detach(self._state, tap))
                del self._leaving[tap]
            if self._ready:
                self._release_unused()
        except OSError:
            self._reconcile()

    def _give_up_tap(self, former: Binding) -> None:
        """*former* no longer claims its tap: let another binding that names it have it."""
        if self._by_tap.get(former.tap) != former.port_id:
            return
        del self._by_tap[former.tap]
        for port_id, binding in self._wanted.items():
            if binding.tap == former.tap:
                self._by_tap[former.tap] = port_id
        if former.tap in self._by_tap:
            self._reconcile()

    def _carry_out(self, change: plan.Plan, *, rebuild: bool = False) -> None:
        if change.operations or rebuild:
            self._kernel.apply(change.operations, rebuild=rebuild)
            self._changes += 1
            if rebuild:
                self._state = plan.State()
            self._state.commit(change.operations)
        self._cut(change.cuts)

    def _cut(self, cuts: Iterable[plan.Cut | plan.CutLocal] = ()) -> None:
        """End connections; those that resist are tried again."""
        self._cuts.extend(cuts)
        if not self._cuts:
            return
        try:
            self._kernel.cut(self._cuts)
        except OSError as error:
            self._problem("connections", f"connections could not be cut: {error}")
        else:
            self._cuts.clear()
            self._problems.pop("connections", None)

    # -- everything ---------------------------------------------------------------------------------

    def _reconcile(self, *, connections: bool = False) -> None:
        """Read, plan, apply, read again. Problems are found anew."""
        self._began = time.monotonic()
        self._audit_at = time.monotonic() + self._audit_interval
        self._retry_at = math.inf
        self._problems.clear()
        self._ready = False
        try:
            matching = self._kernel.prepare()
            found = self._kernel.read()
            self._ready = True
            self._state = found.state
            intact = matching and found.intact
            wanted, keep = self._attachments()
            base = self._state if intact else plan.State()
            change = plan.reconcile(base, wanted, keep=keep)
            change.extend(self._local_change(base))
            if change.operations or not intact:
                self._carry_out_all(change, base, wanted, keep, rebuild=not intact)
                self._state = self._kernel.read().state
            for tap, attachment in wanted.items():
                port_id = attachment.tag.port_id
                if self._by_tap.get(tap) == port_id:
                    right = not plan.attach(self._state, tap, attachment).operations
                    self._note(port_id, right)
            for port_id, binding in self._wanted.items():
                if binding.tap not in wanted or self._by_tap[binding.tap] != port_id:
                    self._note(port_id, False)
            for port_id, binding in self._local.items():
                self._note(port_id, self._holds(plan.ways(binding)))
            if connections:
                self._cut(plan.stale_connections(self._kernel.connections(), self._state))
                known = self._kernel.local_connections()
                self._cut(plan.stale_local_connections(known, self._state))
            self._cut()
            self._release_unused()
            self._look_around()
        except OSError as error:
            LOG.warning("the datapath of %s: %s", self.host, error)
            self._problem("datapath", f"the datapath is not as it should be: {error}")
        if self._watch is not None and not self._kernel.protected:
            self._watch.watch_tables()

    def _attachments(self) -> tuple[dict[str, plan.Attachment], set[str]]:
        """What every tap should hold, and the taps to leave alone."""
        for tag in self._state.chains.values():
            if tag is not None:
                self._identities.adopt(tag.port_id, tag.identity)
        wanted: dict[str, plan.Attachment] = {}
        for port_id, binding in self._wanted.items():
            holder = self._by_tap[binding.tap]
            if holder != port_id:
                self._problem(
                    f"port {port_id}", f"port {port_id}: its tap {binding.tap} is port {holder}'s"
                )
                continue
            try:
                index = self._kernel.index(binding.tap)
                if index is not None:
                    identity = self._identities.allocate(port_id)
                    wanted[binding.tap] = plan.Attachment.of(binding, identity, index)
            except (ValueError, NoIdentityLeft) as error:
                self._problem(f"port {port_id}", f"port {port_id}: {error}")
        keep = set()
        now = time.monotonic()
        for tap, tag in self._state.chains.items():
            if tap in self._by_tap or tag is None or tag.port_id in self._wanted:
                continue
            present = self._kernel.index(tap) == tag.ifindex
            if tap in self._leaving or self._told:
                if present and now < self._leaving.setdefault(tap, now + self._farewell):
                    wanted[tap] = plan.Attachment(tag)
            else:
                keep.add(tap)
                if present:
                    wanted[tap] = plan.Attachment(tag, self._state.mappings.get(tag.identity, {}))
        self._leaving = {tap: at for tap, at in self._leaving.items() if tap in wanted}
        return wanted, keep

    def _carry_out_all(
        self,
        change: plan.Plan,
        base: plan.State,
        wanted: dict[str, plan.Attachment],
        keep: set[str],
        *,
        rebuild: bool,
    ) -> None:
        """One transaction if possible; tap by tap if something in it is refused."""
        try:
            self._carry_out(change, rebuild=rebuild)
            return
        except (OSError, ValueError) as error:
            LOG.warning("%s: %s; trying each tap by itself", self.host, error)
        if rebuild:
            self._carry_out(plan.Plan(), rebuild=True)
        gone = {tap: wanted[tap] for tap in wanted.keys() & base.chains.keys()}
        self._carry_out(plan.reconcile(self._state, {}, keep=keep | gone.keys()))
        for tap, attachment in wanted.items():
            try:
                self._carry_out(plan.attach(self._state, tap, attachment))
            except (OSError, ValueError) as error:
                port_id = attachment.tag.port_id
                self._problem(f"port {port_id}", f"port {port_id} on tap {tap}: {error}")
        try:
            self._carry_out(self._local_change(self._state))
        except (OSError, ValueError) as error:
            self._problem("local", f"leases of this host's own programs: {error}")

    def _audit(self) -> None:
        """As `_reconcile`, but without keeping others waiting while everything is read.

        Reading takes a second per hundred thousand mappings, and a VM may be booting meanwhile.
        """
        with self._lock:
            self._audit_at = time.monotonic() + self._audit_interval
            kernel, changes = self._kernel, self._changes
            if not self._ready or self._problems or self._cuts:
                self._reconcile()
                return
        found = kernel.read()
        with self._lock:
            if self._stopping or changes != self._changes:
                return
            wanted, keep = self._attachments()
            right = not (
                plan.reconcile(found.state, wanted, keep=keep).operations
                or self._local_change(found.state).operations
            )
            if right and found.intact and kernel.prepare():
                self._look_around()
            else:
                self._reconcile()

    def _look_around(self) -> None:
        """Problems that others make, or that need somebody's hand; they are told and not retried."""
        for key in [key for key in self._problems if key.startswith("obstacle")]:
            del self._problems[key]
        obstacles = self._kernel.obstacles()
        if self._kernel.index(self._gpu_device) is None:
            obstacles.append(
                f"there is no interface {self._gpu_device} (option gpu_device); no VM of this host "
                "reaches its GPUs"
            )
        for number, text in enumerate(obstacles):
            self._problems[f"obstacle {number}"] = text

    def _release_unused(self) -> None:
        held = {tag.port_id for tag in self._state.chains.values() if tag is not None}
        for port_id in self._identities.ports():
            if port_id not in held and port_id not in self._wanted:
                identity = self._identities.allocate(port_id)
                # A connection may have been under way while the first cut was made.
                self._kernel.cut([plan.Cut(identity)], silently=True)
                self._kernel.uncount(identity)
                self._identities.release(port_id)

    # -- the thread ---------------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            with self._lock:
                if self._stopping or self._watch is None:
                    return
                watch, due = self._watch, [self._audit_at, self._retry_at]
                if self._ready:
                    due += self._leaving.values()
            events = watch.wait(min(due) - time.monotonic())
            if self._stopping:
                return
            try:
                with self._lock:
                    self._react(events)
                if time.monotonic() >= self._audit_at:
                    self._audit()
            except Exception as error:  # the endpoint outlives its surprises
                LOG.exception("the endpoint of %s", self.host)
                with self._lock:
                    self._problem("endpoint", f"the endpoint stumbled: {error!r}")
            self._announce()

    def _react(self, events: Events) -> None:
        foreign = events.tables - {self._kernel.port}
        names = set(events.links.values())
        retry = time.monotonic() >= self._retry_at
        if retry or events.overrun or foreign or names & self._kernel.own_links:
            self._reconcile()
            return
        self._end_farewells()
        touched = {
            tap
            for tap, tag in self._state.chains.items()
            if tag is not None and tag.ifindex in events.links
        }
        for tap in sorted(touched | names):
            if tap in self._by_tap:
                self._settle(self._by_tap[tap])
            elif tap in self._leaving and self._kernel.index(tap) is None:
                self._reconcile()

    def _announce(self) -> None:
        """Tell of bindings that became installed. Never under the lock: the listener may call us."""
        with self._lock:
            news, self._news = self._news, []
        for port_id in news:
            try:
                self._on_installed(port_id)
            except Exception:  # the report says the same, later
                LOG.exception("the listener of %s failed on port %s", self.host, port_id)

    # -- small things -------------------------------------------------------------------------------

    @property
    def _kernel(self) -> Datapath:
        if self._datapath is None:
            raise RuntimeError(f"the endpoint of {self.host} is not running")
        return self._datapath

    def _open(self) -> Datapath:
        return Datapath(
            self._gpu_device,
            self._masked_prefix,
            self._identity_network,
            self._local_prefix,
            netns=self._netns,
            protected=self._protected,
            filtered_cuts=self._filtered_cuts,
        )

    def _note(self, port_id: str, installed: bool) -> None:
        if not installed:
            self._installed.pop(port_id, None)
        elif port_id not in self._installed:
            self._installed[port_id] = round(time.monotonic() - self._began, 6)
            self._news.append(port_id)

    def _forget_news(self, port_ids: Iterable[str]) -> None:
        told = set(port_ids)
        self._news = [port_id for port_id in self._news if port_id not in told]

    def _problem(self, key: str, text: str) -> None:
        """Something that a later try may mend."""
        self._problems[key] = text
        self._retry_at = min(self._retry_at, time.monotonic() + self._retry_interval)
        self._nudge()

    def _nudge(self) -> None:
        """Have the thread look at its deadlines again."""
        if self._watch is not None:
            self._watch.wake()

    def _is_cut_off(self, identity: str | None) -> bool:
        """Whether we know that *identity* (None: no identity) reaches nothing any more."""
        pending = any(isinstance(cut, plan.Cut) and cut.identity == identity for cut in self._cuts)
        return self._ready and not pending and identity not in self._state.mappings

    def _report(self, port_ids: Iterable[str], *, count: bool = False) -> EndpointReport:
        unmapped: dict[str, int] = {}
        unmapped_local: dict[str, int] = {}
        refused: dict[str, int] = {}
        if count and self._ready:
            try:
                unmapped, refused = self._kernel.unmapped(), self._kernel.refused()
                unmapped_local = self._kernel.unmapped_local() if self._local else {}
            except OSError as error:
                self._problem("counters", f"dropped packets could not be counted: {error}")
        bindings = {
            port_id: BindingReport(
                installed=port_id in self._installed,
                seconds=self._installed.get(port_id),
                unmapped=unmapped.get(self._identities.get(port_id) or "", 0),
                refused=refused.get(self._wanted[port_id].tap, 0),
            )
            for port_id in port_ids
            if port_id in self._wanted
        } | {
            port_id: BindingReport(
                installed=port_id in self._installed,
                seconds=self._installed.get(port_id),
                unmapped=sum(
                    unmapped_local.get(ip, 0)
                    for ip in {masked.ip for masked in self._local[port_id].mappings}
                ),
            )
            for port_id in port_ids
            if port_id in self._local
        }
        address = self._kernel.gpu_address() if self._ready else None
        return EndpointReport(self.host, bindings, tuple(self._problems.values()), address)
