"""What the kernel holds, what it should hold, and the steps from one to the other.

Plain values in, plain values out: this file knows the shape of the datapath (a chain per tap, the way
back per identity, the mappings per identity; and apart from them the mappings of the host's own
programs) and nothing of netlink, clocks or threads. Its rules:

1. One port is one chain on its tap, one way back, and its mappings. The three change together.
2. Deletions of a port come before its additions: the kernel refuses to overwrite a map element.
3. A mapping that goes away or changes takes its live connections with it: every plan names the
   connections to cut once its operations are in force.
4. The tag on a chain is the memory of the datapath. Whatever an agent has to know after a restart is
   read back from there, never from a file.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from gsaas.objects.address import Address
from gsaas.objects.binding import Binding, LocalBinding


@dataclass(frozen=True)
class Tag:
    """Who a tap's chain works for, as written into the chain's comment."""

    identity: str
    ifindex: int
    mac: str
    ip: str
    port_id: str

    def __str__(self) -> str:
        return f"{self.identity} {self.ifindex} {self.mac} {self.ip} {self.port_id}"

    @classmethod
    def parse(cls, text: str) -> Tag:
        """Undo `str`; `ValueError` if *text* is not a tag."""
        identity, ifindex, mac, ip, port_id = text.split(" ", 4)
        return cls(identity, int(ifindex), mac, ip, port_id)

    @property
    def way_back(self) -> WayBack:
        return WayBack(self.ifindex, self.mac, self.ip)


@dataclass(frozen=True)
class WayBack:
    """Where replies to an identity go: the tap, and the addresses the VM knows as its own."""

    ifindex: int
    mac: str
    ip: str


@dataclass(frozen=True)
class Attachment:
    """What one tap should hold. No mappings: attached, and every masked address is answered no."""

    tag: Tag
    mappings: Mapping[Address, Address] = field(default_factory=dict)

    @classmethod
    def of(cls, binding: Binding, identity: str, ifindex: int) -> Attachment:
        tag = Tag(identity, ifindex, binding.mac.lower(), binding.ip, binding.port_id)
        return cls(tag, binding.mappings)


@dataclass(frozen=True)
class DeleteChain:
    tap: str


@dataclass(frozen=True)
class AddChain:
    tap: str
    tag: Tag


@dataclass(frozen=True)
class DeleteWayBack:
    identity: str


@dataclass(frozen=True)
class AddWayBack:
    identity: str
    way: WayBack


@dataclass(frozen=True)
class DeleteMappings:
    identity: str
    masked: tuple[Address, ...]


@dataclass(frozen=True)
class AddMappings:
    identity: str
    mappings: Mapping[Address, Address]


@dataclass(frozen=True)
class Way:
    """A masked address as programs of the host may use it: those of one user, or with None everybody's."""

    masked: Address
    uid: int | None


@dataclass(frozen=True)
class DeleteLocal:
    ways: tuple[Way, ...]


@dataclass(frozen=True)
class AddLocal:
    mappings: Mapping[Way, Address]


Operation = (
    DeleteChain
    | AddChain
    | DeleteWayBack
    | AddWayBack
    | DeleteMappings
    | AddMappings
    | DeleteLocal
    | AddLocal
)


@dataclass(frozen=True)
class Cut:
    """Connections to end: those of one masked address, or all of an identity."""

    identity: str
    masked: Address | None = None


@dataclass(frozen=True)
class CutLocal:
    """Connections of the host's own programs to end: those of one masked address."""

    masked: Address


@dataclass(frozen=True)
class Connection:
    """A connection the kernel tracks: who opened it, to what, and the daemon it was sent to."""

    identity: str
    masked: Address
    real: Address


@dataclass
class Plan:
    """Operations for ONE transaction, in order, and what to cut after it."""

    operations: list[Operation] = field(default_factory=list)
    cuts: list[Cut | CutLocal] = field(default_factory=list)

    def extend(self, other: Plan) -> None:
        self.operations += other.operations
        self.cuts += other.cuts


@dataclass
class State:
    """What the two tables hold. A chain whose comment or rules are not ours has the tag None."""

    chains: dict[str, Tag | None] = field(default_factory=dict)
    ways_back: dict[str, WayBack] = field(default_factory=dict)
    mappings: dict[str, dict[Address, Address]] = field(default_factory=dict)
    local: dict[Way, Address] = field(default_factory=dict)

    def copy(self) -> State:
        mappings = {identity: dict(held) for identity, held in self.mappings.items()}
        return State(dict(self.chains), dict(self.ways_back), mappings, dict(self.local))

    def commit(self, operations: Iterable[Operation]) -> None:
        """Follow what the kernel has accepted."""
        for operation in operations:
            match operation:
                case AddMappings(identity, mappings):
                    self.mappings.setdefault(identity, {}).update(mappings)
                case DeleteMappings(identity, masked):
                    held = self.mappings[identity]
                    for address in masked:
                        del held[address]
                    if not held:
                        del self.mappings[identity]
                case AddChain(tap, tag):
                    self.chains[tap] = tag
                case DeleteChain(tap):
                    del self.chains[tap]
                case AddWayBack(identity, way):
                    self.ways_back[identity] = way
                case DeleteWayBack(identity):
                    del self.ways_back[identity]
                case AddLocal(mappings):
                    self.local.update(mappings)
                case DeleteLocal(ways):
                    for way in ways:
                        del self.local[way]


def attach(state: State, tap: str, wanted: Attachment) -> Plan:
    """Make *tap* hold exactly *wanted*; an empty plan if it does already."""
    plan = Plan()
    tag = wanted.tag
    held_tag = state.chains.get(tap)
    if tap in state.chains and held_tag != tag:
        plan.operations.append(DeleteChain(tap))
        if held_tag is not None and held_tag.identity != tag.identity:
            plan.extend(_forget_identity(state, held_tag.identity))
    way = tag.way_back
    held_way = state.ways_back.get(tag.identity)
    if held_way is not None and held_way != way:
        plan.operations.append(DeleteWayBack(tag.identity))
    changes, cuts = _mapping_changes(state, tag.identity, wanted.mappings)
    plan.operations += changes
    plan.cuts += cuts
    if held_way != way:
        plan.operations.append(AddWayBack(tag.identity, way))
    if held_tag != tag:
        plan.operations.append(AddChain(tap, tag))
    return plan


def detach(state: State, tap: str) -> Plan:
    """Make *tap* hold nothing; whatever belonged to its identity goes with it."""
    plan = Plan()
    if tap in state.chains:
        plan.operations.append(DeleteChain(tap))
        tag = state.chains[tap]
        if tag is not None:
            plan.extend(_forget_identity(state, tag.identity))
    return plan


def reconcile(
    state: State, wanted: Mapping[str, Attachment], *, keep: Collection[str] = ()
) -> Plan:
    """Make the whole state equal to *wanted* (tap -> attachment); taps in *keep* stay as they are."""
    plan = Plan()
    ahead = state.copy()

    def step(part: Plan) -> None:
        ahead.commit(part.operations)
        plan.operations.extend(part.operations)
        plan.cuts.extend(part.cuts)

    # What lets go of an identity comes before what takes it: ports may have changed places.
    for tap in sorted(state.chains.keys() - set(keep)):
        tag = state.chains[tap]
        heir = wanted.get(tap)
        if heir is None or (tag is not None and tag.identity != heir.tag.identity):
            step(detach(ahead, tap))
    for tap in sorted(wanted):
        step(attach(ahead, tap, wanted[tap]))
    held = {tag.identity for tag in ahead.chains.values() if tag is not None}
    for identity in sorted((ahead.ways_back.keys() | ahead.mappings.keys()) - held):
        step(_forget_identity(ahead, identity))
    plan.cuts = list(dict.fromkeys(plan.cuts))
    return plan


def ways(binding: LocalBinding) -> dict[Way, Address]:
    """What the state holds for *binding*."""
    return {Way(masked, binding.uid): real for masked, real in binding.mappings.items()}


def relocate(state: State, former: Collection[Way], wanted: Mapping[Way, Address]) -> Plan:
    """Make the host's own programs have *wanted* in the place of *former*; other ways stay as they are."""
    held = [way for way in dict.fromkeys([*former, *wanted]) if way in state.local]
    gone = [way for way in held if state.local[way] != wanted.get(way)]
    new = {way: real for way, real in wanted.items() if state.local.get(way) != real}
    plan = Plan()
    if gone:
        plan.operations.append(DeleteLocal(tuple(gone)))
        plan.cuts += dict.fromkeys(CutLocal(way.masked) for way in gone)
    if new:
        plan.operations.append(AddLocal(new))
    return plan


def stale_local_connections(
    connections: Iterable[tuple[Address, Address]], state: State
) -> list[CutLocal]:
    """Cuts for connections, (masked, real), of the host's own programs that no mapping sends there."""
    sent = {(way.masked, real) for way, real in state.local.items()}
    stale = {masked for masked, real in connections if (masked, real) not in sent}
    return [CutLocal(masked) for masked in sorted(stale)]


def stale_connections(connections: Iterable[Connection], state: State) -> list[Cut]:
    """Cuts for connections that go where no mapping sends them (an agent died before cutting them)."""
    cuts = {
        Cut(connection.identity, connection.masked)
        for connection in connections
        if state.mappings.get(connection.identity, {}).get(connection.masked) != connection.real
    }
    return sorted(cuts, key=lambda cut: (cut.identity, cut.masked))


def _mapping_changes(
    state: State, identity: str, wanted: Mapping[Address, Address]
) -> tuple[list[Operation], list[Cut]]:
    held = state.mappings.get(identity)
    if not held:
        return ([AddMappings(identity, dict(wanted))] if wanted else []), []
    gone = tuple(masked for masked, real in held.items() if wanted.get(masked) != real)
    new = {masked: real for masked, real in wanted.items() if held.get(masked) != real}
    operations: list[Operation] = []
    if gone:
        operations.append(DeleteMappings(identity, gone))
    if new:
        operations.append(AddMappings(identity, new))
    # One walk over the connection table ends all of an identity; prefer it when nothing survives.
    whole = len(gone) == len(held)
    return operations, [Cut(identity)] if whole else [Cut(identity, masked) for masked in gone]


def _forget_identity(state: State, identity: str) -> Plan:
    operations, cuts = _mapping_changes(state, identity, {})
    if identity in state.ways_back:
        operations.append(DeleteWayBack(identity))
    return Plan(operations, cuts)
