"""User data made of parts: the caller's, untouched, and ours.

Rules:

1. cloud-init sees in the caller's part exactly what it would see in the caller's data alone. So a
   caller's MIME message becomes a branch of ours, byte for byte; anything else travels under the
   type that cloud-init itself gives to bare user data, and is recognised by its first line as
   always.
2. Ours comes last and says how it merges: lists are appended, what the caller said is never
   replaced.
3. The caller's gzip is undone here. cloud-init looks for MIME only at the outermost level, and
   would lose a message compressed inside a part. The whole is compressed again if that is what
   makes it fit.
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
"""Most bytes of user data that Nova takes, after base64."""

_BARE = "text/x-not-multipart"
_MOST_UNPACKED = 16 * 2**20  # bytes; far beyond any user data, far below what a gzip bomb makes

MERGE_HOW = [
    {"name": "list", "settings": ["append"]},
    {"name": "dict", "settings": ["no_replace", "recurse_list"]},
]


def cloud_config(data: Mapping[str, Any]) -> str:
    """*data* as a cloud-config that adds to the ones before it."""
    return "#cloud-config\n" + yaml.safe_dump({"merge_how": MERGE_HOW, **data}, sort_keys=False)


def compose(ours: Mapping[str, Any], caller: bytes | None = None, boothook: str = "") -> bytes:
    """A MIME message of the caller's user data and ours.

    *ours* is the content of a cloud-config; *boothook*, if any, a script that begins with
    `#cloud-boothook`. *caller* is anything cloud-init takes: cloud-config, script, include,
    boothook, part handler, template, archive, MIME message, any of it compressed. `BadRequest` if
    it announces a format and breaks its rules so that cloud-init would drop everything, ours
    included.
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
    """Base64 for Nova of *user_data*, or of its gzip if only that fits; cloud-init takes both.

    `UserDataTooLarge` if neither fits.
    """
    text = base64.b64encode(user_data).decode()
    if len(text) > NOVA_LIMIT:
        text = base64.b64encode(gzip.compress(user_data, mtime=0)).decode()
    if len(text) > NOVA_LIMIT:
        excess = -(-(len(text) - NOVA_LIMIT) * 3 // 4)
        raise UserDataTooLarge(size=len(text), limit=NOVA_LIMIT, excess=excess)
    return text


def _unpacked(data: bytes) -> bytes:
    """*data* without its gzip; as it is if that is none or a broken one, as cloud-init takes it."""
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as packed:
            unpacked = packed.read(_MOST_UNPACKED + 1)
    except (OSError, EOFError, zlib.error):
        return data
    if len(unpacked) > _MOST_UNPACKED:
        raise BadRequest(reason=f"user data unpacks to more than {_MOST_UNPACKED} bytes")
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
    """The most readable encoding that gives back exactly *content*; it compresses best too."""
    if _is_text(content):
        if content.isascii() and all(len(line) <= 998 for line in content.split(b"\n")):
            return "7bit", content
        return "quoted-printable", quopri.encodestring(content)
    return "base64", base64.encodebytes(content)


def _newline_after(part: bytes) -> bytes:
    """The line end before a boundary, which is no part of the content: a final CR must not join it."""
    return b"\r\n" if part.endswith(b"\r") else b"\n"


def _is_text(content: bytes) -> bool:
    """Whether *content* is UTF-8 with plain newlines, so that MIME leaves its lines alone."""
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return b"\r" not in content and b"\0" not in content


def _boundary(parts: list[bytes]) -> str:
    """A boundary that no part contains, the same for the same parts."""
    text = b"".join(parts)
    boundary = hashlib.sha256(text).hexdigest()[:32]
    while boundary.encode() in text:
        boundary = hashlib.sha256(boundary.encode()).hexdigest()[:32]
    return boundary
