# SPDX-License-Identifier: Apache-2.0
"""Make sure that nobody else can put anything where the bed keeps things: it runs programs from there as root."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from tests.openstack.bed.errors import BedError

MOST_LINKS = 40
"""Symbolic links on a path, as in the kernel."""


def make(directory: Path, mode: int = 0o755) -> Path:
    """Return *directory*, made with its parents where it is missing; raise `BedError` if it may be another user's."""
    missing = [each for each in (directory, *directory.parents) if not os.path.lexists(each)]
    _expect((directory, *directory.parents)[len(missing)].absolute(), 0)
    for each in reversed(missing):
        # An error if it has appeared meanwhile: whoever made it would own it.
        each.mkdir(mode=mode if each == directory else 0o755)
    expect_ours(directory)
    return directory


def expect_ours(path: Path) -> None:
    """Raise `BedError` unless only root, or the user of this process, can change what is at *path* and above it.

    A directory in which all may write has to be sticky, such as /tmp, and cannot be the last one. A symbolic link
    counts as what it leads to, and has to be ours itself.
    """
    _expect(path.absolute(), 0)
    last = path.stat()
    if stat.S_ISDIR(last.st_mode) and last.st_mode & 0o022:
        raise BedError(f"{path} can be written by others than its owner: chmod go-w {path}")


def _expect(path: Path, links: int) -> None:
    if links > MOST_LINKS:
        raise BedError(f"{path} is behind too many symbolic links")
    for each in (*reversed(path.parents), path):
        found = each.lstat()
        if found.st_uid not in (0, os.geteuid()):
            raise BedError(
                f"{each} belongs to the user {found.st_uid}, who could replace what the cloud runs as root: "
                "remove it, or set GSAAS_CLOUD_DIR to another directory"
            )
        if stat.S_ISLNK(found.st_mode):
            target = each.parent / each.readlink()
            rest = path.relative_to(each)
            _expect(Path(os.path.normpath(target)) / rest, links + 1)
            return
        open_to_all = found.st_mode & 0o022 and not found.st_mode & stat.S_ISVTX
        if stat.S_ISDIR(found.st_mode) and open_to_all:
            raise BedError(f"{each} can be written by others than its owner: chmod go-w {each}")
