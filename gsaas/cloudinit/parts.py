# SPDX-License-Identifier: Apache-2.0
"""User data of several parts: the tenant's, unchanged, and that of GSaaS. The tenant is called the caller here.

Rules:

1. cloud-init processes the caller's part exactly as it would process the caller's data alone. So a caller's MIME
   message is nested into ours, byte for byte; any other data gets the type that cloud-init gives to user data without
   MIME, and is recognised by its first line as always.
2. Our part comes last and says how it merges: lists are appended, and no value of the caller is replaced.
3. The caller's gzip is decompressed here. cloud-init looks for MIME only at the outermost level, and would lose a
   message that is compressed inside a part. The whole is compressed again if only that makes it fit.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import quopri
import zlib
from collections.abc import Mapping
from typing import Any

import yaml

from gsaas.exceptions import BadRequest, UserDataTooLarge

NOVA_LIMIT = 65_535
"""Upper bound of the bytes of user data that Nova takes, after base64."""

_BARE = "text/x-not-multipart"
_MAX_UNPACKED = 2**20
"""Bytes of unpacked user data. Packed again it has to fit into 48 KiB, which text of more than this seldom does; and
it is held in memory several times, for each of the requests that a process answers at once."""

MERGE_HOW = [
    {"name": "list", "settings": ["append"]},
    {"name": "dict", "settings": ["no_replace", "recurse_list"]},
]


def cloud_config(data: Mapping[str, Any]) -> str:
    """Return *data* as a cloud-config that adds to the ones before it."""
    return "#cloud-config\n" + yaml.safe_dump({"merge_how": MERGE_HOW, **data}, sort_keys=False)


def compose(ours: Mapping[str, Any], caller: bytes | None = None, boothook: str = "") -> bytes:
    """Return a MIME message of the caller's user data and ours.

    *ours* is the content of a cloud-config; *boothook*, if any, a script that begins with
    `#cloud-boothook`. *caller* is anything cloud-init takes: cloud-config, script, include,
    boothook, part handler, template, archive, MIME message, any of it compressed. Raises `BadRequest` if it declares a
    format and violates it in a way that makes cloud-init drop everything, our part included.
    """
    parts = []
    if caller:
        parts.append(_callers_part(_unpacked(caller)))
    if boothook:
        parts.append(_part("text/cloud-boothook", boothook.encode(), "gsaas-boothook"))
    parts.append(_part("text/cloud-config", cloud_config(ours).encode(), "gsaas-cloud-config"))

    boundary = _boundary(parts)
    head = f'Content-Type: multipart/mixed; boundary="{boundary}"\nMIME-Version: 1.0\n\n'.encode()
    body = b"".join(f"--{boundary}\n".encode() + part + _newline_after(part) for part in parts)
    return head + body + f"--{boundary}--\n".encode()


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


def _unpacked(data: bytes) -> bytes:
    """Return *data* decompressed; unchanged if it is no gzip or a broken one, which cloud-init takes as it is."""
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as packed:
            unpacked = packed.read(_MAX_UNPACKED + 1)
    except (OSError, EOFError, zlib.error):
        return data
    if len(unpacked) > _MAX_UNPACKED:
        raise BadRequest(reason=f"user data unpacks to more than {_MAX_UNPACKED} bytes")
    return unpacked


def _callers_part(data: bytes) -> bytes:
    if b"mime-version:" not in data[:4096].lower():  # cloud-init's own test, and its own 4096
        return _part(_BARE, data)
    try:
        data.decode()
    except UnicodeDecodeError as exc:
        reason = f"user data has a MIME-Version header but is not UTF-8 at byte {exc.start}"
        raise BadRequest(reason=reason) from exc
    return data


def _part(content_type: str, content: bytes, filename: str = "") -> bytes:
    encoding, body = _transfer_encoded(content)
    headers = [f"Content-Type: {content_type}", f"Content-Transfer-Encoding: {encoding}"]
    if filename:
        headers.append(f'Content-Disposition: attachment; filename="{filename}"')
    return "".join(f"{line}\n" for line in headers).encode() + b"\n" + body


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
