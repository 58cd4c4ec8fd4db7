# SPDX-License-Identifier: Apache-2.0
"""User data of several parts: that of GSaaS, and the tenant's, unchanged. The tenant is called the caller here.

Rules:

1. Our part is one boothook, and comes first: cloud-init runs it before it handles any part of the caller's, so that
   nothing in those, such as a handler for boothooks, has power over it.
2. cloud-init processes the caller's part exactly as it would process the caller's data alone. So a caller's MIME
   message is nested into ours, byte for byte; any other data gets the type, and the name, that cloud-init gives to user
   data without MIME, and is recognised by its first line as always. Only the numbers in the names that cloud-init gives
   to parts of a MIME message are higher by one.
3. Parts of GSaaS in the caller's data are left out: user data of an earlier lease, which Nova shows, comes back when a
   VM is launched like that one.
4. The caller's gzip is decompressed here. cloud-init looks for MIME only at the outermost level, and would lose a
   message that is compressed inside a part. The whole is compressed again if only that makes it fit.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import quopri
import re

from gsaas.cloudinit.check import BARE, check, is_mime, unpacked
from gsaas.exceptions import UserDataTooLarge

NOVA_LIMIT = 65_535
"""Upper bound of the bytes of user data that Nova takes, after base64."""

_OURS = re.compile(
    rb"--(\w{32})\n"
    rb"Content-Type: text/cloud-(?:boothook|config)\n"
    rb"Content-Transfer-Encoding: [\w-]{1,20}\n"
    rb'Content-Disposition: attachment; filename="gsaas-(?:boothook|cloud-config)"\n'
    rb"\n"
)
"""The head of a part of GSaaS in a message that `compose` of this or an earlier release has made, and its boundary."""
_LONGEST = NOVA_LIMIT
"""Bytes in which such a part ends: a tenant may write many heads that have no end."""


def compose(boothook: str, caller: bytes | None = None) -> bytes:
    """Return a MIME message of our user data and the caller's.

    *boothook* is a script that begins with `#cloud-boothook`. *caller* is anything cloud-init takes: cloud-config,
    script, include, boothook, part handler, template, archive, MIME message, any of it compressed. Raises `BadRequest`
    as `check.check` does.
    """
    parts = [_part("text/cloud-boothook", boothook.encode(), "gsaas-boothook")]
    if caller:
        data = _callers_data(caller)
        check(data)
        parts.append(data if is_mime(data) else _part(BARE, data, "part-001"))

    boundary = _boundary(parts)
    head = f'Content-Type: multipart/mixed; boundary="{boundary}"\nMIME-Version: 1.0\n\n'.encode()
    body = b"".join(f"--{boundary}\n".encode() + part + _newline_after(part) for part in parts)
    return head + body + f"--{boundary}--\n".encode()


def notes(caller: bytes) -> list[str]:
    """Return what the caller should know about the caller's user data. Raises as `compose`."""
    return check(_callers_data(caller))


def encode(user_data: bytes) -> str:
    """Return base64 for Nova of *user_data*, or of its gzip if only that fits; cloud-init takes both.

    Raises `UserDataTooLarge` if neither fits.
    """
    text = base64.b64encode(user_data).decode()
    if len(text) > NOVA_LIMIT:
        text = base64.b64encode(gzip.compress(user_data, mtime=0)).decode()
    if len(text) > NOVA_LIMIT:
        excess = -(-(len(text) - NOVA_LIMIT) * 3 // 4)
        raise UserDataTooLarge(size=len(text), limit=NOVA_LIMIT, excess=excess)
    return text


def _callers_data(data: bytes) -> bytes:
    return _without_ours(unpacked(data))


def _without_ours(data: bytes) -> bytes:
    kept, done = [], 0
    for head in _OURS.finditer(data):
        if head.start() < done:
            continue
        end = data.find(b"\n--" + head[1], head.end(), head.end() + _LONGEST)
        if end != -1:
            kept.append(data[done : head.start()])
            done = end + 1
    return b"".join([*kept, data[done:]])


def _part(content_type: str, content: bytes, filename: str) -> bytes:
    encoding, body = _transfer_encoded(content)
    head = (
        f"Content-Type: {content_type}\n"
        f"Content-Transfer-Encoding: {encoding}\n"
        f'Content-Disposition: attachment; filename="{filename}"\n'
        "\n"
    )
    return head.encode() + body


def _transfer_encoded(content: bytes) -> tuple[str, bytes]:
    """Return the most readable encoding that decodes to exactly *content*, which also compresses best."""
    if _is_text(content):
        if content.isascii() and all(len(line) <= 998 for line in content.split(b"\n")):
            return "7bit", content
        return "quoted-printable", quopri.encodestring(content)
    return "base64", base64.encodebytes(content)


def _newline_after(part: bytes) -> bytes:
    """Return the line end before a boundary, which is no part of the content.

    CRLF after a final CR: a parser would take that CR and a LF alone as one line end.
    """
    return b"\r\n" if part.endswith(b"\r") else b"\n"


def _is_text(content: bytes) -> bool:
    """Return whether *content* is UTF-8 with LF as line ends, so that MIME does not change its lines."""
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return b"\r" not in content and b"\0" not in content


def _boundary(parts: list[bytes]) -> str:
    """Return a boundary that no part contains, and that is the same for the same parts."""
    text = b"".join(parts)
    boundary = hashlib.sha256(text).hexdigest()[:32]
    while boundary.encode() in text:
        boundary = hashlib.sha256(boundary.encode()).hexdigest()[:32]
    return boundary
