# SPDX-License-Identifier: Apache-2.0
"""Finds rules of other programs that drop RODVR's packets, or take them out of connection tracking. Pure.

A packet that any base chain of a hook drops is gone, whatever other chains accept. So three packets of one connection
are followed through all hooks that they pass on this host, each as it looks there: the first one of a VM to a daemon,
the daemon's answer, and the VM's next one. `gsaas.rodvr.filters` evaluates the chains.
"""

from __future__ import annotations

import ipaddress
import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from gsaas.objects.address import Address
from gsaas.rodvr.filters import DNAT, SNAT, Outcome, Packet, Rules, Value, Verdict, evaluate

CONNTRACK, TRANSLATION, MASQUERADING = -200, -100, 100
"""Priorities of the kernel's own parts of the hooks."""
_NEW, _ESTABLISHED, _INVALID = 8, 2, 1
_CONFIRMED, _SEEN_REPLY = 0x8, 0x2
_SYN, _ACK = 0x02, 0x10
_UNICAST, _LOCAL = 1, 2
_ETHERNET = 1


_Fields = Mapping[str, int | bytes]
"""Fields of a packet; numbers are 32 bits in this machine's byte order."""


@dataclass(frozen=True)
class BaseChain:
    """A chain on a hook: `prerouting`, `forward`, `postrouting`, or `ingress` and `egress` of *devices*."""

    family: str
    table: str
    name: str
    policy: Verdict
    hook: str
    priority: int
    devices: tuple[str, ...] = ()
    is_nat: bool = False
    """It sees the first packets of connections only."""
    legacy: bool = False
    """It is a chain of iptables-legacy."""

    def __str__(self) -> str:
        if self.legacy:
            return f"chain {self.name} of iptables-legacy's table {self.table}"
        return f"chain {self.name} of nftables table {self.family} {self.table}"

    @property
    def is_of_iptables(self) -> bool:
        """Return whether iptables has made it."""
        return self.legacy or (self.family == "ip" and self.name in _IPTABLES_CHAINS)


_OF_DEVICES = ("ingress", "egress")
"""Hooks of single devices; a chain there may have none, and sees nothing then."""
_IPTABLES_CHAINS = ("PREROUTING", "FORWARD", "POSTROUTING")


@dataclass(frozen=True)
class Connection:
    """A connection of a VM, as it looks on this host."""

    inner: str
    """rodvr1, the interface from which the VM's packets are forwarded."""
    outer: str
    gpu_device: str
    gpu_address: str | None
    identity: str
    masked: Address
    real: Address | None
    """None: any daemon."""
    indexes: Mapping[str, int] = field(default_factory=dict, compare=False)
    """Interface indexes, as far as they are known."""


@dataclass(frozen=True)
class Stage:
    """A packet at one hook. Chains see it as *packet* if their priority is at least *first* and below *beyond*."""

    hook: str
    device: str
    """Where it comes in or goes out, which matters for `ingress` and `egress`."""
    reply: bool
    packet: Packet
    first: int = -(2**31)
    beyond: int = 2**31

    def is_seen_by(self, chain: BaseChain) -> bool:
        """Return whether *chain* sees this packet."""
        return (
            chain.hook == self.hook
            and self.first <= chain.priority < self.beyond
            and (self.hook not in _OF_DEVICES or self.device in chain.devices)
        )


def stages(connection: Connection) -> list[Stage]:
    """Return what the packets of *connection* pass, in order."""
    return [
        *_from_vm(connection, _NEW, _SYN),
        *_to_vm(connection),
        *_from_vm(connection, _ESTABLISHED, _ACK),
    ]


def _from_vm(of: Connection, state: int, flags: int) -> Iterator[Stage]:
    sent = _packet(of.identity, of.masked.ip, None, of.masked.port, flags)
    tracked: _Fields = {"ct state": state, "ct direction": bytes(4)}
    status = 0 if state == _NEW else _CONFIRMED | _SEEN_REPLY
    real_ip, real_port = (of.real.ip, of.real.port) if of.real else (None, None)
    led = _packet(of.identity, real_ip, None, real_port, flags)
    masqueraded = _packet(of.gpu_address, real_ip, None, real_port, flags)
    coming = _coming(of, of.inner)
    going = {**coming, **_going(of, of.gpu_device)}
    origin = _original(of)
    yield Stage("egress", of.outer, False, _with(sent, _going(of, of.outer)))
    yield Stage("ingress", of.inner, False, _with(sent, coming))
    yield from _prerouting(
        False,
        of.inner,
        _with(sent, coming),
        {**tracked, **origin, "ct status": status},
        _with(led, {**coming, **tracked, **origin, "ct status": status | DNAT}),
    )
    before = {**tracked, **origin, "ct status": status | DNAT}
    yield Stage("forward", "", False, _with(led, {**going, **before}))
    yield Stage("postrouting", "", False, _with(led, {**going, **before}), beyond=MASQUERADING)
    after = _with(masqueraded, {**going, **tracked, **origin, "ct status": status | DNAT | SNAT})
    yield Stage("postrouting", "", False, after, first=MASQUERADING)
    yield Stage("egress", of.gpu_device, False, _with(masqueraded, _going(of, of.gpu_device)))


def _to_vm(of: Connection) -> Iterator[Stage]:
    real_ip, real_port = (of.real.ip, of.real.port) if of.real else (None, None)
    flags = _SYN | _ACK
    arrived = _packet(real_ip, of.gpu_address, real_port, None, flags)
    led = _packet(real_ip, of.identity, real_port, None, flags)
    returned = _packet(of.masked.ip, of.identity, of.masked.port, None, flags)
    coming = _coming(of, of.gpu_device)
    going = {**coming, **_going(of, of.inner)}
    status = _CONFIRMED | _SEEN_REPLY | DNAT | SNAT
    tracked = {
        "ct state": _ESTABLISHED,
        "ct direction": b"\x01\0\0\0",
        "ct status": status,
        **_original(of),
    }
    arriving = {**coming, "fib daddr type": _LOCAL}
    yield Stage("ingress", of.gpu_device, True, _with(arrived, arriving))
    yield from _prerouting(
        True, of.gpu_device, _with(arrived, arriving), tracked, _with(led, {**coming, **tracked})
    )
    yield Stage("forward", "", True, _with(led, {**going, **tracked}))
    yield Stage("postrouting", "", True, _with(led, {**going, **tracked}), beyond=MASQUERADING)
    yield Stage("postrouting", "", True, _with(returned, {**going, **tracked}), first=MASQUERADING)
    yield Stage("egress", of.inner, True, _with(returned, _going(of, of.inner)))
    yield Stage("ingress", of.outer, True, _with(returned, _coming(of, of.outer)))


def _prerouting(
    reply: bool, device: str, arrived: Packet, tracked: _Fields, led: Packet
) -> Iterator[Stage]:
    raw = _with(arrived, {"ct state": _INVALID})
    raw = Packet(raw.fields, raw.absent | _TRACKED)
    yield Stage("prerouting", device, reply, raw, beyond=CONNTRACK + 1)
    yield Stage("prerouting", device, reply, _with(arrived, tracked), CONNTRACK + 1, TRANSLATION)
    yield Stage("prerouting", device, reply, led, first=TRANSLATION)


_TRACKED = frozenset({"ct direction", "ct status", "ct mark", "ct original saddr", "ct other"})
"""What only a packet of a tracked connection has."""


def _original(of: Connection) -> _Fields:
    return {"ct original saddr": ipaddress.IPv4Address(of.identity).packed}


def _packet(
    source: str | None,
    destination: str | None,
    source_port: int | None,
    destination_port: int | None,
    flags: int,
) -> Packet:
    """Return a TCP packet; None for what is not known."""
    header = [
        Value.of(b"\x45"),
        Value.unknown(5),
        Value(bytes(2), b"\x3f\xff"),  # no fragment
        Value.unknown(1),
        Value.of(b"\x06"),
        Value.unknown(2),
        _address(source),
        _address(destination),
    ]
    transport = [
        _port(source_port),
        _port(destination_port),
        Value.unknown(9),
        Value.of(bytes([flags])),
    ]
    fields = {
        "network": _joined(header),
        "transport": _joined(transport),
        "meta nfproto": Value.of(b"\x02\0\0\0"),
        "meta l4proto": Value.of(b"\x06\0\0\0"),
        "meta protocol": Value.of(b"\x08\0\0\0"),
        "meta pkttype": Value.of(bytes(4)),
        "fib saddr type": _number(_UNICAST),
        "fib daddr type": _number(_UNICAST),
        "fib saddr present": Value.of(b"\x01\0\0\0"),
    }
    return Packet(fields, frozenset({"meta skuid", "meta skgid", "socket"}))


def _coming(of: Connection, device: str) -> _Fields:
    return _interface("meta iif", of, device)


def _going(of: Connection, device: str) -> _Fields:
    return _interface("meta oif", of, device)


def _interface(key: str, of: Connection, device: str) -> _Fields:
    index = {key: of.indexes[device]} if device in of.indexes else {}
    kind = struct.pack("=H2x", _ETHERNET)
    return {**index, f"{key}name": _name(device), f"{key}type": kind}


def _with(packet: Packet, fields: _Fields) -> Packet:
    values = {
        name: _number(each) if isinstance(each, int) else Value.of(each)
        for name, each in fields.items()
    }
    return Packet({**packet.fields, **values}, packet.absent)


def _number(value: int) -> Value:
    return Value.of(struct.pack("=I", value))


def _name(device: str) -> bytes:
    return device.encode().ljust(16, b"\0")


def _address(ip: str | None) -> Value:
    return Value.unknown(4) if ip is None else Value.of(ipaddress.IPv4Address(ip).packed)


def _port(port: int | None) -> Value:
    return Value.unknown(2) if port is None else Value.of(port.to_bytes(2, "big"))


def _joined(parts: Iterable[Value]) -> Value:
    parts = list(parts)
    return Value(b"".join(each.data for each in parts), b"".join(each.known for each in parts))


# -- what is wrong, and what to do -----------------------------------------------------------------------


def obstacles(
    chains: Iterable[tuple[BaseChain, Rules]],
    connections: Iterable[Connection],
    identities: ipaddress.IPv4Network,
) -> list[str]:
    """Return a sentence for operators about each chain that is in the way of one of *connections*.

    It says what is wrong, its consequence, and the remedy's commands.
    """
    connections = list(connections)
    passed = [(of, stages(of)) for of in connections]
    found: dict[BaseChain, list[tuple[Connection, Stage, str]]] = {}
    zones: dict[tuple[int, bool], tuple[int, BaseChain, str]] = {}
    for chain, rules in chains:
        for number, (of, through) in enumerate(passed):
            for stage in through:
                if not stage.is_seen_by(chain) or (chain.is_nat and not _is_first(stage)):
                    continue
                outcome = evaluate(chain.name, chain.policy, rules, stage.packet)
                if harm := _harm(chain, outcome):
                    found.setdefault(chain, []).append((of, stage, harm))
                if outcome.zone and chain.hook == "prerouting" and chain.priority < CONNTRACK:
                    zones[number, stage.reply] = outcome.zone, chain, outcome.zone_culprit
    sentences = [_sentence(chain, harms, identities) for chain, harms in found.items()]
    return sentences + _zone_sentences(zones, len(passed))


def _is_first(stage: Stage) -> bool:
    state = stage.packet.fields.get("ct state")
    return not stage.reply and state is not None and state.equals(_number(_NEW).data) is True


def _harm(chain: BaseChain, outcome: Outcome) -> str:
    """Return what is wrong, as the end of a sentence whose subject is the chain; empty for nothing."""
    if outcome.verdict is Verdict.DROP:
        return f"drops ({outcome.culprit}) what RODVR forwards"
    if outcome.untracked and chain.priority < CONNTRACK:
        return f"keeps ({outcome.untracked}) out of connection tracking what RODVR forwards"
    return ""


def _sentence(
    chain: BaseChain,
    harms: list[tuple[Connection, Stage, str]],
    identities: ipaddress.IPv4Network,
) -> str:
    of, _, harm = harms[0]
    replies = {stage.reply for _, stage, _ in harms}
    if chain.hook == "forward":
        replies = {False, True}
    commands = []
    for reply in sorted(replies):
        harmed = (stage for _, stage, _ in harms if stage.reply == reply)
        stage = next(harmed, Stage(chain.hook, "", reply, Packet({})))
        commands.append(_remedy(chain, stage, of, identities))
    real = f" to {of.real.ip}" if of.real and len({each.real for each, _, _ in harms}) == 1 else ""
    return (
        f"{chain} {harm} between {of.inner} and {of.gpu_device}, at {chain.hook}, so no VM of this host "
        f"reaches its GPUs{real}; allow it with: {'; '.join(commands)}"
    )


def _remedy(
    chain: BaseChain, stage: Stage, of: Connection, identities: ipaddress.IPv4Network
) -> str:
    """Return the command that lets the packet of *stage* pass *chain*."""
    gpu, inner = of.gpu_device, of.inner
    iptables = {
        ("prerouting", False): f"-i {inner}",
        ("prerouting", True): f"-i {gpu} -p tcp",
        ("forward", False): f"-i {inner} -o {gpu}",
        ("forward", True): f"-i {gpu} -o {inner}",
        ("postrouting", False): f"-s {identities} -o {gpu}",
        ("postrouting", True): f"-d {identities} -o {inner}",
    }
    if chain.is_of_iptables:
        program = "iptables-legacy" if chain.legacy else "iptables"
        table = "" if chain.table == "filter" else f"-t {chain.table} "
        condition = iptables[chain.hook, stage.reply]
        return f"{program} {table}-I {chain.name} {condition} -j ACCEPT"
    masqueraded = stage.first == MASQUERADING
    conditions = {
        ("prerouting", False): f"iifname {inner}",
        ("prerouting", True): f"iifname {gpu} meta l4proto tcp",
        ("forward", False): f"iifname {inner} oifname {gpu}",
        ("forward", True): f"iifname {gpu} oifname {inner}",
        ("postrouting", False): f"oifname {gpu}"
        + ("" if masqueraded else f" ip saddr {identities}"),
        ("postrouting", True): f"oifname {inner} ip daddr {identities}",
    }
    condition = conditions.get((chain.hook, stage.reply), "meta l4proto tcp")
    return f"nft insert rule {chain.family} {chain.table} {chain.name} {condition} accept"


def _zone_sentences(
    zones: dict[tuple[int, bool], tuple[int, BaseChain, str]], connections: int
) -> list[str]:
    for number in range(connections):
        there, back = zones.get((number, False)), zones.get((number, True))
        if (there and there[0]) != (back and back[0]):
            zone, chain, culprit = there or back  # type: ignore[misc]  # one of them is there
            return [
                f"{chain} ({culprit}) has RODVR's packets tracked in zone {zone} in one direction only, so no VM of "
                "this host reaches its GPUs; leave out rodvr1 there, or track what comes from the GPU network in the "
                "same zone"
            ]
    return []
