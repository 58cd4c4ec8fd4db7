# SPDX-License-Identifier: Apache-2.0
"""What a rule set of netfilter does with one packet, as far as that is certain. Pure.

Rules are evaluated as the kernel does: expressions load parts of the packet into registers, change, compare and look
them up. Of a packet that was not sent, some bits are not known, such as its source port; nor is what some expressions
do. So a condition is true, false or not known, and a rule whose conditions are not known is taken as one that does not
match: "accept some port" is not mistaken for accepting RODVR's packets, and "drop some mark" not for dropping them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

SNAT, DNAT = 0x10, 0x20
"""Bits of `ct status`."""
_IPTABLES_SNAT, _IPTABLES_DNAT = 1 << 6, 1 << 7
_REGISTER_BYTES = 64
_ALL_BITS = b"\xff" * 256
_MAX_JUMPS = 16
"""As many as nftables allows (NFT_JUMP_STACK_SIZE); more are a circle."""


class Verdict(Enum):
    """What a rule does with a packet that it matches."""

    ACCEPT = "accept"
    DROP = "drop"
    RETURN = "return"
    JUMP = "jump"
    GOTO = "goto"


class Value(NamedTuple):
    """Some bytes, of which not all bits need be known."""

    data: bytes
    known: bytes
    """A mask: 1 for a bit that is known."""

    @classmethod
    def of(cls, data: bytes) -> Value:
        """Return a value that is known."""
        return cls(data, b"\xff" * len(data))

    @classmethod
    def unknown(cls, length: int) -> Value:
        """Return a value of which nothing is known."""
        return cls(bytes(length), bytes(length))

    @property
    def is_known(self) -> bool:
        """Return whether all bits are known."""
        return self.known == _ALL_BITS[: len(self.known)]

    def equals(self, other: bytes) -> bool | None:
        """Return whether the value is *other*; None if that is not known."""
        length = len(other)
        mine, known = self.data[:length], self.known[:length]
        if known == _ALL_BITS[:length]:
            return mine == other
        return (
            False if any((m ^ o) & k for m, k, o in zip(mine, known, other, strict=False)) else None
        )

    def part(self, offset: int, length: int) -> Value:
        """Return some of the bytes; those beyond the end are not known."""
        found = Value(self.data[offset : offset + length], self.known[offset : offset + length])
        missing = length - len(found.data)
        return (
            Value(found.data + bytes(missing), found.known + bytes(missing)) if missing else found
        )


@dataclass(frozen=True)
class Load:
    """Load *length* bytes of a *field* of the packet, from *offset* on, into the registers."""

    target: int
    """In bytes from the first register, here and elsewhere."""
    field: str
    offset: int = 0
    length: int = 4


@dataclass(frozen=True)
class Constant:
    """Load a constant."""

    target: int
    data: bytes


@dataclass(frozen=True)
class Mask:
    """Clear all bits but those in *mask*, then invert those in *inverted*."""

    target: int
    source: int
    mask: bytes
    inverted: bytes


@dataclass(frozen=True)
class Swap:
    """Change the order of bytes in each group of *size*."""

    target: int
    source: int
    length: int
    size: int


@dataclass(frozen=True)
class Compare:
    """Go on if the registers are equal to *low*, or between *low* and *high*; with *negated*, if they are not."""

    source: int
    low: bytes
    high: bytes | None = None
    negated: bool = False


@dataclass(frozen=True)
class Lookup:
    """Go on if a set contains what is in the registers; with *negated*, if not. A map loads its data."""

    set: str
    source: int
    target: int | None = None
    negated: bool = False
    gives_verdict: bool = False


@dataclass(frozen=True)
class IsState:
    """Go on if the state of the connection is among *states*: bits as the extensions of iptables have them."""

    states: int
    negated: bool = False


@dataclass(frozen=True)
class Opaque:
    """A condition that is not understood. It may load something into *target*."""

    name: str
    target: int | None = None


@dataclass(frozen=True)
class Decide:
    """End the rule with a verdict."""

    verdict: Verdict
    chain: str = ""
    """The chain to jump or go to."""


@dataclass(frozen=True)
class Untrack:
    """Keep the packet out of connection tracking."""


@dataclass(frozen=True)
class SetZone:
    """Track the packet in another zone: the number in a register, or *zone*."""

    source: int | None = None
    zone: int = 0


Expression = (
    Load | Constant | Mask | Swap | Compare | Lookup | IsState | Opaque | Decide | Untrack | SetZone
)


@dataclass(frozen=True)
class Rule:
    """A rule, and the number by which `nft -a list ruleset` names it."""

    expressions: tuple[Expression, ...]
    handle: int | None = None


@dataclass(frozen=True)
class Element:
    """What a set has for a key: nothing but the key, data, or a verdict."""

    data: bytes = b""
    verdict: Decide | None = None


class Rules:
    """The rules of one table."""

    def __init__(
        self,
        rules_of: Callable[[str], Sequence[Rule]],
        find: Callable[[str, Value], Element | bool | None] = lambda _name, _key: None,
    ) -> None:
        """*rules_of* returns the rules of a chain by its name; *find* what a set has for a key: False for nothing,
        None if that is not known."""
        self.rules_of = rules_of
        self.find = find


@dataclass(frozen=True)
class Packet:
    """A packet as a rule sees it."""

    fields: Mapping[str, Value]
    """By name: `network`, `transport` (headers), `meta KEY` and `ct KEY`. A field that is missing is not known."""
    absent: frozenset[str] = frozenset()
    """Fields that this packet does not have, so that no rule that loads one matches."""


@dataclass
class Outcome:
    """What became of a packet in one base chain."""

    verdict: Verdict = Verdict.ACCEPT
    culprit: str = ""
    """Names the rule or policy that drops it."""
    untracked: str = ""
    """Names the rule that keeps it out of connection tracking."""
    zone: int | None = 0
    """The zone that it is tracked in; None: not known."""
    zone_culprit: str = ""


_EMPTY = Value.unknown(_REGISTER_BYTES)


@dataclass
class _Evaluation:
    rules: Rules
    packet: Packet
    outcome: Outcome = field(default_factory=Outcome)
    loaded: dict[tuple[str, int, int], Value] = field(default_factory=dict)
    """What was loaded of the packet: long chains load the same again and again."""

    def chain(self, name: str, depth: int = 0) -> Verdict:
        """Return ACCEPT or DROP, or RETURN if the chain decides nothing."""
        if depth > _MAX_JUMPS:
            return Verdict.RETURN
        for number, rule in enumerate(self.rules.rules_of(name), 1):
            decision = self._rule(rule, number, name)
            if decision is None:
                continue
            if decision.verdict in (Verdict.JUMP, Verdict.GOTO):
                verdict = self.chain(decision.chain, depth + 1)
                # After a jump that decided nothing, this chain goes on; after a goto, it does not.
                if verdict is not Verdict.RETURN or decision.verdict is Verdict.GOTO:
                    return verdict
                continue
            if decision.verdict is Verdict.DROP:
                self.outcome.culprit = _place(rule, number, name)
            return decision.verdict
        return Verdict.RETURN

    def _rule(self, rule: Rule, number: int, chain: str) -> Decide | None:
        """Return what the rule decides about the packet; None if it does not match, or decides nothing."""
        registers = _EMPTY
        for expression in rule.expressions:
            match expression:
                case Load(target, name, offset, length):
                    if name in self.packet.absent:
                        return None
                    registers = _stored(registers, target, self._loaded(name, offset, length))
                case Constant(target, data):
                    registers = _stored(registers, target, Value.of(data))
                case Mask(target, source, mask, inverted):
                    registers = _stored(
                        registers,
                        target,
                        _masked(registers.part(source, len(mask)), mask, inverted),
                    )
                case Swap(target, source, length, size):
                    swapped = _swapped(registers.part(source, length), size)
                    registers = _stored(registers, target, swapped)
                case Compare():
                    if not _compares(registers, expression):
                        return None
                case IsState(states, negated):
                    if bool(self._states() & states) == negated:
                        return None
                case Lookup(name, source, target, negated, gives_verdict):
                    found = self.rules.find(name, registers.part(source, _REGISTER_BYTES - source))
                    if found is None or isinstance(found, Element) == negated:
                        return None
                    if isinstance(found, Element) and gives_verdict:
                        return found.verdict
                    if isinstance(found, Element) and target is not None:
                        registers = _stored(registers, target, _padded(Value.of(found.data)))
                case Opaque():
                    return None
                case Decide():
                    return expression
                case Untrack():
                    self.outcome.untracked = self.outcome.untracked or _place(rule, number, chain)
                case SetZone(source, zone):
                    if source is not None:
                        found_zone = registers.part(source, 2)
                        zone = int.from_bytes(found_zone.data, "little")
                        self.outcome.zone = zone if found_zone.is_known else None
                    else:
                        self.outcome.zone = zone
                    self.outcome.zone_culprit = _place(rule, number, chain)
        return None

    def _loaded(self, name: str, offset: int, length: int) -> Value:
        key = name, offset, length
        if key not in self.loaded:
            whole = self.packet.fields.get(name, Value.unknown(0))
            self.loaded[key] = _padded(whole.part(offset, length))
        return self.loaded[key]

    def _states(self) -> int:
        """Return the states of the packet's connection, as the extensions of iptables count them."""
        state, status = (
            int.from_bytes(self.packet.fields[name].data[:4], sys.byteorder)
            if name in self.packet.fields and name not in self.packet.absent
            else 0
            for name in ("ct state", "ct status")
        )
        return state | _IPTABLES_SNAT * bool(status & SNAT) | _IPTABLES_DNAT * bool(status & DNAT)


def evaluate(chain: str, policy: Verdict, rules: Rules, packet: Packet) -> Outcome:
    """Return what base chain *chain* with this policy does with *packet*."""
    evaluation = _Evaluation(rules, packet)
    verdict = evaluation.chain(chain)
    outcome = evaluation.outcome
    if verdict is Verdict.RETURN:
        verdict = policy
        if policy is Verdict.DROP:
            outcome.culprit = f"the policy of chain {chain}"
    outcome.verdict = verdict
    return outcome


def _place(rule: Rule, number: int, chain: str) -> str:
    handle = "" if rule.handle is None else f" (handle {rule.handle})"
    return f"rule {number}{handle} of chain {chain}"


def _padded(value: Value) -> Value:
    """Return *value* as registers have it: the rest of a register of four bytes is zero."""
    rest = bytes(-len(value.data) % 4)
    return Value(value.data + rest, value.known + b"\xff" * len(rest))


def _stored(registers: Value, target: int, value: Value) -> Value:
    end = target + len(value.data)
    return Value(
        registers.data[:target] + value.data + registers.data[end:],
        registers.known[:target] + value.known + registers.known[end:],
    )


def _masked(value: Value, mask: bytes, inverted: bytes) -> Value:
    data = bytes((v & m) ^ x for v, m, x in zip(value.data, mask, inverted, strict=True))
    # What is cleared is known.
    known = bytes(k | (~m & 0xFF) for k, m in zip(value.known, mask, strict=True))
    return Value(data, known)


def _swapped(value: Value, size: int) -> Value:
    groups = [value.part(start, size) for start in range(0, len(value.data), size)]
    return Value(
        b"".join(group.data[::-1] for group in groups),
        b"".join(group.known[::-1] for group in groups),
    )


def _compares(registers: Value, condition: Compare) -> bool:
    """Return whether the condition is certainly met."""
    value = registers.part(condition.source, len(condition.low))
    if condition.high is None:
        equal = value.equals(condition.low)
        return equal is not None and equal != condition.negated
    if not value.is_known:
        return False
    return (condition.low <= value.data <= condition.high) != condition.negated
