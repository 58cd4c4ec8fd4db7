# SPDX-License-Identifier: Apache-2.0
"""Reads the forward chains of other programs, for `gsaas.rodvr.forwarding` to evaluate."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from functools import cache

from pyroute2.netlink.nfnetlink import nftsocket as nft

from gsaas.netlink import wire
from gsaas.netlink.expressions import SUBSYSTEM
from gsaas.netlink.pyroute2_releases import Meta
from gsaas.netlink.transport import NetlinkRefused, Nfnetlink
from gsaas.netlink.wire import Message
from gsaas.rodvr.forwarding import BaseChain, DeviceMatch, ForwardRule, RulesOf, Verdict
from gsaas.rodvr.kernel.attributes import (
    CHAIN_HOOK,
    CHAIN_NAME,
    CHAIN_POLICY,
    CHAIN_TABLE,
    RULE_CHAIN,
    RULE_EXPRESSIONS,
    RULE_TABLE,
)
from gsaas.rodvr.kernel.ruleset import TABLE

_FAMILIES = {"ip": nft.NFPROTO_IPV4, "inet": nft.NFPROTO_INET}
_FORWARD_HOOK = 2
_VERDICTS = {0: Verdict.DROP, 1: Verdict.ACCEPT}
_VERDICTS |= {-3: Verdict.JUMP, -4: Verdict.GOTO, -5: Verdict.RETURN}
_IIFNAME, _OIFNAME = Meta.NFT_META_IIFNAME, Meta.NFT_META_OIFNAME
_L4PROTO, _NFPROTO = Meta.NFT_META_L4PROTO, Meta.NFT_META_NFPROTO
_ALWAYS_MET: dict[int, bytes] = {_L4PROTO: b"\x06", _NFPROTO: b"\x02"}
"""Conditions that every packet of RODVR meets: TCP, and IPv4."""
_PROTOCOL_FIELD = (1, 9, 1)
"""Base (network header), offset and length: the field of IPv4 that equals `meta l4proto`."""
_NAME_SIZE = 16


def read(netlink: Nfnetlink) -> list[tuple[BaseChain, RulesOf]]:
    """Return base chains of other tables on the IPv4 forward hook, each with a reader of its table's rules.

    Raises `NetlinkRefused` if the kernel refuses to list chains or rules.
    """
    found = []
    for family, number in _FAMILIES.items():
        kind = SUBSYSTEM | nft.NFT_MSG_GETCHAIN
        for body in netlink.dump(Message(kind, number, b"", 0, "read chains")):
            fields = wire.by_kind(body)
            table, name = wire.string(fields[CHAIN_TABLE]), wire.string(fields[CHAIN_NAME])
            hook = wire.by_kind(fields.get(CHAIN_HOOK, b"")).get(1, b"")
            if int.from_bytes(hook, "big") != _FORWARD_HOOK or table == TABLE:
                continue
            policy = _VERDICTS[int.from_bytes(fields.get(CHAIN_POLICY, b"\1"), "big")]
            chain = BaseChain(family, table, name, policy)
            found.append((chain, _rules_of(netlink, number, table)))
    return found


def _rules_of(netlink: Nfnetlink, family: int, table: str) -> RulesOf:
    @cache
    def read_rules(chain: str) -> Sequence[ForwardRule]:
        body = wire.text(RULE_TABLE, table) + wire.text(RULE_CHAIN, chain)
        request = Message(SUBSYSTEM | nft.NFT_MSG_GETRULE, family, body, 0, f"read {chain}")
        try:
            bodies = netlink.dump(request)
        except NetlinkRefused as refusal:
            if refusal.errno != errno.ENOENT:
                raise
            return ()  # deleted since it was listed
        fields = [wire.by_kind(rule) for rule in bodies]
        return tuple(
            _parse_rule(rule.get(RULE_EXPRESSIONS, b""))
            for rule in fields
            if wire.string(rule.get(RULE_CHAIN)) == chain
            and wire.string(rule.get(RULE_TABLE)) == table
        )

    return read_rules


def _parse_rule(expressions: bytes) -> ForwardRule:
    devices: list[DeviceMatch] = []
    conditions: set[str] = set()
    verdict: Verdict | None = None
    target = ""
    # Register -> the `meta` key whose value an earlier expression loaded into it.
    loaded: dict[bytes, int] = {}
    for _, expression in wire.attributes(expressions):
        parts = wire.by_kind(expression)
        name, fields = wire.string(parts.get(1)), wire.by_kind(parts.get(2, b""))
        match name:
            case "counter" | "log" | "limit":
                pass
            case "meta" if 1 in fields:
                loaded[fields[1]] = int.from_bytes(fields[2], "big")
            case "payload" if 1 in fields and _position(fields) == _PROTOCOL_FIELD:
                loaded[fields[1]] = _L4PROTO
            case "cmp" if fields[1] in loaded:
                key = loaded[fields[1]]
                value = wire.by_kind(fields[3])[1]
                negated = bool(int.from_bytes(fields[2], "big"))
                if key in (_IIFNAME, _OIFNAME):
                    prefix = b"\0" not in value and len(value) < _NAME_SIZE
                    devices.append(
                        DeviceMatch(key == _OIFNAME, wire.string(value), prefix, negated)
                    )
                elif negated or _ALWAYS_MET.get(key) != value:
                    conditions.add("meta")
            case "immediate" if int.from_bytes(fields[1], "big") == 0:
                chosen = wire.by_kind(wire.by_kind(fields[2]).get(2, b""))
                code = int.from_bytes(chosen.get(1, b""), "big", signed=True)
                verdict, target = _VERDICTS.get(code), wire.string(chosen.get(2))
            case "reject":
                verdict = Verdict.DROP
            case "target":
                if wire.string(fields.get(1)) == "REJECT":
                    verdict = Verdict.DROP
            case "match":
                extension = wire.string(fields.get(1))
                if extension != "comment":
                    conditions.add(extension)
            case "cmp" | "bitwise" | "immediate" | "byteorder":
                pass  # they use what another expression has loaded, which is a condition already
            case _:
                conditions.add(name)
                # It may have loaded something else into that register.
                loaded.pop(fields.get(1, b""), None)
    return ForwardRule(tuple(devices), frozenset(conditions), verdict, target)


def _position(payload: dict[int, bytes]) -> tuple[int, ...]:
    """Return base, offset and length of what a payload expression loads."""
    return tuple(int.from_bytes(payload[attribute], "big") for attribute in (2, 3, 4))
