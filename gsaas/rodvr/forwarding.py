"""Would somebody else's forward chain swallow RODVR's packets?

A packet that any base chain of the forward hook drops is gone, whatever others accept. This reads such
chains the way the kernel would, for two packets only: a VM's first one to a daemon, and the answer.
Conditions it does not understand are taken as not met, so that "accept some port" does not count as
letting us through. One exception: an answer belongs to a known connection, so what accepts by the
state of the connection accepts it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum

_STATE_CONDITIONS = frozenset({"ct", "conntrack", "state"})
_DEEPEST = 16


class Verdict(Enum):
    ACCEPT = "accept"
    DROP = "drop"
    RETURN = "return"
    JUMP = "jump"
    GOTO = "goto"


@dataclass(frozen=True)
class Packet:
    incoming: str
    outgoing: str
    answer: bool


@dataclass(frozen=True)
class DeviceMatch:
    """`iifname "eth*"`, `oifname != "gpu0"`."""

    outgoing: bool
    name: str
    prefix: bool = False
    negated: bool = False

    def fits(self, packet: Packet) -> bool:
        device = packet.outgoing if self.outgoing else packet.incoming
        same = device.startswith(self.name) if self.prefix else device == self.name
        return same != self.negated


@dataclass(frozen=True)
class Rule:
    """What could be read of a rule: devices it asks for, other conditions by name, what it does."""

    devices: tuple[DeviceMatch, ...] = ()
    conditions: frozenset[str] = frozenset()
    verdict: Verdict | None = None
    target: str = ""

    def fits(self, packet: Packet) -> bool:
        if not all(match.fits(packet) for match in self.devices):
            return False
        if not self.conditions:
            return True
        by_state = self.conditions <= _STATE_CONDITIONS and self.verdict is Verdict.ACCEPT
        return packet.answer and by_state


@dataclass(frozen=True)
class BaseChain:
    """A chain on the forward hook."""

    family: str
    table: str
    name: str
    policy: Verdict


RulesOf = Callable[[str], Sequence[Rule]]
"""The rules of a chain of the same table, by name."""


def drops(chain: BaseChain, rules_of: RulesOf, packet: Packet) -> bool:
    """Whether *chain* drops *packet*."""
    verdict = _walk(chain.name, rules_of, packet, 0)
    return (chain.policy if verdict is Verdict.RETURN else verdict) is Verdict.DROP


def problem(chain: BaseChain, gpu_device: str, inner: str) -> str:
    """What an operator reads: what is wrong, what it means, what to type."""
    where = f"chain {chain.name} of nftables table {chain.family} {chain.table}"
    ways = ((inner, gpu_device), (gpu_device, inner))
    if (chain.family, chain.table, chain.name) == ("ip", "filter", "FORWARD"):
        commands = [f"iptables -I FORWARD -i {a} -o {b} -j ACCEPT" for a, b in ways]
    else:
        place = f"{chain.family} {chain.table} {chain.name}"
        commands = [f"nft insert rule {place} iifname {a} oifname {b} accept" for a, b in ways]
    return (
        f"{where} drops what RODVR forwards between {inner} and {gpu_device}, so no VM of this host "
        f"reaches its GPUs; allow it with: {'; '.join(commands)}"
    )


def legacy_note(gpu_device: str, inner: str) -> str:
    return (
        "iptables-legacy has a filter table here, which RODVR cannot read; if its FORWARD chain drops "
        f"by default, allow RODVR with: iptables-legacy -I FORWARD -i {inner} -o {gpu_device} "
        f"-j ACCEPT; iptables-legacy -I FORWARD -i {gpu_device} -o {inner} -j ACCEPT"
    )


def _walk(name: str, rules_of: RulesOf, packet: Packet, depth: int) -> Verdict:
    """ACCEPT or DROP, or RETURN if the chain decides nothing."""
    if depth > _DEEPEST:
        return Verdict.RETURN
    for rule in rules_of(name):
        if rule.verdict is None or not rule.fits(packet):
            continue
        if rule.verdict in (Verdict.ACCEPT, Verdict.DROP, Verdict.RETURN):
            return rule.verdict
        inside = _walk(rule.target, rules_of, packet, depth + 1)
        if inside is not Verdict.RETURN or rule.verdict is Verdict.GOTO:
            return inside
    return Verdict.RETURN
