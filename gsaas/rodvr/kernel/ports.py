"""The messages that carry out a plan, and the reading of what they left behind.

This is the path a VM's install takes, so bytes are laid out here by hand: rules are encoded once and
have their two addresses filled in, map elements have a fixed form.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterable, Mapping

from pyroute2.netlink import NLM_F_APPEND, NLM_F_CREATE
from pyroute2.netlink.nfnetlink import nftsocket as nft

from gsaas.netlink import expressions as ex
from gsaas.netlink import wire
from gsaas.netlink.expressions import SUBSYSTEM
from gsaas.netlink.wire import Message
from gsaas.objects.address import Address
from gsaas.objects.binding import NOBODY
from gsaas.rodvr import plan
from gsaas.rodvr.kernel.ruleset import IPV4, NETDEV, TABLE, TAP_PRIORITY, Layout, tap_rules

CHAIN_PREFIX = "in-"
RULES_PER_TAP = 3

# Attribute numbers of linux/netfilter/nf_tables.h.
CHAIN_TABLE, CHAIN_NAME, CHAIN_HOOK, CHAIN_POLICY, CHAIN_TYPE, CHAIN_USERDATA = 1, 3, 4, 5, 7, 12
RULE_TABLE, RULE_CHAIN, RULE_EXPRESSIONS = 1, 2, 4
LIST_TABLE, LIST_SET, LIST_ELEMENTS = 1, 2, 3
_HOOK_NUMBER, _HOOK_PRIORITY, _HOOK_DEVICE = 1, 2, 3
_ELEMENT_KEY, _ELEMENT_DATA, _ELEMENT_EXPRESSION = 1, 2, 7
_EXPRESSION_NAME, _EXPRESSION_DATA = 1, 2
_COUNTER_PACKETS = 2
_COMMENT_LIMIT = 254

# One list element: list > element > key > value, and for maps > data > value.
_NESTED = wire.NESTED
_REAL = struct.Struct("=12s 4s4s2s2x 8s 4s2s2x")
_REAL_KEY = struct.Struct("=12s 4s4s2s2x")
_REAL_HEAD = struct.pack("=HHHHHH", 40, 1 | _NESTED, 20, 1 | _NESTED, 16, 1)
_REAL_DATA = struct.pack("=HHHH", 16, 2 | _NESTED, 12, 1)
_REAL_KEY_HEAD = struct.pack("=HHHHHH", 24, 1 | _NESTED, 20, 1 | _NESTED, 16, 1)
# An attribute's length has 16 bits.
_CHUNK = 1500

_SENTINEL_IP, _SENTINEL_IDENTITY = b"\xfb\x01\x02\x03", b"\xfb\x04\x05\x06"


class Encoder:
    """Turns the operations of a plan into messages, for one layout."""

    def __init__(self, layout: Layout) -> None:
        bodies = [_encoded(rule) for rule in tap_rules(layout, _SENTINEL_IP, _SENTINEL_IDENTITY)]
        self._answer_arp, carry, self._refuse = bodies
        # The rule compares the VM's address before it writes the identity.
        self._before, rest = carry.split(_SENTINEL_IP)
        self._between, self._after = rest.split(_SENTINEL_IDENTITY)

    def messages(self, operations: Iterable[plan.Operation]) -> list[Message]:
        messages: list[Message] = []
        for operation in operations:
            match operation:
                case plan.AddMappings(identity, mappings):
                    messages += add_mappings(identity, mappings)
                case plan.DeleteMappings(identity, masked):
                    messages += delete_mappings(identity, masked)
                case plan.AddLocal(mappings):
                    messages += add_local(mappings)
                case plan.DeleteLocal(ways):
                    messages += delete_local(ways)
                case plan.AddChain(tap, tag):
                    messages += self._add_chain(tap, tag)
                case plan.DeleteChain(tap):
                    messages += _delete_chain(tap)
                case plan.AddWayBack(identity, way):
                    element = _element(_address(identity), _way_back(way))
                    messages.append(_elements(True, NETDEV, "back", element, identity))
                case plan.DeleteWayBack(identity):
                    element = _element(_address(identity))
                    messages.append(_elements(False, NETDEV, "back", element, identity))
        return messages

    def _add_chain(self, tap: str, tag: plan.Tag) -> list[Message]:
        name = CHAIN_PREFIX + tap
        hook = wire.nested(
            CHAIN_HOOK,
            wire.be32(_HOOK_NUMBER, 0),
            wire.be32(_HOOK_PRIORITY, TAP_PRIORITY),
            wire.text(_HOOK_DEVICE, tap),
        )
        body = (
            wire.text(CHAIN_TABLE, TABLE)
            + wire.text(CHAIN_NAME, name)
            + hook
            + wire.be32(CHAIN_POLICY, ex.ACCEPT)
            + wire.text(CHAIN_TYPE, "filter")
            + wire.attribute(CHAIN_USERDATA, _comment(str(tag)))
        )
        kind = SUBSYSTEM | nft.NFT_MSG_NEWCHAIN
        messages = [Message(kind, NETDEV, body, NLM_F_CREATE, f"add chain on {tap}")]
        carry = _address(tag.ip).join((self._before, self._between))
        carry = _address(tag.identity).join((carry, self._after))
        where = wire.text(RULE_TABLE, TABLE) + wire.text(RULE_CHAIN, name)
        kind = SUBSYSTEM | nft.NFT_MSG_NEWRULE
        for rule in (self._answer_arp, carry, self._refuse):
            flags = NLM_F_CREATE | NLM_F_APPEND
            messages.append(Message(kind, NETDEV, where + rule, flags, f"add rule on {tap}"))
        return messages


def uncount(identity: str) -> Message:
    """Forget how often *identity* asked for what it does not have; ENOENT if it never did."""
    return _elements(False, IPV4, "unmapped", _element(_address(identity)), identity)


def uncount_local(masked_ip: str) -> Message:
    """Forget how often *masked_ip* was asked for in vain; ENOENT if it never was."""
    return _elements(False, IPV4, "unmapped-local", _element(_address(masked_ip)), masked_ip)


def list_elements(family: int, name: str) -> Message:
    body = wire.text(LIST_TABLE, TABLE) + wire.text(LIST_SET, name)
    return Message(SUBSYSTEM | nft.NFT_MSG_GETSETELEM, family, body, 0, f"read set {name}")


def list_chains(family: int) -> Message:
    body = wire.text(CHAIN_TABLE, TABLE)
    return Message(SUBSYSTEM | nft.NFT_MSG_GETCHAIN, family, body, 0, "read chains")


def list_rules(family: int) -> Message:
    body = wire.text(RULE_TABLE, TABLE)
    return Message(SUBSYSTEM | nft.NFT_MSG_GETRULE, family, body, 0, "read rules")


def read_state(
    chains: Iterable[bytes],
    rules: Iterable[bytes],
    back: Iterable[bytes],
    real: Iterable[bytes],
    local: Iterable[bytes],
) -> plan.State:
    """The state that dumps of the two tables describe."""
    state = plan.State()
    counts = count_rules(rules)
    for name, comment in read_chains(chains).items():
        if name.startswith(CHAIN_PREFIX):
            intact = counts.get(name) == RULES_PER_TAP
            state.chains[name.removeprefix(CHAIN_PREFIX)] = _tag(comment) if intact else None
    for key, value, _ in _read_elements(back):
        (ifindex,) = struct.unpack_from("=I", value)
        way = plan.WayBack(ifindex, value[4:10].hex(":"), socket.inet_ntoa(value[12:16]))
        state.ways_back[socket.inet_ntoa(key)] = way
    for key, value, _ in _read_elements(real):
        masked = _read_address(key[4:])
        state.mappings.setdefault(socket.inet_ntoa(key[:4]), {})[masked] = _read_address(value)
    for key, value, _ in _read_elements(local):
        (uid,) = struct.unpack_from("=I", key)
        way = plan.Way(_read_address(key[4:]), None if uid == NOBODY else uid)
        state.local[way] = _read_address(value)
    return state


def read_chains(chains: Iterable[bytes]) -> dict[str, str]:
    """Chain name -> comment, of our table."""
    found = {}
    for body in chains:
        fields = wire.by_kind(body)
        if wire.string(fields.get(CHAIN_TABLE)) == TABLE:
            found[wire.string(fields[CHAIN_NAME])] = wire.read_comment(fields.get(CHAIN_USERDATA))
    return found


def count_rules(rules: Iterable[bytes]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for body in rules:
        fields = wire.by_kind(body)
        if wire.string(fields.get(RULE_TABLE)) == TABLE:
            chain = wire.string(fields[RULE_CHAIN])
            counts[chain] = counts.get(chain, 0) + 1
    return counts


def read_refused(rules: Iterable[bytes]) -> dict[str, int]:
    """Tap -> packets its chain dropped: forged source, or not TCP."""
    refused = {}
    for body in rules:
        fields = wire.by_kind(body)
        chain = wire.string(fields.get(RULE_CHAIN))
        if chain.startswith(CHAIN_PREFIX) and wire.string(fields.get(RULE_TABLE)) == TABLE:
            # The dropping rule is the last one of its chain, and dumps keep the order.
            refused[chain.removeprefix(CHAIN_PREFIX)] = _counted(fields[RULE_EXPRESSIONS])
    return refused


def read_unmapped(elements: Iterable[bytes]) -> dict[str, int]:
    """Identity, or local masked address -> connections asked for that have no mapping."""
    return {
        socket.inet_ntoa(key): _packets(expression)
        for key, _, expression in _read_elements(elements)
    }


def _encoded(rule: list[ex.Expression]) -> bytes:
    """The expressions attribute of a rule, without table and chain."""
    message = ex.add_rule(NETDEV, TABLE, "template", rule)
    expressions = wire.by_kind(message.body)[RULE_EXPRESSIONS]
    return wire.nested(RULE_EXPRESSIONS, expressions)


def _delete_chain(tap: str) -> list[Message]:
    """Rules first: a chain with rules is not empty to every kernel."""
    name = CHAIN_PREFIX + tap
    rules = wire.text(RULE_TABLE, TABLE) + wire.text(RULE_CHAIN, name)
    chain = wire.text(CHAIN_TABLE, TABLE) + wire.text(CHAIN_NAME, name)
    return [
        Message(SUBSYSTEM | nft.NFT_MSG_DELRULE, NETDEV, rules, 0, f"flush chain on {tap}"),
        Message(SUBSYSTEM | nft.NFT_MSG_DELCHAIN, NETDEV, chain, 0, f"delete chain on {tap}"),
    ]


def add_mappings(identity: str, mappings: Mapping[Address, Address]) -> list[Message]:
    source = _address(identity)
    elements = [_mapping(source, masked, real) for masked, real in mappings.items()]
    return _in_chunks(True, "real", elements, identity)


def delete_mappings(identity: str, masked: Iterable[Address]) -> list[Message]:
    source = _address(identity)
    return _in_chunks(False, "real", [_mapped(source, address) for address in masked], identity)


def add_local(mappings: Mapping[plan.Way, Address]) -> list[Message]:
    elements = [_mapping(_user(way.uid), way.masked, real) for way, real in mappings.items()]
    return _in_chunks(True, "local", elements, "this host")


def delete_local(ways: Iterable[plan.Way]) -> list[Message]:
    elements = [_mapped(_user(way.uid), way.masked) for way in ways]
    return _in_chunks(False, "local", elements, "this host")


def _mapping(source: bytes, masked: Address, real: Address) -> bytes:
    """An element of `real` or `local`, whose keys differ in what the first four bytes are."""
    return _REAL.pack(
        _REAL_HEAD,
        source,
        _address(masked.ip),
        masked.port.to_bytes(2, "big"),
        _REAL_DATA,
        _address(real.ip),
        real.port.to_bytes(2, "big"),
    )


def _mapped(source: bytes, masked: Address) -> bytes:
    """The key of an element."""
    port = masked.port.to_bytes(2, "big")
    return _REAL_KEY.pack(_REAL_KEY_HEAD, source, _address(masked.ip), port)


def _user(uid: int | None) -> bytes:
    """As packets' socket owners are compared: in the order of this machine."""
    return ex.host32(NOBODY if uid is None else uid)


def _in_chunks(add: bool, name: str, elements: list[bytes], whose: str) -> list[Message]:
    return [
        _elements(add, IPV4, name, b"".join(elements[start : start + _CHUNK]), whose)
        for start in range(0, len(elements), _CHUNK)
    ]


def _elements(add: bool, family: int, name: str, elements: bytes, identity: str) -> Message:
    body = (
        wire.text(LIST_TABLE, TABLE)
        + wire.text(LIST_SET, name)
        + wire.attribute(LIST_ELEMENTS | wire.NESTED, elements)
    )
    kind = nft.NFT_MSG_NEWSETELEM if add else nft.NFT_MSG_DELSETELEM
    what = f"{'add to' if add else 'delete from'} {name} of {identity}"
    return Message(SUBSYSTEM | kind, family, body, NLM_F_CREATE if add else 0, what)


def _element(key: bytes, value: bytes | None = None) -> bytes:
    parts = [wire.nested(_ELEMENT_KEY, wire.attribute(1, key))]
    if value is not None:
        parts.append(wire.nested(_ELEMENT_DATA, wire.attribute(1, value)))
    return wire.nested(1, *parts)


def _way_back(way: plan.WayBack) -> bytes:
    mac = bytes.fromhex(way.mac.replace(":", ""))
    if len(mac) != 6:
        raise ValueError(f"{way.mac!r} is no MAC address")
    return struct.pack("=I6s2x4s", way.ifindex, mac, _address(way.ip))


def _read_elements(bodies: Iterable[bytes]) -> Iterable[tuple[bytes, bytes, bytes]]:
    """(key, data, expression) of every element of a dump."""
    for body in bodies:
        for _, element in wire.attributes(wire.by_kind(body).get(LIST_ELEMENTS, b"")):
            fields = wire.by_kind(element)
            # Past their own header, key and data hold one value attribute each.
            key, data = fields[_ELEMENT_KEY][4:], fields.get(_ELEMENT_DATA, b"")[4:]
            yield key, data, fields.get(_ELEMENT_EXPRESSION, b"")


def _counted(expressions: bytes) -> int:
    for _, expression in wire.attributes(expressions):
        if wire.string(wire.by_kind(expression).get(_EXPRESSION_NAME)) == "counter":
            return _packets(expression)
    return 0


def _packets(expression: bytes) -> int:
    data = wire.by_kind(wire.by_kind(expression).get(_EXPRESSION_DATA, b""))
    return int.from_bytes(data.get(_COUNTER_PACKETS, b""), "big")


def _read_address(value: bytes) -> Address:
    return Address(socket.inet_ntoa(value[:4]), int.from_bytes(value[4:6], "big"))


def _comment(comment: str) -> bytes:
    encoded = comment.encode()
    if len(encoded) > _COMMENT_LIMIT:
        raise ValueError(f"{comment!r} is longer than the {_COMMENT_LIMIT} bytes of a comment")
    return bytes([wire.COMMENT, len(encoded) + 1]) + encoded + b"\0"


def _tag(comment: str) -> plan.Tag | None:
    try:
        return plan.Tag.parse(comment)
    except ValueError:
        return None


def _address(ip: str) -> bytes:
    return socket.inet_pton(socket.AF_INET, ip)
