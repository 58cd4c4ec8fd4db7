"""Netlink attributes and messages as bytes.

pyroute2 encodes what is built once (rules, base chains). What is built for every VM or read by the
thousand goes through these few functions instead: its generic encoder takes about 40 us per set
element, which is most of an install.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

NESTED = 0x8000
COMMENT = 0
"""The kind of user data that is a comment, as `nft` writes it."""
_TYPE_MASK = 0x3FFF
_HEADER = struct.Struct("=HH")


@dataclass(frozen=True, slots=True)
class Message:
    """One netfilter netlink message, before it has a sequence number."""

    kind: int
    """Subsystem in the high byte, message type in the low one."""
    family: int
    body: bytes
    flags: int = 0
    what: str = ""
    """Names the message when the kernel refuses it."""
    version: int = 0
    """1 makes connection tracking honour `family`; nftables wants 0."""


def attribute(kind: int, payload: bytes) -> bytes:
    return _HEADER.pack(len(payload) + 4, kind) + payload + bytes(-len(payload) % 4)


def nested(kind: int, *parts: bytes) -> bytes:
    return attribute(kind | NESTED, b"".join(parts))


def text(kind: int, value: str) -> bytes:
    return attribute(kind, value.encode() + b"\0")


def be32(kind: int, value: int) -> bytes:
    return attribute(kind, struct.pack(">i" if value < 0 else ">I", value))


def attributes(buffer: bytes) -> Iterator[tuple[int, bytes]]:
    """The attributes in *buffer*, in order; stops quietly at what is not one."""
    offset, end = 0, len(buffer)
    while offset + 4 <= end:
        length, kind = _HEADER.unpack_from(buffer, offset)
        if length < 4:
            return
        yield kind & _TYPE_MASK, buffer[offset + 4 : offset + length]
        offset += (length + 3) & ~3


def by_kind(buffer: bytes) -> dict[int, bytes]:
    return dict(attributes(buffer))


def string(payload: bytes | None) -> str:
    return (payload or b"").rstrip(b"\0").decode(errors="replace")


def read_comment(userdata: bytes | None) -> str:
    """Return the comment in the user data of a table or chain; empty if there is none."""
    if userdata is None or len(userdata) < 2 or userdata[0] != COMMENT:
        return ""
    return string(userdata[2 : 2 + userdata[1]])
