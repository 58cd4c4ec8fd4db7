# SPDX-License-Identifier: Apache-2.0
"""doc/quickstart-real-gpus.md as something to type: its blocks of commands, and the mark of each."""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass
from pathlib import Path

TEXT = (Path(__file__).parents[2] / "doc/quickstart-real-gpus.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"(?P<before>[^\n]+(?:\n[^\n]+)*)\n\n(?P<lines>(?: {4}\S.*\n)+)")
MARK = re.compile(r"\*\*([TSG])\*\*")


@dataclass(frozen=True)
class Block:
    """Commands that stand together."""

    marks: tuple[str, ...]
    """T, S or G: what the paragraph before says about who has run them."""
    script: str


def blocks(heading: str) -> list[Block]:
    """Return the blocks of a section, in their order."""
    return [
        Block(tuple(MARK.findall(found["before"])), textwrap.dedent(found["lines"]).strip())
        for found in BLOCK.finditer(_section(heading))
    ]


def headings() -> list[str]:
    """Return the headings of all sections."""
    return re.findall(r"^## (.+)$", TEXT, re.MULTILINE)


def configuration(heading: str) -> str:
    """Return the configuration that a section shows."""
    (found,) = re.findall(r"^```ini\n(.*?)^```", _section(heading), re.MULTILINE | re.DOTALL)
    return found


def _section(heading: str) -> str:
    found = re.search(
        rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", TEXT, re.MULTILINE | re.DOTALL
    )
    assert found, f"the page has no heading {heading!r}"
    return found[1]
