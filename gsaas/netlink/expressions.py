# SPDX-License-Identifier: Apache-2.0
"""Rule expressions and base objects of nftables, encoded by pyroute2.

Registers are the 4-byte ones: `R`, `R + 1`, … A value longer than four bytes fills the following ones too.
The functions that add or delete objects return the message for that; `NetlinkRefused` comes when it is sent.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pyroute2.netlink import NLM_F_APPEND, NLM_F_CREATE
from pyroute2.netlink.nfnetlink import NFNL_SUBSYS_NFTABLES
from pyroute2.netlink.nfnetlink import nftsocket as nft
from pyroute2.nftables.expressions import genex

from gsaas.netlink import pyroute2_releases, wire
from gsaas.netlink.pyroute2_releases import Meta
from gsaas.netlink.wire import Message

pyroute2_releases.correct_fwd()
pyroute2_releases.complete_socket()

Expression = dict[str, Any]
"""An expression in the form that pyroute2 encodes."""

SUBSYSTEM = NFNL_SUBSYS_NFTABLES << 8
_TABLE_USERDATA = 6
"""The number of NFTA_TABLE_USERDATA."""
R = 8
"""The first 4-byte register (NFT_REG32_00)."""
DROP, ACCEPT = 0, 1
EQUAL, NOT_EQUAL = 0, 1
LINK, NETWORK, TRANSPORT = 0, 1, 2
"""The header from which a payload offset counts."""
_BEYOND_RATE = 1
"""NFT_LIMIT_F_INV: match what is beyond the limit."""
OWNER, PERSIST = 0x2, 0x4
"""Table flags, of Linux 5.12 and 6.9: only the owner may change the table; it outlives the owner's socket."""


def immediate(register: int, value: bytes) -> Expression:
    """Load the constant *value*."""
    return _expression("immediate", {"dreg": register, "data": _data(value)})


def verdict(code: int) -> Expression:
    """End the evaluation of the packet with `ACCEPT` or `DROP`."""
    value = {"attrs": [("NFTA_VERDICT_CODE", code)]}
    return _expression("immediate", {"dreg": 0, "data": {"attrs": [("NFTA_DATA_VERDICT", value)]}})


def meta(key: Meta, register: int) -> Expression:
    """Load what the kernel knows about the packet, such as its interface."""
    return _expression("meta", {"key": key, "dreg": register})


def set_meta(key: Meta, register: int) -> Expression:
    """Set what the kernel knows about the packet to the value in the register, where *key* can be set."""
    return _expression("meta", {"key": key, "sreg": register})


def control_group(level: int, register: int) -> Expression:
    """Load the id, 8 bytes, of the control group of the packet's socket, or of its ancestor *level* below the root."""
    key = pyroute2_releases.NFT_SOCKET_CGROUPV2
    return _expression("socket", {"key": key, "dreg": register, "level": level})


def big_endian(register: int) -> Expression:
    """Turn the register, a number of 32 bits in this machine's byte order, into network byte order."""
    fields = {"sreg": register, "dreg": register, "op": 1, "len": 4, "size": 4}
    return _expression("byteorder", fields)


def compare(register: int, value: bytes, operator: int = EQUAL) -> Expression:
    """End this rule unless the register equals *value*, or with `NOT_EQUAL` differs from it."""
    return _expression("cmp", {"sreg": register, "op": operator, "data": _data(value)})


def load(base: int, offset: int, length: int, register: int) -> Expression:
    """Load *length* packet bytes at *offset* of the header *base*."""
    return _expression("payload", {"dreg": register, "base": base, "offset": offset, "len": length})


def store(
    base: int, offset: int, length: int, register: int, *, checksum: int | None = None
) -> Expression:
    """Write packet bytes; *checksum* is the offset of the IPv4 checksum to keep right, with L4's."""
    fields: dict[str, Any] = {"sreg": register, "base": base, "offset": offset, "len": length}
    if checksum is None:
        fields |= {"csum_type": 0, "csum_offset": 0}
    else:
        fields |= {"csum_type": 1, "csum_offset": checksum}
        fields |= {"csum_flags": {"NFT_PAYLOAD_L4CSUM_PSEUDOHDR"}}
    return _expression("payload", fields)


def mask(register: int, bits: bytes) -> Expression:
    """Clear all bits of the register but *bits*."""
    fields = {"sreg": register, "dreg": register, "len": len(bits)}
    return _expression("bitwise", {**fields, "mask": _data(bits), "xor": _data(bytes(len(bits)))})


def lookup(name: str, source: int, destination: int) -> Expression:
    """Load the data of map *name* for the key in *source*; end this rule if it has no such key."""
    return _expression("lookup", {"set": name, "sreg": source, "dreg": destination})


def count_in(name: str, set_id: int, key: int) -> Expression:
    """Add to the packet counter that set *name* keeps for the key in the register."""
    fields = {"set_name": name, "set_id": set_id, "op": 0, "sreg_key": key, "expr": counter()}
    return _expression("dynset", fields)


def remember_in(name: str, set_id: int, key: int, data: int) -> Expression:
    """Add to map *name* the data in one register for the key in another, if it has none for that; may end this rule."""
    fields = {"set_name": name, "set_id": set_id, "op": 0, "sreg_key": key, "sreg_data": data}
    return _expression("dynset", fields)


def over_connections(name: str, set_id: int, key: int, count: int) -> Expression:
    """Match a connection beyond *count* at a time, which set *name* counts for the key in the register."""
    limit = _expression("connlimit", {"count": count, "flags": {"NFT_LIMIT_F_INV"}})
    fields = {"set_name": name, "set_id": set_id, "op": 0, "sreg_key": key, "expr": limit}
    return _expression("dynset", fields)


def over_rate(per_second: int, burst: int) -> Expression:
    """Match a packet beyond *per_second* on average, of which up to *burst* may come at once."""
    fields = {"rate": per_second, "unit": 1, "burst": burst, "type": 0, "flags": _BEYOND_RATE}
    return _expression("limit", fields)


def counter() -> Expression:
    """Count packets and bytes."""
    return _expression("counter", {"bytes": 0, "packets": 0})


def forward_to(register: int) -> Expression:
    """Send the packet out of the interface whose index is in *register* (netdev family only)."""
    return _expression("fwd", {"sreg_dev": register})


def conntrack(key: int, register: int) -> Expression:
    """Load what connection tracking knows about the packet (NFT_CT_*)."""
    return _expression("ct", {"key": key, "dreg": register})


def untracked() -> Expression:
    """Keep the packet out of connection tracking, if it is not in it yet."""
    return {"attrs": [("NFTA_EXPR_NAME", "notrack")]}


def reset_connection() -> Expression:
    """Answer with a TCP reset and drop the packet."""
    return _expression("reject", {"type": 1, "icmp_code": 0})


def translate_destination(address: int, port: int) -> Expression:
    """Send the connection to the address and port in these registers (nat chains only)."""
    return _expression(
        "nat", {"type": 1, "family": 2, "reg_addr_min": address, "reg_proto_min": port}
    )


def masquerade() -> Expression:
    """Give the connection the outgoing interface's address as its source (nat chains only)."""
    return _expression("masq", {})


def clamp_mss(register: int) -> list[Expression]:
    """Lower the MSS option of a SYN to what the route's current MTU can carry."""
    option = {"sreg": register, "type": 2, "offset": 2, "len": 2, "op": 1}
    # `rt tcpmss` is in host byte order, the option in network byte order.
    swap = {"sreg": register, "dreg": register, "op": 1, "len": 2, "size": 2}
    return [
        _expression("rt", {"key": 3, "dreg": register}),
        _expression("byteorder", swap),
        _expression("exthdr", option),
    ]


def add_table(family: int, name: str, flags: int, comment: str) -> Message:
    """Add a table, or become the owner of one that has none; `ValueError` if the comment is too long."""
    fields: list[tuple[str, Any]] = [("NFTA_TABLE_NAME", name), ("NFTA_TABLE_FLAGS", flags)]
    message = encode(nft.nft_table_msg, nft.NFT_MSG_NEWTABLE, family, fields, NLM_F_CREATE, name)
    if not comment:
        return message
    userdata = wire.attribute(_TABLE_USERDATA, wire.comment(comment))
    return replace(message, body=message.body + userdata)


def delete_table(family: int, name: str) -> Message:
    """Delete a table with everything in it."""
    fields = [("NFTA_TABLE_NAME", name)]
    return encode(nft.nft_table_msg, nft.NFT_MSG_DELTABLE, family, fields, 0, name)


def add_chain(
    family: int,
    table: str,
    name: str,
    hook: int,
    priority: int,
    *,
    type: str = "filter",
    device: str | None = None,
) -> Message:
    """Add a base chain that accepts by default; *device* is for chains of the netdev family."""
    place: list[tuple[str, Any]] = [("NFTA_HOOK_HOOKNUM", hook), ("NFTA_HOOK_PRIORITY", priority)]
    if device:
        place.append(("NFTA_HOOK_DEV", device))
    fields = [
        ("NFTA_CHAIN_TABLE", table),
        ("NFTA_CHAIN_NAME", name),
        ("NFTA_CHAIN_TYPE", type),
        ("NFTA_CHAIN_POLICY", ACCEPT),
        ("NFTA_CHAIN_HOOK", {"attrs": place}),
    ]
    return encode(nft.nft_chain_msg, nft.NFT_MSG_NEWCHAIN, family, fields, NLM_F_CREATE, name)


def add_rule(family: int, table: str, chain: str, expressions: Sequence[Expression]) -> Message:
    """Append a rule to a chain."""
    fields = [
        ("NFTA_RULE_TABLE", table),
        ("NFTA_RULE_CHAIN", chain),
        ("NFTA_RULE_EXPRESSIONS", list(expressions)),
    ]
    flags = NLM_F_CREATE | NLM_F_APPEND
    return encode(nft.nft_rule_msg, nft.NFT_MSG_NEWRULE, family, fields, flags, chain)


def add_set(
    family: int,
    table: str,
    name: str,
    set_id: int,
    key: tuple[int, ...],
    key_length: int,
    *,
    data: tuple[int, ...] = (),
    data_length: int = 0,
    counts: int = 0,
    counted: bool = False,
    timeout: int = 0,
) -> Message:
    """Add a map if there is *data*, the types of its values.

    If there is *counts*, packets add elements, up to so many, with a counter or, in a map, a value. *set_id* names the
    set within the transaction that adds it. With *counted*, each element has a counter of the packets, and their bytes,
    for which it was found. Elements are deleted *timeout* seconds after they were added; with 0, they stay.
    """
    fields: list[tuple[str, Any]] = [
        ("NFTA_SET_TABLE", table),
        ("NFTA_SET_NAME", name),
        ("NFTA_SET_KEY_TYPE", _concatenated(key)),
        ("NFTA_SET_KEY_LEN", key_length),
        ("NFTA_SET_ID", set_id),
    ]
    flags = set()
    if data:
        flags.add("NFT_SET_MAP")
        fields.append(("NFTA_SET_DATA_TYPE", _concatenated(data)))
        fields.append(("NFTA_SET_DATA_LEN", data_length))
    if counts:
        flags.add("NFT_SET_EVAL")
        fields.append(("NFTA_SET_DESC", {"attrs": [("NFTA_SET_DESC_SIZE", counts)]}))
    if counted:
        fields.append(("NFTA_SET_EXPR", counter()))
    if timeout:
        flags.add("NFT_SET_TIMEOUT")
        fields.append(("NFTA_SET_TIMEOUT", timeout * 1000))
    fields.append(("NFTA_SET_FLAGS", flags))
    return encode(nft.nft_set_msg, nft.NFT_MSG_NEWSET, family, fields, NLM_F_CREATE, name)


def encode(
    message_class: type[Any],
    kind: int,
    family: int,
    fields: list[tuple[str, Any]],
    flags: int,
    name: str,
) -> Message:
    """Return a `Message` from a pyroute2 message class and its attributes."""
    encoded = message_class()
    encoded["attrs"] = fields
    encoded["nfgen_family"] = family
    encoded["header"]["sequence_number"] = encoded["header"]["pid"] = 0
    encoded.encode()
    # Without the netlink and nfnetlink headers (16 and 4 bytes), which `transport` writes.
    what = f"{_VERBS[kind]} {name}"
    return Message(SUBSYSTEM | kind, family, bytes(encoded.data[20:]), flags, what)


def _expression(name: str, fields: dict[str, Any]) -> Expression:
    expression: Expression = genex(name, fields)
    return expression


def _data(value: bytes) -> dict[str, Any]:
    return {"attrs": [("NFTA_DATA_VALUE", value)]}


def _concatenated(types: tuple[int, ...]) -> int:
    """Return the number of a concatenated type: six bits for each of its parts."""
    number = 0
    for part in types:
        number = number << 6 | part
    return number


def host32(value: int) -> bytes:
    """Return *value* as 32 bits in this machine's byte order, as registers contain most numbers."""
    return struct.pack("=I", value)


def host64(value: int) -> bytes:
    """Return *value* as 64 bits in this machine's byte order."""
    return struct.pack("=Q", value)


_VERBS = {
    nft.NFT_MSG_NEWTABLE: "add table",
    nft.NFT_MSG_DELTABLE: "delete table",
    nft.NFT_MSG_NEWCHAIN: "add chain",
    nft.NFT_MSG_NEWRULE: "add rule to chain",
    nft.NFT_MSG_NEWSET: "add set",
}
