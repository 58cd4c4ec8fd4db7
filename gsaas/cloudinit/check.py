# SPDX-License-Identifier: Apache-2.0
"""What cloud-init would make of a tenant's user data. Pure.

cloud-init first takes all user data apart, and only then handles the first part of it. So whatever fails while it takes
the tenant's data apart costs the VM the part of GSaaS, too: that is refused here, by doing what cloud-init does. What
fails when a part is handled concerns that part alone, and is the tenant's.

What can only fail in the VM, and what cloud-init ignores, is noted. Data for another program than cloud-init is
refused: in a MIME message that program would not find it, and without cloud-init the VM would not have the environment.
"""

from __future__ import annotations

import base64
import contextlib
import gzip
import io
import zlib
from collections.abc import Iterator
from email import message_from_string
from email.errors import MessageError
from email.mime.base import MIMEBase
from email.mime.text import MIMEText
from typing import Any, NamedTuple

import yaml

from gsaas.cloudinit.formats import content_type, other_reader
from gsaas.exceptions import BadRequest

BARE = "text/x-not-multipart"
"""cloud-init's type of user data that is no MIME message."""

_COMPRESSED = {
    "application/gzip",
    "application/gzip-compressed",
    "application/gzipped",
    "application/x-compress",
    "application/x-compressed",
    "application/x-gunzip",
    "application/x-gzip",
    "application/x-gzip-compressed",
}
_UNTYPED = {BARE, "text/plain", "text/x-shellscript"}
"""Types of parts whose beginning cloud-init looks at."""
_NO_HEADERS = {
    "content",
    "content-disposition",
    "content-type",
    "filename",
    "launch-index",
    "number-attachments",
    "type",
}
"""Keys of an entry of an archive that do not become headers."""
_MAX_UNPACKED = 2**20
"""Bytes of unpacked user data. Packed again it has to fit into 48 KiB, which text of more than this seldom does; and
it is held in memory several times, for each of the requests that a process answers at once."""
_MAX_ARCHIVES = 2**15
"""Bytes of archives that are looked into, as reading YAML is slow."""
_MOST_STEPS = 2_000_000
"""Lines of a MIME message, times boundaries, as its parser looks at each line once for each boundary; and a hundred for
each part."""
_FAILURES = (
    MessageError,
    ArithmeticError,
    AttributeError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
)
"""What Python's parser and writer of messages raise where cloud-init calls them."""
_COSTS = "Cloud-init would drop all user data, and the VM would not have its environment"


class _Leaf(NamedTuple):
    """One part of user data that contains no others."""

    name: str
    type: str
    content: bytes


def unpacked(data: bytes) -> bytes:
    """Return *data* decompressed; unchanged if it is no gzip or a broken one, which cloud-init takes as it is.

    Raises `BadRequest` for data that unpacks to too much.
    """
    try:
        return _gunzip(data, _MAX_UNPACKED)
    except (OSError, EOFError, zlib.error):
        return data


def is_mime(data: bytes) -> bool:
    """Return whether cloud-init takes *data* for a MIME message."""
    return b"mime-version:" in data[:4096].lower()  # its own test, and its own 4096


def check(data: bytes) -> list[str]:
    """Return what the tenant should know about user data that is not compressed.

    Raises `BadRequest` if it is for another program than cloud-init, or makes cloud-init drop everything.
    """
    notes = []
    may_unpack, may_read = _MAX_UNPACKED, _MAX_ARCHIVES
    for leaf in _leaves(data):
        kind, content = leaf.type, leaf.content
        if kind in _COMPRESSED:
            kind, content = "text/plain", _part_unpacked(leaf, may_unpack)
            may_unpack -= len(content)
        if kind in _UNTYPED:
            if reader := other_reader(content):
                raise BadRequest(reason=_for_another(leaf.name, reader))
            kind = content_type(content) or kind
        if kind == "text/cloud-config-archive":
            may_read -= len(content)
            if may_read >= 0:
                _check_archive(leaf.name, content)
        elif kind in ("text/x-include-url", "text/x-include-once-url"):
            notes.append(
                f"{leaf.name} includes URLs: if the VM cannot fetch one of them, cloud-init drops all user data, that "
                "of GSaaS with it, and the VM does not have the environment that `gsaas env` prints"
            )
        elif kind == BARE and content.strip():
            notes.append(_ignored(content))
    return notes


def _leaves(data: bytes) -> Iterator[_Leaf]:
    if not is_mime(data):
        yield _Leaf("user data", BARE, data)
        return
    steps = data.count(b"\n") * data.lower().count(b"boundary") + 100 * data.count(b"\n--")
    if steps > _MOST_STEPS:
        raise BadRequest(reason="user data is a MIME message with too many parts to be read")
    try:
        message = message_from_string(data.decode())
        parts = [part for part in message.walk() if part.get_content_maintype() != "multipart"]
        for part in parts:
            part.as_string().encode()  # which cloud-init stores
        payloads = [part.get_payload(decode=True) for part in parts]
        names = [part.get_filename() for part in parts]
    except UnicodeDecodeError as exc:
        reason = f"user data has a MIME-Version header but is not UTF-8 at byte {exc.start}"
        raise BadRequest(reason=f"{reason}. {_COSTS}") from exc
    except _FAILURES as exc:
        reason = f"user data is a MIME message that cannot be read ({exc})"
        raise BadRequest(reason=f"{reason}. {_COSTS}") from exc
    for number, (part, payload, name) in enumerate(zip(parts, payloads, names, strict=True), 1):
        called = f" ({name[:60]!r})" if name else ""
        content = payload if isinstance(payload, bytes) else b""  # a message has none of its own
        yield _Leaf(f"part {number}{called} of user data", part.get_content_type(), content)


def _part_unpacked(leaf: _Leaf, most: int) -> bytes:
    try:
        content = _gunzip(leaf.content, most)
        content.decode()
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as exc:
        reason = f"{leaf.name} has the type {leaf.type} and is no text compressed by gzip ({exc})"
        raise BadRequest(reason=f"{reason}. {_COSTS}") from exc
    return content


def _gunzip(data: bytes, most: int) -> bytes:
    with gzip.GzipFile(fileobj=io.BytesIO(data)) as packed:
        content = packed.read(most + 1)
    if len(content) > most:
        raise BadRequest(reason=f"user data unpacks to more than {_MAX_UNPACKED} bytes")
    return content


def _check_archive(name: str, content: bytes) -> None:
    try:
        entries = yaml.safe_load(content.decode(errors="surrogateescape"))
    except RecursionError as exc:
        raise BadRequest(reason=f"{name} has lists inside lists without end. {_COSTS}") from exc
    except (yaml.YAMLError, TypeError, ValueError):
        return  # cloud-init warns, and takes it for an empty one
    for number, entry in enumerate(entries if isinstance(entries, list | set) else [], 1):
        try:
            _archived(entry)
        except _FAILURES as exc:
            reason = (
                f"entry {number} of the archive in {name} cannot be read: its content has to be text, and its type, if "
                "it has one, one such as text/cloud-config"
            )
            raise BadRequest(reason=f"{reason}. {_COSTS}") from exc


def _archived(entry: Any) -> None:
    """Make a message of an entry of an archive as cloud-init does. Raises one of `_FAILURES` where that fails."""
    if isinstance(entry, str):
        entry = {"content": entry}
    if not isinstance(entry, dict):
        return  # cloud-init skips it
    content = entry.get("content", "")
    is_text = isinstance(content, str)
    kind = entry.get("type")
    if not kind:
        kind = "text/cloud-config" if is_text else "application/octet-stream"
        with contextlib.suppress(UnicodeDecodeError):
            text = content if is_text else content.decode()
            kind = content_type(text.encode()) or kind
    main, sub = kind.split("/", 1)
    message: MIMEBase
    if main == "text":
        message = MIMEText(content if is_text else content.decode(), _subtype=sub)
    else:
        message = MIMEBase(main, sub)
        message.set_payload(content)
    if "filename" in entry:
        message.add_header("Content-Disposition", "attachment", filename=str(entry["filename"]))
    if "launch-index" in entry:
        message.add_header("Launch-Index", str(entry["launch-index"]))
    for header, value in entry.items():
        if header.lower() not in _NO_HEADERS:
            message.add_header(header, value)
    message.as_string().encode()


def _for_another(name: str, reader: str) -> str:
    return (
        f"{name} is {reader}: GSaaS tells VMs of their cGPUs by cloud-init, which does not read it, and that program "
        "reads nothing of GSaaS. Launch an image with cloud-init, and user data for it; or make the VM with Nova "
        "alone, and take cGPUs for it by a lease without a VM"
    )


def _ignored(content: bytes) -> str:
    """Return why cloud-init ignores bare user data."""
    if content.startswith(b"\xef\xbb\xbf"):
        why = "it begins with a byte-order mark; save it as UTF-8 without one"
    elif content.startswith((b"\xff\xfe", b"\xfe\xff")):
        why = "it is UTF-16; save it as UTF-8"
    elif _is_encoded(content):
        why = "it is in base64 twice; the request needs it once"
    else:
        beginning = content[:24].split(b"\n")[0]
        why = f"it begins with {beginning.decode(errors='backslashreplace')!r}, which is no format of cloud-init"
    return f"cloud-init will ignore the user data of the request: {why}"


def _is_encoded(content: bytes) -> bool:
    """Return whether *content* is base64 of something that cloud-init knows."""
    try:
        inner = base64.b64decode(b"".join(content.split()), validate=True)
    except ValueError:
        return False
    return content_type(unpacked(inner)) is not None or is_mime(unpacked(inner))
