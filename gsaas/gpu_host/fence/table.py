# SPDX-License-Identifier: Apache-2.0
"""The fence's table in the kernel: reads, builds and changes it. Each change is one netlink transaction."""

from __future__ import annotations

import errno
import socket
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from pyroute2.netlink import NLM_F_CREATE
from pyroute2.netlink.nfnetlink import nftsocket as nft

from gsaas.gpu_host.fence import ruleset
from gsaas.gpu_host.fence.layout import FenceLayout, Listener
from gsaas.gpu_host.fence.ruleset import ADMITTED, INET, LISTENERS, TABLE
from gsaas.netlink import expressions as ex
from gsaas.netlink import wire
from gsaas.netlink.expressions import SUBSYSTEM
from gsaas.netlink.transport import NetlinkRefused, Nfnetlink
from gsaas.netlink.wire import Message
from gsaas.objects.daemon import Admission

# Numbers of netlink attributes, from linux/netfilter/nf_tables.h.
_TABLE_NAME, _TABLE_FLAGS, _TABLE_USERDATA, _TABLE_OWNER = 1, 2, 6, 7
_LIST_TABLE, _LIST_SET, _LIST_ELEMENTS = 1, 2, 3
_ELEMENT, _ELEMENT_KEY, _DATA_VALUE = 1, 1, 1
_RULE_TABLE, _RULE_CHAIN, _RULE_EXPRESSIONS = 1, 2, 4
_EXPRESSION, _EXPRESSION_NAME, _EXPRESSION_DATA = 1, 1, 2
_COUNTER_PACKETS = 2
_CHUNK = 1500
"""Upper bound of elements in one message: the length of a netlink attribute has 16 bits."""


@dataclass(frozen=True)
class Elements:
    """What the sets of the table contain, or what is to be added or removed."""

    admitted: frozenset[Admission] = frozenset()
    listeners: frozenset[Listener] = frozenset()

    def __sub__(self, other: Elements) -> Elements:
        """Return what is in this and not in *other*."""
        return Elements(self.admitted - other.admitted, self.listeners - other.listeners)


@dataclass(frozen=True)
class TableState:
    """The table as the kernel has it."""

    comment: str
    """`FenceLayout.comment` of the layout that it was built for."""
    intact: bool
    """Every chain has the expected number of rules."""
    elements: Elements
    refused: int
    """Packets that were answered with a reset since the table was built."""


class FenceTable:
    """`inet gsaas_fence` of the network namespace *netns*; None: this process's own.

    Where the kernel supports owners of tables that persist (Linux 6.9), no other process can change the table, and it
    stays when this process ends.
    """

    def __init__(self, netns: str | None = None) -> None:
        self._netlink = Nfnetlink(netns)
        self._flags = ex.OWNER | ex.PERSIST

    def close(self) -> None:
        """Close the netlink socket; the table stays."""
        self._netlink.close()

    def read(self, layout: FenceLayout) -> TableState | None:
        """Return the state of the table, compared with *layout*; None if there is none.

        Becomes the owner of a table whose owner has ended. Raises `NetlinkRefused` if another process owns it.
        """
        table = self._table()
        if table is None:
            return None
        flags, comment, owner = table
        if flags & ex.OWNER and owner != self._netlink.port_id:
            raise NetlinkRefused(
                errno.EPERM,
                f"table {TABLE} belongs to another process (netlink port {owner}); is a second "
                "monitor running on this host",
            )
        if flags & (ex.OWNER | ex.PERSIST) == ex.PERSIST:
            self._netlink.transact([ex.add_table(INET, TABLE, flags | ex.OWNER, comment)])
        counted, refused = self._rules()
        return TableState(
            comment,
            counted == ruleset.rules_per_chain(layout),
            Elements(frozenset(self._admitted()), frozenset(self._listeners())),
            refused,
        )

    def rebuild(self, layout: FenceLayout, wanted: Elements) -> None:
        """Replace the table, if there is one, in one transaction: packets of admitted addresses pass all the time."""
        remains = [] if self._table() is None else [ex.delete_table(INET, TABLE)]
        elements = _elements(True, wanted)
        try:
            self._netlink.transact([*remains, *ruleset.build(layout, self._flags), *elements])
        except NetlinkRefused as refusal:
            unknown = refusal.errno in (errno.EOPNOTSUPP, errno.EINVAL)
            needs_groups = layout.monitor is not None or layout.daemon_level is not None
            if refusal.what.startswith("add rule to chain") and needs_groups:
                raise NetlinkRefused(
                    refusal.errno or errno.EOPNOTSUPP,
                    "know monitor and daemons by their control groups: nftables of this kernel has no "
                    "`socket cgroupv2`, which Linux 5.13 added as the module nft_socket",
                ) from refusal
            if not (self._flags and unknown and refusal.what.startswith("add table")):
                raise
            self._flags = 0  # this kernel does not support owners of tables
            self._netlink.transact([*remains, *ruleset.build(layout, 0), *elements])

    def change(self, add: Elements, remove: Elements) -> None:
        """Add and remove elements; raises `NetlinkRefused`, and changes nothing, if one is there or is missing."""
        self._netlink.transact([*_elements(False, remove), *_elements(True, add)])

    def remove(self) -> None:
        """Remove the table, if there is one."""
        table = self._table()
        if table is None:
            return
        flags, comment, owner = table
        if flags & (ex.OWNER | ex.PERSIST) == ex.PERSIST and owner == 0:
            self._netlink.transact([ex.add_table(INET, TABLE, flags | ex.OWNER, comment)])
        self._netlink.transact([ex.delete_table(INET, TABLE)])

    def _table(self) -> tuple[int, str, int] | None:
        """Return flags, comment and owner (a netlink port, 0: none) of the table; None if there is none."""
        request = Message(SUBSYSTEM | nft.NFT_MSG_GETTABLE, INET, b"", 0, "read tables")
        for body in self._netlink.dump(request):
            fields = wire.by_kind(body)
            if wire.string(fields[_TABLE_NAME]) == TABLE:
                return (
                    int.from_bytes(fields.get(_TABLE_FLAGS, b""), "big"),
                    wire.read_comment(fields.get(_TABLE_USERDATA)),
                    int.from_bytes(fields.get(_TABLE_OWNER, b""), "big"),
                )
        return None

    def _rules(self) -> tuple[dict[str, int], int]:
        """Return chain -> number of its rules, and the packets that refusing rules have counted."""
        body = wire.text(_RULE_TABLE, TABLE)
        request = Message(SUBSYSTEM | nft.NFT_MSG_GETRULE, INET, body, 0, "read rules")
        counted: dict[str, int] = {}
        refused = 0
        for rule in map(wire.by_kind, self._netlink.dump(request)):
            chain = wire.string(rule[_RULE_CHAIN])
            counted[chain] = counted.get(chain, 0) + 1
            for _, expression in wire.attributes(rule.get(_RULE_EXPRESSIONS, b"")):
                parts = wire.by_kind(expression)
                if wire.string(parts.get(_EXPRESSION_NAME)) == "counter":
                    packets = wire.by_kind(parts[_EXPRESSION_DATA]).get(_COUNTER_PACKETS, b"")
                    refused += int.from_bytes(packets, "big")
        return counted, refused

    def _admitted(self) -> Iterable[Admission]:
        for key in self._keys(ADMITTED):
            yield Admission(socket.inet_ntoa(key[:4]), int.from_bytes(key[4:6], "big"))

    def _listeners(self) -> Iterable[Listener]:
        try:
            for key in self._keys(LISTENERS):
                yield Listener(
                    int.from_bytes(key[:2], "big"), int.from_bytes(key[4:12], sys.byteorder)
                )
        except NetlinkRefused as refusal:
            if refusal.errno != errno.ENOENT:  # a table of an earlier release has no such set
                raise

    def _keys(self, name: str) -> Iterable[bytes]:
        """Yield the keys of the elements of a set."""
        body = wire.text(_LIST_TABLE, TABLE) + wire.text(_LIST_SET, name)
        request = Message(SUBSYSTEM | nft.NFT_MSG_GETSETELEM, INET, body, 0, f"read {name}")
        for answer in self._netlink.dump(request):
            elements = wire.by_kind(answer).get(_LIST_ELEMENTS, b"")
            for _, element in wire.attributes(elements):
                yield wire.by_kind(wire.by_kind(element)[_ELEMENT_KEY])[_DATA_VALUE]


def _elements(add: bool, elements: Elements) -> list[Message]:
    """Return the messages that add these elements to their sets, or remove them."""
    admitted = [
        socket.inet_aton(admission.address) + admission.port.to_bytes(2, "big") + bytes(2)
        for admission in sorted(elements.admitted)
    ]
    listeners = [
        listener.port.to_bytes(2, "big") + bytes(2) + ex.host64(listener.group)
        for listener in sorted(elements.listeners)
    ]
    return [*_of_set(ADMITTED, add, admitted), *_of_set(LISTENERS, add, listeners)]


def _of_set(name: str, add: bool, keys: list[bytes]) -> Iterator[Message]:
    kind = SUBSYSTEM | (nft.NFT_MSG_NEWSETELEM if add else nft.NFT_MSG_DELSETELEM)
    flags = NLM_F_CREATE if add else 0
    for start in range(0, len(keys), _CHUNK):
        some = keys[start : start + _CHUNK]
        body = (
            wire.text(_LIST_TABLE, TABLE)
            + wire.text(_LIST_SET, name)
            + wire.nested(_LIST_ELEMENTS, *map(_element, some))
        )
        what = f"{'add' if add else 'remove'} {len(some)} elements of {name}"
        yield Message(kind, INET, body, flags, what)


def _element(key: bytes) -> bytes:
    return wire.nested(_ELEMENT, wire.nested(_ELEMENT_KEY, wire.attribute(_DATA_VALUE, key)))
