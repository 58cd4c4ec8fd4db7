# SPDX-License-Identifier: Apache-2.0
"""What the kernel contains, what it should contain, and the operations that lead from one to the other.

This module computes with values only. It knows the shape of the datapath: a chain per tap; a return path
and mappings per identity, which stands for one address of a VM port on its host; the sources, by which a tap's
packets from further addresses of the port get their identities; and, apart from these, the mappings of the host's own
programs. It knows nothing of netlink, clocks or threads. Its rules:

1. One port is one chain on its tap and, for each of its addresses, one return path and its mappings; and a source for
   each address after the first. They change together.
2. Deletions of a port come before its additions: the kernel refuses to overwrite a map element.
3. A mapping that is removed or changed takes its live connections with it: every plan names the
   connections to cut once its operations are in force.
4. The tag on a chain is what makes restarts possible: an endpoint reads all that it has to know from there,
   never from a file.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from gsaas.objects.address import Address
from gsaas.objects.binding import Binding, LocalBinding


@dataclass(frozen=True)
class ChainTag:
    """The port that a tap's chain serves, as written into the chain's comment, with the first of its addresses."""

    identity: str
    """That of the first address."""
    ifindex: int
    """Interface index of the tap when the chain was made: a tap of the same name may be another one."""
    mac: str
    ip: str
    port_id: str

    def __str__(self) -> str:
        return f"{self.identity} {self.ifindex} {self.mac} {self.ip} {self.port_id}"

    @classmethod
    def parse(cls, text: str) -> ChainTag:
        """Undo `str`; `ValueError` if *text* is not a tag."""
        # Only the last field, the port id, may contain spaces.
        identity, ifindex, mac, ip, port_id = text.split(" ", 4)
        return cls(identity, int(ifindex), mac, ip, port_id)

    @property
    def return_path(self) -> ReturnPath:
        """Where replies to the port go."""
        return ReturnPath(self.ifindex, self.mac, self.ip)


@dataclass(frozen=True)
class ReturnPath:
    """Where replies to an identity go: the tap, and the addresses that the VM itself uses."""

    ifindex: int
    mac: str
    ip: str


@dataclass(frozen=True)
class Attachment:
    """What one tap's chain should be. Without mappings, every connection to a masked address is reset."""

    tag: ChainTag
    mappings: Mapping[Address, Address] = field(default_factory=dict)
    sources: Mapping[str, str] = field(default_factory=dict)
    """Further addresses of the port -> their identities."""

    @classmethod
    def for_binding(
        cls,
        binding: Binding,
        identity: str,
        ifindex: int,
        sources: Mapping[str, str] = MappingProxyType({}),
    ) -> Attachment:
        """Return the attachment of *binding* to the tap with this interface index."""
        tag = ChainTag(identity, ifindex, binding.mac.lower(), binding.ip, binding.port_id)
        return cls(tag, binding.mappings, sources)

    def return_paths(self) -> dict[str, ReturnPath]:
        """Return identity -> where its replies go, the first address's first."""
        tag = self.tag
        others = {
            identity: ReturnPath(tag.ifindex, tag.mac, ip) for ip, identity in self.sources.items()
        }
        return {tag.identity: tag.return_path, **others}


def unmapped_attachment(state: DatapathState, tag: ChainTag) -> Attachment:
    """Return what the chain of a removed binding should be: every connection of its VM is reset."""
    return Attachment(tag, sources=dict(state.sources.get(tag.ifindex, {})))


@dataclass(frozen=True)
class DeleteChain:
    """Delete the chain of a tap."""

    tap: str


@dataclass(frozen=True)
class AddChain:
    """Add a chain to a tap."""

    tap: str
    tag: ChainTag


@dataclass(frozen=True)
class DeleteSources:
    """Accept packets from these addresses no longer from the tap with this interface index."""

    ifindex: int
    ips: tuple[str, ...]


@dataclass(frozen=True)
class AddSources:
    """Accept packets from these addresses from the tap with this interface index: address -> identity."""

    ifindex: int
    identities: Mapping[str, str]


@dataclass(frozen=True)
class DeleteReturnPath:
    """Delete the return path of an identity."""

    identity: str


@dataclass(frozen=True)
class AddReturnPath:
    """Add the return path of an identity."""

    identity: str
    path: ReturnPath


@dataclass(frozen=True)
class DeleteMappings:
    """Delete the mappings of these masked addresses of an identity."""

    identity: str
    masked: tuple[Address, ...]


@dataclass(frozen=True)
class AddMappings:
    """Add mappings of an identity: masked address -> real address."""

    identity: str
    mappings: Mapping[Address, Address]


@dataclass(frozen=True)
class LocalKey:
    """A masked address as programs of the host may use it: those of one user, or of all users (None)."""

    masked: Address
    uid: int | None


@dataclass(frozen=True)
class DeleteLocalMappings:
    """Delete mappings of the host's own programs."""

    keys: tuple[LocalKey, ...]


@dataclass(frozen=True)
class AddLocalMappings:
    """Add mappings of the host's own programs to real addresses."""

    mappings: Mapping[LocalKey, Address]


Operation = (
    DeleteChain
    | AddChain
    | DeleteSources
    | AddSources
    | DeleteReturnPath
    | AddReturnPath
    | DeleteMappings
    | AddMappings
    | DeleteLocalMappings
    | AddLocalMappings
)


@dataclass(frozen=True)
class Cut:
    """Connections to end: those to one masked address, or all of an identity (None)."""

    identity: str
    masked: Address | None = None


@dataclass(frozen=True)
class LocalCut:
    """Connections of the host's own programs to end: those to one masked address."""

    masked: Address


@dataclass(frozen=True)
class Connection:
    """A connection that the kernel tracks: the identity that opened it, to what, and where it was sent."""

    identity: str
    masked: Address
    real: Address


@dataclass
class Plan:
    """Operations for one transaction, in order, and the connections to cut after it."""

    operations: list[Operation] = field(default_factory=list)
    cuts: list[Cut | LocalCut] = field(default_factory=list)

    def extend(self, other: Plan) -> None:
        """Append the operations and cuts of *other*."""
        self.operations += other.operations
        self.cuts += other.cuts


@dataclass
class DatapathState:
    """What the two tables contain."""

    chains: dict[str, ChainTag | None] = field(default_factory=dict)
    """By tap. The tag is None where the chain's comment or rules are not RODVR's."""
    return_paths: dict[str, ReturnPath] = field(default_factory=dict)
    """By identity."""
    mappings: dict[str, dict[Address, Address]] = field(default_factory=dict)
    """Masked address -> real address, by identity; no identity has an empty dictionary."""
    local_mappings: dict[LocalKey, Address] = field(default_factory=dict)
    """The mappings of the host's own programs."""
    sources: dict[int, dict[str, str]] = field(default_factory=dict)
    """Address -> identity, by the interface index of the tap; without the first address of each port."""

    def copy(self) -> DatapathState:
        """Return a state that can be changed without changing this one."""
        return DatapathState(
            dict(self.chains),
            dict(self.return_paths),
            {identity: dict(current) for identity, current in self.mappings.items()},
            dict(self.local_mappings),
            {ifindex: dict(current) for ifindex, current in self.sources.items()},
        )

    def commit(self, operations: Iterable[Operation]) -> None:
        """Change this state as *operations*, which the kernel has accepted, changed the tables."""
        for operation in operations:
            match operation:
                case AddMappings(identity, mappings):
                    self.mappings.setdefault(identity, {}).update(mappings)
                case DeleteMappings(identity, masked):
                    current = self.mappings[identity]
                    for address in masked:
                        del current[address]
                    if not current:
                        del self.mappings[identity]
                case AddChain(tap, tag):
                    self.chains[tap] = tag
                case DeleteChain(tap):
                    del self.chains[tap]
                case AddSources(ifindex, identities):
                    self.sources.setdefault(ifindex, {}).update(identities)
                case DeleteSources(ifindex, ips):
                    for ip in ips:
                        del self.sources[ifindex][ip]
                    if not self.sources[ifindex]:
                        del self.sources[ifindex]
                case AddReturnPath(identity, path):
                    self.return_paths[identity] = path
                case DeleteReturnPath(identity):
                    del self.return_paths[identity]
                case AddLocalMappings(local_mappings):
                    self.local_mappings.update(local_mappings)
                case DeleteLocalMappings(keys):
                    for key in keys:
                        del self.local_mappings[key]


def attach(state: DatapathState, tap: str, desired: Attachment) -> Plan:
    """Return the plan that makes the chain of *tap* equal to *desired*; empty if it is that already."""
    plan = Plan()
    tag = desired.tag
    paths = desired.return_paths()
    current_tag = state.chains.get(tap)
    if tap in state.chains and current_tag != tag:
        plan.operations.append(DeleteChain(tap))
        if current_tag is not None and current_tag.identity not in paths:
            plan.extend(_remove_identity(state, current_tag.identity))
        elif current_tag is not None and current_tag.ifindex != tag.ifindex:
            # Another tap: the VM was started anew, and knows nothing of its connections.
            plan.cuts += map(Cut, paths)
    former = tag.ifindex if current_tag is None else current_tag.ifindex
    if former != tag.ifindex and not _is_elsewhere(state, former, tap):
        plan.extend(_remove_sources(state, former, keep=paths))
    plan.extend(_remove_sources(state, tag.ifindex, desired.sources, keep=paths))
    for identity, path in paths.items():
        plan.extend(_connect(state, identity, path, desired.mappings))
    present = state.sources.get(tag.ifindex, {})
    added = {ip: name for ip, name in desired.sources.items() if present.get(ip) != name}
    if added:
        plan.operations.append(AddSources(tag.ifindex, added))
    # The chain comes last: once it is there, packets come, and everything behind it must be ready.
    if current_tag != tag:
        plan.operations.append(AddChain(tap, tag))
    return plan


def detach(state: DatapathState, tap: str) -> Plan:
    """Return the plan that removes the chain of *tap*, and everything of the identity that it serves."""
    plan = Plan()
    if tap in state.chains:
        plan.operations.append(DeleteChain(tap))
        tag = state.chains[tap]
        if tag is not None:
            plan.extend(_remove_identity(state, tag.identity))
            plan.extend(_remove_sources(state, tag.ifindex))
    return plan


def reconcile(
    state: DatapathState, desired: Mapping[str, Attachment], *, keep: Collection[str] = ()
) -> Plan:
    """Return the plan that makes all chains equal to *desired*, by tap; taps in *keep* stay as they are.

    Mappings of the host's own programs are not changed.
    """
    plan = Plan()
    planned = state.copy()

    def append(part: Plan) -> None:
        planned.commit(part.operations)
        plan.extend(part)

    # Chains that stop using an identity come before those that begin to: ports may have swapped taps.
    for tap in sorted(state.chains.keys() - set(keep)):
        tag = state.chains[tap]
        attachment = desired.get(tap)
        if attachment is None or (tag is not None and tag.identity != attachment.tag.identity):
            append(detach(planned, tap))
    # So do sources: an identity may have been that of another tap.
    kept = {tag.ifindex for tap in keep if (tag := state.chains.get(tap)) is not None}
    wanted = {each.tag.ifindex: each.sources for each in desired.values()}
    for ifindex in sorted(planned.sources.keys() - kept):
        append(_remove_sources(planned, ifindex, wanted.get(ifindex, {})))
    for tap in sorted(desired):
        append(attach(planned, tap, desired[tap]))
    tags = [tag for tag in planned.chains.values() if tag is not None]
    used = {tag.identity for tag in tags}
    for tag in tags:
        used.update(planned.sources.get(tag.ifindex, {}).values())
    for identity in sorted((planned.return_paths.keys() | planned.mappings.keys()) - used):
        append(_remove_identity(planned, identity))
    plan.cuts = list(dict.fromkeys(plan.cuts))
    return plan


def local_mappings(binding: LocalBinding) -> dict[LocalKey, Address]:
    """Return what `DatapathState.local_mappings` has for *binding* when it is installed."""
    return {LocalKey(masked, binding.uid): real for masked, real in binding.mappings.items()}


def replace_local(
    state: DatapathState, former: Collection[LocalKey], desired: Mapping[LocalKey, Address]
) -> Plan:
    """Return the plan that replaces the local mappings *former* by *desired*; others stay as they are."""
    concerned = dict.fromkeys([*former, *desired])
    current = [key for key in concerned if key in state.local_mappings]
    removed = [key for key in current if state.local_mappings[key] != desired.get(key)]
    added = {key: real for key, real in desired.items() if state.local_mappings.get(key) != real}
    plan = Plan()
    if removed:
        plan.operations.append(DeleteLocalMappings(tuple(removed)))
        plan.cuts += dict.fromkeys(LocalCut(key.masked) for key in removed)
    if added:
        plan.operations.append(AddLocalMappings(added))
    return plan


def stale_local_connections(
    connections: Iterable[tuple[Address, Address]], state: DatapathState
) -> list[LocalCut]:
    """Return cuts for connections of the host's own programs, (masked, real), that go where no mapping leads."""
    mapped = {(key.masked, real) for key, real in state.local_mappings.items()}
    stale = {masked for masked, real in connections if (masked, real) not in mapped}
    return [LocalCut(masked) for masked in sorted(stale)]


def stale_connections(connections: Iterable[Connection], state: DatapathState) -> list[Cut]:
    """Return cuts for connections that go where no mapping leads: an endpoint may die before it cuts them."""
    cuts = {
        Cut(connection.identity, connection.masked)
        for connection in connections
        if state.mappings.get(connection.identity, {}).get(connection.masked) != connection.real
    }
    return sorted(cuts, key=lambda cut: (cut.identity, cut.masked))


def _change_mappings(
    state: DatapathState, identity: str, desired: Mapping[Address, Address]
) -> tuple[list[Operation], list[Cut]]:
    current = state.mappings.get(identity)
    if not current:
        return ([AddMappings(identity, dict(desired))] if desired else []), []
    removed = tuple(masked for masked, real in current.items() if desired.get(masked) != real)
    added = {masked: real for masked, real in desired.items() if current.get(masked) != real}
    operations: list[Operation] = []
    if removed:
        operations.append(DeleteMappings(identity, removed))
    if added:
        operations.append(AddMappings(identity, added))
    # If no mapping stays, one pass over the connection table is sufficient for all of the identity.
    if len(removed) == len(current):
        return operations, [Cut(identity)]
    return operations, [Cut(identity, masked) for masked in removed]


def _is_elsewhere(state: DatapathState, ifindex: int, tap: str) -> bool:
    """Return whether a chain on another tap than *tap* is for the interface with this index: it was renamed."""
    return any(
        tag is not None and tag.ifindex == ifindex
        for name, tag in state.chains.items()
        if name != tap
    )


def _connect(
    state: DatapathState, identity: str, path: ReturnPath, mappings: Mapping[Address, Address]
) -> Plan:
    """Return the plan that gives *identity* this return path and these mappings."""
    current = state.return_paths.get(identity)
    operations, cuts = _change_mappings(state, identity, mappings)
    if current != path:
        if current is not None:
            operations.insert(0, DeleteReturnPath(identity))
        operations.append(AddReturnPath(identity, path))
    return Plan(operations, [*cuts])


def _remove_sources(
    state: DatapathState,
    ifindex: int,
    wanted: Mapping[str, str] = MappingProxyType({}),
    *,
    keep: Collection[str] = (),
) -> Plan:
    """Return the plan that removes all sources of a tap but *wanted*, and their identities but those in *keep*."""
    current = state.sources.get(ifindex, {})
    removed = {ip: name for ip, name in current.items() if wanted.get(ip) != name}
    plan = Plan([DeleteSources(ifindex, tuple(removed))] if removed else [])
    kept = {*keep, *(name for ip, name in current.items() if ip not in removed)}
    for identity in dict.fromkeys(removed.values()):
        if identity not in kept:
            plan.extend(_remove_identity(state, identity))
    return plan


def _remove_identity(state: DatapathState, identity: str) -> Plan:
    operations, cuts = _change_mappings(state, identity, {})
    if identity in state.return_paths:
        operations.append(DeleteReturnPath(identity))
    return Plan(operations, [*cuts])
