# SPDX-License-Identifier: Apache-2.0
"""Netlink attributes and messages as bytes.

pyroute2 encodes what is built once (rules, base chains). What is built for every VM, or read by the
thousand, goes through these few functions instead: pyroute2's generic encoder takes about 40 us per set
element, which would be most of the time of an installation.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

NESTED = 0x8000
COMMENT = 0
"""The kind of user data that is a comment, as `nft` writes it."""
_COMMENT_LIMIT = 253
"""The kernel's limit of user data is 256 bytes: two of header and the null byte are among them."""
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
    """Describes the message in the error when the kernel refuses it."""
    version: int = 0
    """With 1, connection tracking restricts itself to `family`; nftables requires 0."""


def attribute(kind: int, payload: bytes) -> bytes:
    """Return one attribute: header, *payload*, and padding to a multiple of four bytes."""
    return _HEADER.pack(len(payload) + 4, kind) + payload + bytes(-len(payload) % 4)


def nested(kind: int, *parts: bytes) -> bytes:
    """Return an attribute that contains the attributes *parts*."""
    return attribute(kind | NESTED, b"".join(parts))


def text(kind: int, value: str) -> bytes:
    """Return an attribute with a null-terminated string."""
    return attribute(kind, value.encode() + b"\0")


def be32(kind: int, value: int) -> bytes:
    """Return an attribute with a 32-bit number in network byte order."""
    return attribute(kind, struct.pack(">i" if value < 0 else ">I", value))


def attributes(buffer: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the attributes in *buffer* as (kind, payload), in order, up to the first bytes that are not one."""
    offset, end = 0, len(buffer)
    while offset + 4 <= end:
        length, kind = _HEADER.unpack_from(buffer, offset)
        if length < 4:
            return
        yield kind & _TYPE_MASK, buffer[offset + 4 : offset + length]
        offset += (length + 3) & ~3


def by_kind(buffer: bytes) -> dict[int, bytes]:
    """Return the payloads of the attributes in *buffer* by their kind, the last one of each."""
    return dict(attributes(buffer))


def string(payload: bytes | None) -> str:
    """Return the string in the payload of an attribute that `text` made; empty for None, a missing attribute."""
    return (payload or b"").rstrip(b"\0").decode(errors="replace")


def comment(value: str) -> bytes:
    """Return the user data of a table or chain whose comment is *value*; `ValueError` if it is too long for one."""
    encoded = value.encode()
    if len(encoded) > _COMMENT_LIMIT:
        raise ValueError(f"{value!r} is longer than the {_COMMENT_LIMIT} bytes of a comment")
    return bytes([COMMENT, len(encoded) + 1]) + encoded + b"\0"


def read_comment(userdata: bytes | None) -> str:
    """Return the comment in the user data of a table or chain; empty if there is none."""
    if userdata is None or len(userdata) < 2 or userdata[0] != COMMENT:
        return ""
    return string(userdata[2 : 2 + userdata[1]])
