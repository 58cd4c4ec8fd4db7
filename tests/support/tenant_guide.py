# SPDX-License-Identifier: Apache-2.0
"""What the tenant's guide says of `openstack` and openstacksdk, as something to run."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

_TEXT = Path(__file__).parents[2].joinpath("doc", "tenant-guide.md").read_text(encoding="utf-8")
_SECTION = re.search(r"^## With `openstack`.*?(?=^## )", _TEXT, re.MULTILINE | re.DOTALL)
assert _SECTION


def commands() -> list[list[str]]:
    """The words after `openstack` of each command, in their order."""
    found = re.findall(r"^    openstack (.*)$", _SECTION[0], re.MULTILINE)
    return [shlex.split(line) for line in found]


def named() -> set[str]:
    """The commands of the table, such as `gpu lease list`, and of the text."""
    cells = re.findall(r"^\| (`.*?) \|", _SECTION[0], re.MULTILINE)[1:]
    return {name for cell in cells for name in _complete(cell)}


def script() -> str:
    """The program in Python."""
    (found,) = re.findall(r"^```python\n(.*?)^```", _SECTION[0], re.MULTILINE | re.DOTALL)
    return str(found)


def _complete(cell: str) -> list[str]:
    """`gpu host list`, `show` -> gpu host list, gpu host show."""
    names: list[str] = []
    for words in re.findall(r"`([^`]+)`", cell):
        whole = words if words.startswith("gpu ") else f"{names[-1].rpartition(' ')[0]} {words}"
        names.append(whole)
    return names
