# SPDX-License-Identifier: Apache-2.0
"""The datapath of one host: what the endpoint reads from the kernel and changes in it.

Its only state is one socket, which owns the tables where the kernel supports table owners (Linux 6.9 and
later): no other program can change or flush them, and they stay when the socket closes. Older kernels
refuse these flags; there, other programs can flush the tables, and the endpoint has to watch and rebuild
them.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Iterable, Set
from dataclasses import dataclass

from pyroute2.netlink.nfnetlink import nftsocket as nft

from gsaas.netlink import expressions as ex
from gsaas.netlink import wire
from gsaas.netlink.transport import NetlinkRefused, Nfnetlink
from gsaas.netlink.wire import Message
from gsaas.objects.address import Address
from gsaas.objects.endpoint_report import ConntrackLevel
from gsaas.rodvr import path, plan
from gsaas.rodvr.config import DatapathConfig
from gsaas.rodvr.kernel import chains, decoder, encoder, legacy_tables, ruleset
from gsaas.rodvr.kernel.conntrack import Conntrack, table_level
from gsaas.rodvr.kernel.events import Watch
from gsaas.rodvr.kernel.links import Links
from gsaas.rodvr.kernel.ruleset import INNER, IPV4, NETDEV, OUTER, SOURCES, TABLE, RulesetConfig
from gsaas.rodvr.real_addresses import HostAddresses

LOG = logging.getLogger(__name__)

_TABLE_NAME, _TABLE_FLAGS, _TABLE_USERDATA, _TABLE_OWNER = 1, 2, 6, 7


@dataclass(frozen=True)
class _Table:
    flags: int
    comment: str
    owner: int


@dataclass(frozen=True)
class DatapathSnapshot:
    """What was read from RODVR's tables."""

    state: plan.DatapathState
    intact: bool
    """Whether everything that does not belong to a single port is there, so that ports can be added."""


class Datapath:
    """Both tables, the veth pair and the connections of one host.

    Methods raise `OSError`, mostly as `NetlinkRefused`, if the kernel refuses what they ask for.
    """

    def __init__(self, config: DatapathConfig) -> None:
        self.gpu_device = config.gpu_device
        self._networks = config.networks
        self._limits = config.limits
        self._conntrack_threshold = config.conntrack_threshold
        self._netns = netns = config.netns
        self._netlink = Nfnetlink(netns)
        # A socket of its own: a long dump must not delay changes.
        self._reader = Nfnetlink(netns)
        self._links = Links(netns)
        self._conntrack = Conntrack(self._netlink, netns, filtered=config.filtered_cuts)
        self._flags = ex.OWNER | ex.PERSIST if config.protected else 0
        self._config: RulesetConfig | None = None
        self._encoder: encoder.OperationEncoder | None = None
        self._forwarded_before: bool | None = None
        self._current = False
        """Whether the tables are of this release and this configuration."""

    @property
    def protected(self) -> bool:
        """Whether the kernel keeps other programs from changing RODVR's tables."""
        return bool(self._flags)

    @property
    def own_links(self) -> set[str]:
        """Interfaces that RODVR configures: when one of them changes, everything is to be compared."""
        return {OUTER, INNER, self.gpu_device}

    @property
    def port_id(self) -> int:
        """The netlink port id that notifications name as the sender of this datapath's changes."""
        return self._netlink.port_id

    def watch(self) -> Watch:
        """Return a watch for the events of this datapath's namespace. The caller closes it."""
        return Watch(self._netns)

    def close(self) -> None:
        """Close the sockets. What is in the kernel stays there."""
        self._netlink.close()
        self._reader.close()
        self._links.close()

    def index(self, tap: str) -> int | None:
        """Return the interface index of *tap*, None if there is no such interface.

        Raises `ValueError` for a name that no interface can have.
        """
        return self._links.index(tap)

    def gpu_address(self) -> str | None:
        """Return the first IPv4 address of the GPU NIC, which masquerading gives to packets; None without one."""
        return self._links.address(self.gpu_device)

    def host_addresses(self, *, routes: bool) -> HostAddresses:
        """Return the addresses of this host and, with *routes*, the networks that it reaches through the GPU NIC."""
        return self._links.host_addresses(self.gpu_device, routes=routes)

    def prepare(self) -> bool:
        """Configure links and settings, and become the owner of RODVR's tables.

        Returns False if the tables are missing or of another configuration, so that `apply` has to rebuild
        them. Raises `NetlinkRefused` if another process owns them.
        """
        outer = self._links.ensure_pair(self._networks.identities)
        tables = self._tables()
        forwarded_before = self._enable_forwarding(tables)
        self._links.ensure_route(self.gpu_device, self._networks.local)
        config = RulesetConfig(
            self._networks.masked,
            self._networks.identities,
            self._networks.local,
            self.gpu_device,
            outer,
            not forwarded_before,
            self._limits,
        )
        if config != self._config:
            self._config, self._encoder = config, encoder.OperationEncoder(config)
        self._current = self._take_over(tables)
        return self._current

    def read(self) -> DatapathSnapshot:
        """Return what RODVR's tables contain; without tables, an empty state that is not intact.

        It uses a socket of its own, so it may be called while another thread changes the tables. Raises
        `RuntimeError` before `prepare`.
        """
        if self._config is None:
            raise RuntimeError("call prepare before read")
        reader = self._reader
        try:
            rules = {family: reader.dump(decoder.list_rules(family)) for family in (NETDEV, IPV4)}
            state = decoder.read_state(
                chains=reader.dump(decoder.list_chains(NETDEV)),
                rules=rules[NETDEV],
                sources=self._sources(),
                back=reader.dump(decoder.list_elements(NETDEV, "back")),
                real=reader.dump(decoder.list_elements(IPV4, "real")),
                local=reader.dump(decoder.list_elements(IPV4, "local")),
                rules_per_tap=ruleset.rules_per_tap(self._config) if self._current else None,
            )
        except NetlinkRefused as refusal:
            if refusal.errno != errno.ENOENT:
                raise
            # Without tables, or one was deleted between two dumps.
            return DatapathSnapshot(plan.DatapathState(), intact=False)
        counted = {
            (family, chain): count
            for family, bodies in rules.items()
            for chain, count in decoder.count_rules(bodies).items()
        }
        expected = ruleset.rules_per_chain(self._config)
        intact = all(counted.get(chain) == count for chain, count in expected.items())
        return DatapathSnapshot(state, intact)

    def _sources(self) -> list[bytes]:
        """Return the elements of `sources`; none if the tables are of a release that had no such map."""
        try:
            return self._reader.dump(decoder.list_elements(NETDEV, SOURCES))
        except NetlinkRefused as refusal:
            if refusal.errno != errno.ENOENT:
                raise
            return []

    def apply(self, operations: Iterable[plan.Operation], *, rebuild: bool = False) -> None:
        """Carry out *operations* as one transaction, on top of new tables if *rebuild*.

        Raises `NetlinkRefused` if the kernel refuses one of them, `ValueError` if one cannot be encoded, and
        `RuntimeError` before `prepare`; then nothing has changed.
        """
        if self._config is None or self._encoder is None:
            raise RuntimeError("call prepare before apply")
        messages = self._encoder.messages(operations)
        if not rebuild:
            self._netlink.transact(messages)
            return
        base = ruleset.base(self._config)
        deletions = [ex.delete_table(family, TABLE) for family in self._tables()]
        try:
            created = ruleset.add_tables(self._config, self._flags)
            # In one transaction: at no moment is a packet forwarded without rules.
            self._netlink.transact([*deletions, *created, *base, *messages])
        except NetlinkRefused as refusal:
            unknown = refusal.errno in (errno.EOPNOTSUPP, errno.EINVAL)
            if not (self._flags and unknown and refusal.what.startswith("add table")):
                raise
            self._flags = 0  # this kernel does not support table owners
            created = ruleset.add_tables(self._config, self._flags)
            self._netlink.transact([*deletions, *created, *base, *messages])
        self._current = True

    def cut(self, cuts: Iterable[plan.Cut | plan.LocalCut], *, silently: bool = False) -> None:
        """End connections and reset them at their clients.

        *silently* leaves the resets out and takes a fiftieth of the time.
        """
        self._conntrack.cut(cuts, silently=silently)

    def forget_strays(self) -> None:
        """Have the kernel forget connections that it began to track while the tables were missing.

        Those are a VM's packet that was not translated, and the reply to one, which looks like the beginning of another
        connection. As long as the kernel tracks such a connection, for minutes or for days, it takes what a client
        sends from the same port for a part of it, and `guard` or `local-guard` drops that.
        """
        self._conntrack.forget(self._networks.identities, self._networks.local, translated=False)

    def connections(self) -> list[plan.Connection]:
        """Return all tracked connections of VM ports."""
        return self._conntrack.connections(self._networks.identities)

    def local_connections(self) -> list[tuple[Address, Address]]:
        """Return all tracked connections of the host's own programs to masked addresses, as (masked, real)."""
        return self._conntrack.connections_to(self._networks.local)

    def reset_unmapped(self, identity: str) -> None:
        """Set the count of *identity* in `unmapped` to zero, for the next port that gets it."""
        try:
            self._netlink.transact([encoder.reset_unmapped(identity)])
        except NetlinkRefused as refusal:
            if refusal.errno != errno.ENOENT:
                raise

    def reset_unmapped_local(self, masked: Set[str]) -> None:
        """Set the counts of these masked IP addresses to zero, for the next leases that get them."""
        counted = self.unmapped_local().keys() & masked
        self._netlink.transact([encoder.reset_unmapped_local(ip) for ip in sorted(counted)])

    def unmapped(self) -> dict[str, int]:
        """Return identity -> refused connections to masked addresses without a mapping."""
        return decoder.read_unmapped(self._reader.dump(decoder.list_elements(IPV4, "unmapped")))

    def unmapped_local(self) -> dict[str, int]:
        """Return masked IP address of the local prefix -> refused connections of users without a mapping for it."""
        return decoder.read_unmapped(
            self._reader.dump(decoder.list_elements(IPV4, "unmapped-local"))
        )

    def tap_counters(self) -> dict[str, decoder.TapCounters]:
        """Return tap -> bytes that its VM sent to masked addresses, and packets that were dropped there."""
        return decoder.read_tap_counters(self._reader.dump(decoder.list_rules(NETDEV)))

    def strangers(self) -> dict[int, str]:
        """Return interface index of a tap -> an address that its VM has sent from, and is not its port's."""
        return decoder.read_strangers(
            self._reader.dump(decoder.list_elements(NETDEV, ruleset.STRANGERS))
        )

    def received(self) -> dict[str, int]:
        """Return identity -> bytes that its VM received from daemons."""
        return decoder.read_received(self._reader.dump(decoder.list_elements(NETDEV, "back")))

    def open_connections(self) -> dict[str, int]:
        """Return identity -> how many open connections its VM has; without those that have none."""
        return self._conntrack.count_by_client(self._networks.identities)

    def open_local_connections(self) -> dict[Address, int]:
        """Return masked address -> how many connections the host's own programs have open to it."""
        return self._conntrack.count_by_masked(self._networks.local)

    def conntrack_level(self) -> ConntrackLevel | None:
        """Return how full the kernel's table of connections is; None while it tracks none."""
        return table_level(self._netns)

    def obstacles(self, samples: Iterable[tuple[str, Address, Address | None]]) -> list[str]:
        """Return sentences for operators about configuration of this host that keeps the datapath from working.

        *samples* are connections of VMs, each as identity, masked address and real address; None for a real address
        stands for any.
        """
        gpu, address = self.gpu_device, self.gpu_address()
        found_indexes = {name: self.index(name) for name in (INNER, OUTER, gpu)}
        indexes = {name: index for name, index in found_indexes.items() if index is not None}
        connections = [
            path.Connection(INNER, OUTER, gpu, address, identity, masked, real, indexes)
            for identity, masked, real in samples
        ]
        try:
            others = [*chains.read(self._reader), *legacy_tables.read(self._netns)]
            found = path.obstacles(others, connections, self._networks.identities)
            found += self._links.detours(connections)
        except Exception as error:
            # A kernel may have other forms, and others change rules while they are read: that harms no connection.
            LOG.exception("rules and routes of other programs cannot be evaluated")
            found = [f"the rules and routes of other programs cannot be evaluated: {error!r}"]
        if not self._links.loose_pickup():
            found.append(
                "net.netfilter.nf_conntrack_tcp_loose is 0: connections to GPUs that were removed "
                "hang instead of being reset; set it to 1"
            )
        level = self.conntrack_level()
        if level is not None and level.ratio > self._conntrack_threshold:
            found.append(
                f"the table of connections has {level.entries} of {level.limit} entries "
                f"({level.ratio:.0%}): when it is full, nothing on this host can open connections; conntrack -L "
                "shows whose they are, sysctl net.netfilter.nf_conntrack_max enlarges it"
            )
        return found

    def teardown(self) -> None:
        """Remove everything of RODVR, and restore the GPU NIC's forwarding setting."""
        tables = self._tables()
        self._take_over(tables)  # only their owner may delete them
        if tables:
            self._netlink.transact([ex.delete_table(family, TABLE) for family in tables])
        self._config = self._encoder = None
        try:
            self._links.remove(self._networks.local)
        finally:
            # After the tables and the route: nothing is translated any more, and what a program sends to a masked
            # address goes nowhere and is not tracked. Nothing is reset: without the tables, what provokes a reset
            # reaches no VM, and would itself be tracked.
            self._conntrack.forget(self._networks.identities, self._networks.local)

    def _tables(self) -> dict[int, _Table]:
        """Return the tables of RODVR that exist, by family."""
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

    def _enable_forwarding(self, tables: dict[int, _Table]) -> bool:
        """Enable forwarding on the GPU NIC; return whether it was enabled before RODVR was started here first."""
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
                    # An operator who deletes rodvr0 deletes its alias, which recorded the setting; the
                    # comments of the tables record the same.
                    enabled_by_rodvr = any(
                        ruleset.was_guarded(table.comment, gpu) for table in tables.values()
                    )
                    self._forwarded_before = self._links.forwarding(gpu) and not enabled_by_rodvr
                self._links.remember_forwarding(gpu, self._forwarded_before)
            self._links.set_forwarding(gpu, True)
        except FileNotFoundError:
            return bool(self._forwarded_before)
        return self._forwarded_before

    def _take_over(self, tables: dict[int, _Table]) -> bool:
        """Become the owner of *tables*; return whether both exist and have the desired configuration."""
        if not tables:
            return False
        for table in tables.values():
            if table.flags & ex.OWNER and table.owner != self._netlink.port_id:
                raise NetlinkRefused(
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
        if self._config is None or len(tables) != 2:
            return False
        if self._flags and not all(table.flags & ex.PERSIST for table in tables.values()):
            return False  # a table cannot get an owner later
        return all(table.comment == self._config.comment for table in tables.values())
