# SPDX-License-Identifier: Apache-2.0
"""The operator's guide as something to type: the commands and the files that each of its sections shows."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping
from pathlib import Path

TEXT = Path(__file__).parents[2].joinpath("doc", "operator-guide.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"(?:^ {4,}\S.*\n|^\n(?= {4,}\S))+", re.MULTILINE)
FILE = re.compile(
    r"`(?P<path>/etc/gsaas/[\w.-]+)`(?:(?!```).)*?^```ini\n(?P<text>.*?)^```",
    re.MULTILINE | re.DOTALL,
)


def section(heading: str) -> str:
    """What stands below *heading*, up to the next one."""
    # One # alone begins a comment in a file.
    found = re.search(
        rf"^##+ {re.escape(heading)}\n(.*?)(?=^##+ |\Z)", TEXT, re.MULTILINE | re.DOTALL
    )
    assert found, f"the guide has no heading {heading!r}"
    return found[1]


def blocks(heading: str) -> list[str]:
    """The blocks of commands below *heading*, each as one script."""
    unfenced = re.sub(r"^```.*?^```\n", "", section(heading), flags=re.MULTILINE | re.DOTALL)
    return [textwrap.dedent(block).strip() for block in BLOCK.findall(unfenced)]


def commands(block: str) -> list[str]:
    """The commands of a block, each with the lines that it goes on in."""
    return re.split(r"(?<!\\)\n", block)


def fenced(heading: str) -> list[str]:
    """The pieces of configuration below *heading*."""
    return re.findall(r"^```ini\n(.*?)^```", section(heading), re.MULTILINE | re.DOTALL)


def said(heading: str, command: str) -> str:
    """A *command* that stands in the text below *heading*."""
    assert f"`{command}`" in section(heading)
    return command


def files(heading: str) -> dict[str, str]:
    """Path -> text of the configuration files below *heading*."""
    return {found["path"]: found["text"] for found in FILE.finditer(section(heading))}


def fill_in(text: str, placeholders: Mapping[str, str]) -> str:
    """Put values in the place of *placeholders*; one that another contains comes after it."""
    for placeholder, value in placeholders.items():
        text = text.replace(placeholder, value)
    return text
