# SPDX-License-Identifier: Apache-2.0
"""Files that a server gets, and the script that writes them. Busybox runs it, too."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from typing import NamedTuple

_PUT = """\
#!/bin/sh
# Written by GSaaS.
umask 022

# Write a file completely or not at all: put PATH MODE CONTENT.
put() {
    mkdir -p "${1%/*}" && printf '%s' "$3" >"$1.gsaas" && chmod "$2" "$1.gsaas" && mv -f "$1.gsaas" "$1"
}

"""


class File(NamedTuple):
    """A file of a server: its absolute path, its content, and whether it is a program. All may read it."""

    path: str
    content: str
    executable: bool = False


def script(files: Iterable[File]) -> str:
    """Return a script that writes *files*; one that cannot be written keeps none of the others from it."""
    lines = (
        f"put {shlex.quote(each.path)} {'0755' if each.executable else '0644'} {shlex.quote(each.content)}\n"
        for each in files
    )
    return _PUT + "".join(lines)
