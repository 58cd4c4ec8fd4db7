# SPDX-License-Identifier: Apache-2.0
"""The netlink messages that carry out the operations of a plan.

The installation of a VM's binding takes this path, so bytes are laid out here by hand: rules are encoded
once and have their two addresses filled in, map elements have a fixed form.
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
from gsaas.objects.binding import INVALID_UID
from gsaas.rodvr import plan
from gsaas.rodvr.kernel.attributes import (
    CHAIN_HOOK,
    CHAIN_NAME,
    CHAIN_POLICY,
    CHAIN_PREFIX,
    CHAIN_TABLE,
    CHAIN_TYPE,
    CHAIN_USERDATA,
    ELEMENT_DATA,
    ELEMENT_KEY,
    HOOK_DEVICE,
    HOOK_NUMBER,
    HOOK_PRIORITY,
    LIST_ELEMENTS,
    LIST_SET,
    LIST_TABLE,
    RULE_CHAIN,
    RULE_EXPRESSIONS,
    RULE_TABLE,
)
from gsaas.rodvr.kernel.ruleset import (
    IPV4,
    NETDEV,
    SOURCES,
    TABLE,
    TAP_PRIORITY,
    RulesetConfig,
    tap_rules,
)

# A map element is nested as list element > element > key > value, and for its data as > data > value.
# The headers never change: all addresses and ports have the same size.
_NESTED = wire.NESTED
_MAPPING = struct.Struct("=12s 4s4s2s2x 8s 4s2s2x")
_MAPPING_KEY = struct.Struct("=12s 4s4s2s2x")
_MAPPING_HEADERS = struct.pack("=HHHHHH", 40, 1 | _NESTED, 20, 1 | _NESTED, 16, 1)
_MAPPING_DATA_HEADERS = struct.pack("=HHHH", 16, 2 | _NESTED, 12, 1)
_MAPPING_KEY_HEADERS = struct.pack("=HHHHHH", 24, 1 | _NESTED, 20, 1 | _NESTED, 16, 1)
_ELEMENTS_PER_MESSAGE = 1500
"""An attribute's length has 16 bits, and an element of `real` has 40 bytes."""

_TEMPLATE_IP, _TEMPLATE_IDENTITY = b"\xfb\x01\x02\x03", b"\xfb\x04\x05\x06"
"""Stand for the addresses of a port where the rules of a tap are encoded, and occur nowhere else in them."""


class OperationEncoder:
    """Turns the operations of a plan into messages, for one configuration of the tables."""

    def __init__(self, config: RulesetConfig) -> None:
        rules = tap_rules(config, _TEMPLATE_IP, _TEMPLATE_IDENTITY)
        self._rules = [
            [part.split(_TEMPLATE_IP) for part in _encode_rule(rule).split(_TEMPLATE_IDENTITY)]
            for rule in rules
        ]
        """The parts of each rule between identities, each in parts between addresses."""

    def messages(self, operations: Iterable[plan.Operation]) -> list[Message]:
        """Return the messages of *operations*, in order; `ValueError` for an invalid MAC address or comment."""
        messages: list[Message] = []
        for operation in operations:
            match operation:
                case plan.AddMappings(identity, mappings):
                    messages += add_mappings(identity, mappings)
                case plan.DeleteMappings(identity, masked):
                    messages += delete_mappings(identity, masked)
                case plan.AddLocalMappings(local_mappings):
                    messages += _add_local_mappings(local_mappings)
                case plan.DeleteLocalMappings(keys):
                    messages += _delete_local_mappings(keys)
                case plan.AddChain(tap, tag):
                    messages += self._add_chain(tap, tag)
                case plan.DeleteChain(tap):
                    messages += _delete_chain(tap)
                case plan.AddReturnPath(identity, path):
                    element = _element(_address(identity), _return_path(path))
                    messages.append(_elements(True, NETDEV, "back", element, identity))
                case plan.AddSources(ifindex, identities):
                    elements = b"".join(
                        _element(_source(ifindex, ip), _address(identity))
                        for ip, identity in identities.items()
                    )
                    messages.append(_elements(True, NETDEV, SOURCES, elements, str(ifindex)))
                case plan.DeleteSources(ifindex, ips):
                    elements = b"".join(_element(_source(ifindex, ip)) for ip in ips)
                    messages.append(_elements(False, NETDEV, SOURCES, elements, str(ifindex)))
                case plan.DeleteReturnPath(identity):
                    element = _element(_address(identity))
                    messages.append(_elements(False, NETDEV, "back", element, identity))
        return messages

    def _add_chain(self, tap: str, tag: plan.ChainTag) -> list[Message]:
        name = CHAIN_PREFIX + tap
        hook = wire.nested(
            CHAIN_HOOK,
            wire.be32(HOOK_NUMBER, 0),
            wire.be32(HOOK_PRIORITY, TAP_PRIORITY),
            wire.text(HOOK_DEVICE, tap),
        )
        body = (
            wire.text(CHAIN_TABLE, TABLE)
            + wire.text(CHAIN_NAME, name)
            + hook
            + wire.be32(CHAIN_POLICY, ex.ACCEPT)
            + wire.text(CHAIN_TYPE, "filter")
            + wire.attribute(CHAIN_USERDATA, wire.comment(str(tag)))
        )
        kind = SUBSYSTEM | nft.NFT_MSG_NEWCHAIN
        messages = [Message(kind, NETDEV, body, NLM_F_CREATE, f"add chain on {tap}")]
        ip, identity = _address(tag.ip), _address(tag.identity)
        chain = wire.text(RULE_TABLE, TABLE) + wire.text(RULE_CHAIN, name)
        kind = SUBSYSTEM | nft.NFT_MSG_NEWRULE
        for parts in self._rules:
            rule = identity.join(ip.join(part) for part in parts)
            flags = NLM_F_CREATE | NLM_F_APPEND
            messages.append(Message(kind, NETDEV, chain + rule, flags, f"add rule on {tap}"))
        return messages


def add_mappings(identity: str, mappings: Mapping[Address, Address]) -> list[Message]:
    """Return the messages that add mappings of one identity."""
    source = _address(identity)
    elements = [_mapping(source, masked, real) for masked, real in mappings.items()]
    return _in_chunks(True, "real", elements, identity)


def delete_mappings(identity: str, masked: Iterable[Address]) -> list[Message]:
    """Return the messages that delete mappings of one identity."""
    source = _address(identity)
    elements = [_mapping_key(source, address) for address in masked]
    return _in_chunks(False, "real", elements, identity)


def reset_unmapped(identity: str) -> Message:
    """Return the message that deletes the counter of *identity* in `unmapped`; ENOENT if there is none."""
    return _elements(False, IPV4, "unmapped", _element(_address(identity)), identity)


def reset_unmapped_local(masked_ip: str) -> Message:
    """Return the message that deletes the counter of *masked_ip* in `unmapped-local`; ENOENT if there is none."""
    return _elements(False, IPV4, "unmapped-local", _element(_address(masked_ip)), masked_ip)


def _add_local_mappings(mappings: Mapping[plan.LocalKey, Address]) -> list[Message]:
    elements = [_mapping(_user(key.uid), key.masked, real) for key, real in mappings.items()]
    return _in_chunks(True, "local", elements, "this host")


def _delete_local_mappings(keys: Iterable[plan.LocalKey]) -> list[Message]:
    elements = [_mapping_key(_user(key.uid), key.masked) for key in keys]
    return _in_chunks(False, "local", elements, "this host")


def _delete_chain(tap: str) -> list[Message]:
    """Return the messages that delete a chain, its rules first: some kernels refuse to delete one that has rules."""
    name = CHAIN_PREFIX + tap
    rules = wire.text(RULE_TABLE, TABLE) + wire.text(RULE_CHAIN, name)
    chain = wire.text(CHAIN_TABLE, TABLE) + wire.text(CHAIN_NAME, name)
    return [
        Message(SUBSYSTEM | nft.NFT_MSG_DELRULE, NETDEV, rules, 0, f"flush chain on {tap}"),
        Message(SUBSYSTEM | nft.NFT_MSG_DELCHAIN, NETDEV, chain, 0, f"delete chain on {tap}"),
    ]


def _encode_rule(rule: list[ex.Expression]) -> bytes:
    """Return the expressions attribute of a rule, without table and chain."""
    message = ex.add_rule(NETDEV, TABLE, "template", rule)
    expressions = wire.by_kind(message.body)[RULE_EXPRESSIONS]
    return wire.nested(RULE_EXPRESSIONS, expressions)


def _mapping(source: bytes, masked: Address, real: Address) -> bytes:
    """Return an element of `real` or `local`; *source* is an identity or a user."""
    return _MAPPING.pack(
        _MAPPING_HEADERS,
        source,
        _address(masked.ip),
        masked.port.to_bytes(2, "big"),
        _MAPPING_DATA_HEADERS,
        _address(real.ip),
        real.port.to_bytes(2, "big"),
    )


def _mapping_key(source: bytes, masked: Address) -> bytes:
    """Return an element of `real` or `local` with its key alone, as it is deleted."""
    port = masked.port.to_bytes(2, "big")
    return _MAPPING_KEY.pack(_MAPPING_KEY_HEADERS, source, _address(masked.ip), port)


def _user(uid: int | None) -> bytes:
    """Return a user id in this machine's byte order, as the kernel compares the owners of sockets."""
    return ex.host32(INVALID_UID if uid is None else uid)


def _in_chunks(add: bool, name: str, elements: list[bytes], owner: str) -> list[Message]:
    return [
        _elements(add, IPV4, name, b"".join(elements[start : start + _ELEMENTS_PER_MESSAGE]), owner)
        for start in range(0, len(elements), _ELEMENTS_PER_MESSAGE)
    ]


def _elements(add: bool, family: int, name: str, elements: bytes, owner: str) -> Message:
    body = (
        wire.text(LIST_TABLE, TABLE)
        + wire.text(LIST_SET, name)
        + wire.attribute(LIST_ELEMENTS | wire.NESTED, elements)
    )
    kind = nft.NFT_MSG_NEWSETELEM if add else nft.NFT_MSG_DELSETELEM
    what = f"{'add to' if add else 'delete from'} {name} of {owner}"
    return Message(SUBSYSTEM | kind, family, body, NLM_F_CREATE if add else 0, what)


def _element(key: bytes, value: bytes | None = None) -> bytes:
    parts = [wire.nested(ELEMENT_KEY, wire.attribute(1, key))]
    if value is not None:
        parts.append(wire.nested(ELEMENT_DATA, wire.attribute(1, value)))
    return wire.nested(1, *parts)


def _source(ifindex: int, ip: str) -> bytes:
    return ex.host32(ifindex) + _address(ip)


def _return_path(path: plan.ReturnPath) -> bytes:
    mac = bytes.fromhex(path.mac.replace(":", ""))
    if len(mac) != 6:
        raise ValueError(f"{path.mac!r} is not a MAC address")
    return struct.pack("=I6s2x4s", path.ifindex, mac, _address(path.ip))


def _address(ip: str) -> bytes:
    return socket.inet_pton(socket.AF_INET, ip)
