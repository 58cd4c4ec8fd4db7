# SPDX-License-Identifier: Apache-2.0
"""Write configuration files: only when they change, so that a daemon restarts only when it must."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

Sections = Mapping[str, Mapping[str, object]]


def write(path: Path, text: str, mode: int = 0o600) -> Path:
    """Make *path* contain *text*; most of what is written here holds a password."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists() or path.read_text() != text:
        unfinished = path.with_name(path.name + ".new")
        unfinished.unlink(missing_ok=True)
        # Nobody else can read it at any moment, and a file or link that is there is not followed.
        new = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with os.fdopen(new, "w", encoding="utf-8") as file:
            file.write(text)
            os.fchmod(new, mode)
        unfinished.replace(path)
    return path


def write_ini(path: Path, sections: Sections) -> Path:
    """Write an oslo.config file."""
    lines = []
    for section, options in sections.items():
        lines.append(f"[{section}]")
        lines += [f"{name} = {_value(value)}" for name, value in options.items()]
        lines.append("")
    return write(path, "\n".join(lines))


def merge(*parts: Sections) -> dict[str, dict[str, object]]:
    """The sections of all *parts*; a later one has the last word on an option."""
    merged: dict[str, dict[str, object]] = {}
    for part in parts:
        for section, options in part.items():
            merged.setdefault(section, {}).update(options)
    return merged


def digest(paths: Iterable[Path], *more: object) -> str:
    """A fingerprint of the files *paths*, wherever they are, and of what prints as *more*."""
    seen = hashlib.sha256()
    for path in paths:
        seen.update(f"{path.name}\0".encode() + path.read_bytes() + b"\0")
    for thing in more:
        seen.update(f"{thing!r}\0".encode())
    return seen.hexdigest()


def _value(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (list, tuple)):
        return ",".join(map(str, value))
    return str(value)
