# SPDX-License-Identifier: Apache-2.0
"""Finds forward chains of other programs that drop RODVR's packets.

A packet that any base chain of the forward hook drops is gone, whatever other chains accept. This module
evaluates such chains as the kernel would, for two packets only: a VM's first one to a daemon, and the reply.
A condition that it does not understand counts as not met, so that "accept some port" is not mistaken for
accepting RODVR's packets. One exception: a reply belongs to a known connection, so a rule that accepts by
the state of the connection accepts it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum

_STATE_CONDITIONS = frozenset({"ct", "conntrack", "state"})
_MAX_JUMPS = 16
"""As many as nftables allows (NFT_JUMP_STACK_SIZE); more are a circle."""


class Verdict(Enum):
    """What a rule does with a packet that it matches."""

    ACCEPT = "accept"
    DROP = "drop"
    RETURN = "return"
    JUMP = "jump"
    GOTO = "goto"


@dataclass(frozen=True)
class Packet:
    """A forwarded packet: its interfaces, and whether it is a reply within a known connection."""

    incoming: str
    outgoing: str
    reply: bool


@dataclass(frozen=True)
class DeviceMatch:
    """A condition on an interface: `iifname "eth*"`, `oifname != "gpu0"`."""

    outgoing: bool
    name: str
    prefix: bool = False
    negated: bool = False

    def matches(self, packet: Packet) -> bool:
        """Return whether *packet* meets the condition."""
        device = packet.outgoing if self.outgoing else packet.incoming
        same = device.startswith(self.name) if self.prefix else device == self.name
        return same != self.negated


@dataclass(frozen=True)
class ForwardRule:
    """What could be read of a rule: its device conditions, its other conditions by name, its verdict."""

    devices: tuple[DeviceMatch, ...] = ()
    conditions: frozenset[str] = frozenset()
    verdict: Verdict | None = None
    target: str = ""
    """The chain to jump or go to."""

    def matches(self, packet: Packet) -> bool:
        """Return whether *packet* certainly meets all conditions."""
        if not all(match.matches(packet) for match in self.devices):
            return False
        if not self.conditions:
            return True
        by_state = self.conditions <= _STATE_CONDITIONS and self.verdict is Verdict.ACCEPT
        return packet.reply and by_state


@dataclass(frozen=True)
class BaseChain:
    """A chain on the forward hook."""

    family: str
    table: str
    name: str
    policy: Verdict


RulesOf = Callable[[str], Sequence[ForwardRule]]
"""The rules of a chain of the same table, by the chain's name."""


def drops(chain: BaseChain, rules_of: RulesOf, packet: Packet) -> bool:
    """Return whether *chain* drops *packet*."""
    verdict = _evaluate(chain.name, rules_of, packet, 0)
    return (chain.policy if verdict is Verdict.RETURN else verdict) is Verdict.DROP


def obstacle(chain: BaseChain, gpu_device: str, inner: str) -> str:
    """Return a sentence for operators about *chain*: what is wrong, its consequence, and the remedy's commands."""
    where = f"chain {chain.name} of nftables table {chain.family} {chain.table}"
    directions = ((inner, gpu_device), (gpu_device, inner))
    if (chain.family, chain.table, chain.name) == ("ip", "filter", "FORWARD"):
        commands = [f"iptables -I FORWARD -i {a} -o {b} -j ACCEPT" for a, b in directions]
    else:
        place = f"{chain.family} {chain.table} {chain.name}"
        commands = [
            f"nft insert rule {place} iifname {a} oifname {b} accept" for a, b in directions
        ]
    return (
        f"{where} drops what RODVR forwards between {inner} and {gpu_device}, so no VM of this host "
        f"reaches its GPUs; allow it with: {'; '.join(commands)}"
    )


def legacy_obstacle(gpu_device: str, inner: str) -> str:
    """Return a sentence for operators about a filter table of iptables-legacy, which may drop RODVR's packets."""
    return (
        "iptables-legacy has a filter table here, which RODVR cannot read; if its FORWARD chain drops "
        f"by default, allow RODVR with: iptables-legacy -I FORWARD -i {inner} -o {gpu_device} "
        f"-j ACCEPT; iptables-legacy -I FORWARD -i {gpu_device} -o {inner} -j ACCEPT"
    )


def _evaluate(name: str, rules_of: RulesOf, packet: Packet, depth: int) -> Verdict:
    """Return ACCEPT or DROP, or RETURN if the chain decides nothing."""
    if depth > _MAX_JUMPS:
        return Verdict.RETURN
    for rule in rules_of(name):
        if rule.verdict is None or not rule.matches(packet):
            continue
        if rule.verdict in (Verdict.ACCEPT, Verdict.DROP, Verdict.RETURN):
            return rule.verdict
        verdict = _evaluate(rule.target, rules_of, packet, depth + 1)
        # After a jump that decided nothing, this chain goes on; after a goto, it does not.
        if verdict is not Verdict.RETURN or rule.verdict is Verdict.GOTO:
            return verdict
    return Verdict.RETURN
