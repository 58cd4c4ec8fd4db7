"""The datapath of one host: what the agent reads from the kernel and tells it.

Stateless but for one socket, which owns the tables where the kernel knows owners (Linux 6.9 and
later): nobody else can change or flush them, and they stay when the socket closes. Older kernels take
no such flags; then others can flush us, and the agent has to watch and rebuild.
"""

from __future__ import annotations

import errno
import ipaddress
from collections.abc import Iterable, Set
from dataclasses import dataclass

from pyroute2.netlink.nfnetlink import nftsocket as nft

from gsaas.netlink import expressions as ex
from gsaas.netlink import wire
from gsaas.netlink.transport import Nfnetlink, Refused
from gsaas.netlink.wire import Message
from gsaas.objects.address import Address
from gsaas.rodvr import forwarding, plan
from gsaas.rodvr.kernel import hooks, ports, ruleset
from gsaas.rodvr.kernel.conntrack import Conntrack
from gsaas.rodvr.kernel.events import Watch
from gsaas.rodvr.kernel.links import Links
from gsaas.rodvr.kernel.ruleset import INNER, IPV4, NETDEV, OUTER, TABLE, Layout

_TABLE_NAME, _TABLE_FLAGS, _TABLE_USERDATA, _TABLE_OWNER = 1, 2, 6, 7


@dataclass(frozen=True)
class _Table:
    flags: int
    comment: str
    owner: int


@dataclass(frozen=True)
class Found:
    """What was read from our tables."""

    state: plan.State
    intact: bool
    """Everything that does not belong to a single port is there: on this, ports can be added."""


class Datapath:
    """Both tables, the veth pair and the connections of one host."""

    def __init__(
        self,
        gpu_device: str,
        masked_prefix: ipaddress.IPv4Network,
        identity_network: ipaddress.IPv4Network,
        local_prefix: ipaddress.IPv4Network,
        *,
        netns: str | None = None,
        protected: bool = True,
        filtered_cuts: bool = True,
    ) -> None:
        self.gpu_device = gpu_device
        self._masked_prefix = masked_prefix
        self._identity_network = identity_network
        self._local_prefix = local_prefix
        self._netns = netns
        self._netlink = Nfnetlink(netns)
        self._reader = Nfnetlink(netns)
        self._links = Links(netns)
        self._conntrack = Conntrack(self._netlink, netns, filtered=filtered_cuts)
        self._flags = ex.OWNER | ex.PERSIST if protected else 0
        self._layout: Layout | None = None
        self._encoder: ports.Encoder | None = None
        self._forwarded_before: bool | None = None

    @property
    def protected(self) -> bool:
        """Whether the kernel keeps others from changing our tables."""
        return bool(self._flags)

    @property
    def own_links(self) -> set[str]:
        """Links whose events may mean that something of ours has to be put right."""
        return {OUTER, INNER, self.gpu_device}

    @property
    def port(self) -> int:
        """Who we are in notifications."""
        return self._netlink.port

    def watch(self) -> Watch:
        """Events of this datapath's namespace. The caller closes it."""
        return Watch(self._netns)

    def close(self) -> None:
        """Leave the kernel as it is."""
        self._netlink.close()
        self._reader.close()
        self._links.close()

    def index(self, tap: str) -> int | None:
        return self._links.index(tap)

    def gpu_address(self) -> str | None:
        """The first IPv4 address of the GPU NIC, which masquerading gives to packets; None without one."""
        return self._links.address(self.gpu_device)

    def prepare(self) -> bool:
        """Put links and settings right and take over tables that are ours.

        False: the tables are missing or not of the layout we need, and `apply` has to rebuild them.
        `Refused` if another process owns them.
        """
        outer = self._links.ensure_pair(self._identity_network)
        tables = self._tables()
        before = self._allow_forwarding(tables)
        self._links.ensure_route(self.gpu_device, self._local_prefix)
        layout = Layout(
            self._masked_prefix,
            self._identity_network,
            self._local_prefix,
            self.gpu_device,
            outer,
            not before,
        )
        if layout != self._layout:
            self._layout, self._encoder = layout, ports.Encoder(layout)
        return self._take_over(tables)

    def read(self) -> Found:
        """What our tables hold; nothing if there are none.

        It goes through a socket of its own, so it may be called while another thread changes things.
        """
        if self._layout is None:
            raise RuntimeError("read comes after prepare")
        reader = self._reader
        try:
            rules = {family: reader.dump(ports.list_rules(family)) for family in (NETDEV, IPV4)}
            state = ports.read_state(
                chains=reader.dump(ports.list_chains(NETDEV)),
                rules=rules[NETDEV],
                back=reader.dump(ports.list_elements(NETDEV, "back")),
                real=reader.dump(ports.list_elements(IPV4, "real")),
                local=reader.dump(ports.list_elements(IPV4, "local")),
            )
        except Refused as refusal:
            if refusal.errno != errno.ENOENT:
                raise
            return Found(plan.State(), intact=False)
        counted = {
            (family, chain): count
            for family, bodies in rules.items()
            for chain, count in ports.count_rules(bodies).items()
        }
        wanted = ruleset.rules_per_chain(self._layout)
        return Found(state, all(counted.get(chain) == count for chain, count in wanted.items()))

    def apply(self, operations: Iterable[plan.Operation], *, rebuild: bool = False) -> None:
        """Carry out *operations* as one transaction, on top of new tables if *rebuild*.

        `Refused` if the kernel would not, and then nothing has changed.
        """
        if self._layout is None or self._encoder is None:
            raise RuntimeError("apply comes after prepare")
        messages = self._encoder.messages(operations)
        if not rebuild:
            self._netlink.transact(messages)
            return
        base = ruleset.base(self._layout)
        present = self._tables()
        remains = [ex.delete_table(family, TABLE) for family in present]
        try:
            created = ruleset.add_tables(self._layout, self._flags)
            self._netlink.transact([*remains, *created, *base, *messages])
        except Refused as refusal:
            unknown = refusal.errno in (errno.EOPNOTSUPP, errno.EINVAL)
            if not (self._flags and unknown and refusal.what.startswith("add table")):
                raise
            self._flags = 0  # this kernel knows no owners
            created = ruleset.add_tables(self._layout, self._flags)
            self._netlink.transact([*remains, *created, *base, *messages])

    def cut(self, cuts: Iterable[plan.Cut | plan.CutLocal], *, silently: bool = False) -> None:
        """End connections and tell who opened them, unless *silently*, which takes a fiftieth of the time."""
        self._conntrack.cut(cuts, silently=silently)

    def connections(self) -> list[plan.Connection]:
        return self._conntrack.connections(self._identity_network)

    def local_connections(self) -> list[tuple[Address, Address]]:
        return self._conntrack.to(self._local_prefix)

    def uncount(self, identity: str) -> None:
        """Let the next port that gets *identity* start with a clean count."""
        try:
            self._netlink.transact([ports.uncount(identity)])
        except Refused as refusal:
            if refusal.errno != errno.ENOENT:
                raise

    def uncount_local(self, masked: Set[str]) -> None:
        """Let the next consumers that get these addresses start with a clean count."""
        counted = self.unmapped_local().keys() & masked
        self._netlink.transact([ports.uncount_local(ip) for ip in sorted(counted)])

    def unmapped(self) -> dict[str, int]:
        """Identity -> connections asked of masked addresses without a mapping."""
        return ports.read_unmapped(self._reader.dump(ports.list_elements(IPV4, "unmapped")))

    def unmapped_local(self) -> dict[str, int]:
        """Local masked address -> connections asked of it by whom it is not for."""
        return ports.read_unmapped(self._reader.dump(ports.list_elements(IPV4, "unmapped-local")))

    def refused(self) -> dict[str, int]:
        """Tap -> packets dropped there for a forged source or a protocol other than TCP."""
        return ports.read_refused(self._reader.dump(ports.list_rules(NETDEV)))

    def obstacles(self) -> list[str]:
        """What others have set up on this host that keeps the datapath from working."""
        gpu = self.gpu_device
        packets = (
            forwarding.Packet(INNER, gpu, answer=False),
            forwarding.Packet(gpu, INNER, answer=True),
        )
        found = [
            forwarding.problem(chain, gpu, INNER)
            for chain, rules_of in hooks.forward_chains(self._reader)
            if any(forwarding.drops(chain, rules_of, packet) for packet in packets)
        ]
        if "filter" in self._links.legacy_tables():
            found.append(forwarding.legacy_note(gpu, INNER))
        if not self._links.loose_pickup():
            found.append(
                "net.netfilter.nf_conntrack_tcp_loose is 0: connections to GPUs that were taken away "
                "hang instead of being reset; set it to 1"
            )
        return found

    def teardown(self) -> None:
        """Take everything of ours away and give the GPU NIC its setting back."""
        tables = self._tables()
        self._take_over(tables)
        if tables:
            self._netlink.transact([ex.delete_table(family, TABLE) for family in tables])
        identities = {connection.identity for connection in self.connections()}
        self._conntrack.cut(plan.Cut(identity) for identity in sorted(identities))
        local = {masked for masked, _ in self.local_connections()}
        self._conntrack.cut(plan.CutLocal(masked) for masked in sorted(local))
        self._links.remove(self._local_prefix)
        self._layout = self._encoder = None

    def _tables(self) -> dict[int, _Table]:
        """Our tables by family."""
        found = {}
        for family in (NETDEV, IPV4):
            request = Message(ex.SUBSYSTEM | nft.NFT_MSG_GETTABLE, family, b"", 0, "read tables")
            for body in self._netlink.dump(request):
                fields = wire.by_kind(body)
                if wire.string(fields[_TABLE_NAME]) == TABLE:
                    found[family] = _Table(
                        flags=int.from_bytes(fields.get(_TABLE_FLAGS, b""), "big"),
                        comment=wire.read_comment(fields.get(_TABLE_USERDATA)),
                        owner=int.from_bytes(fields.get(_TABLE_OWNER, b""), "big"),
                    )
        return found

    def _allow_forwarding(self, tables: dict[int, _Table]) -> bool:
        """Let the GPU NIC forward; whether it did before RODVR came."""
        gpu = self.gpu_device
        remembered = self._links.remembered_forwarding()
        if remembered is not None and remembered[0] != gpu:
            self._links.restore_forwarding()
            remembered = None
        try:
            if remembered is not None:
                self._forwarded_before = remembered[1]
            else:
                if self._forwarded_before is None:
                    # With rodvr0 deleted by hand our note is gone; the tables tell the same.
                    ours = any(ruleset.was_guarded(t.comment, gpu) for t in tables.values())
                    self._forwarded_before = self._links.forwarding(gpu) and not ours
                self._links.remember_forwarding(gpu, self._forwarded_before)
            self._links.set_forwarding(gpu, True)
        except FileNotFoundError:
            return bool(self._forwarded_before)
        return self._forwarded_before

    def _take_over(self, tables: dict[int, _Table]) -> bool:
        """Own what is there; whether both tables are there and of the layout we want."""
        if not tables:
            return False
        for table in tables.values():
            if table.flags & ex.OWNER and table.owner != self._netlink.port:
                raise Refused(
                    errno.EPERM,
                    "tables rodvr belong to another process "
                    f"(netlink port {table.owner}); is a second endpoint running on this host",
                )
        orphans = [
            ex.add_table(family, TABLE, table.flags | ex.OWNER, table.comment)
            for family, table in tables.items()
            if table.flags & (ex.OWNER | ex.PERSIST) == ex.PERSIST
        ]
        self._netlink.transact(orphans)
        if self._layout is None or len(tables) != 2:
            return False
        if self._flags and not all(table.flags & ex.PERSIST for table in tables.values()):
            return False  # a table cannot get an owner later
        return all(table.comment == self._layout.comment for table in tables.values())
