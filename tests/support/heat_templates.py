# SPDX-License-Identifier: Apache-2.0
"""The templates and tables of doc/heat.md, as something to run and to compare."""

from __future__ import annotations

import re
from pathlib import Path

_TEXT = Path(__file__).parents[2].joinpath("doc", "heat.md").read_text(encoding="utf-8")


def templates() -> dict[str, str]:
    """Return the templates: name of the file -> its text."""
    found = re.findall(r"^```yaml\n# (\S+)\n(.*?)^```", _TEXT, re.MULTILINE | re.DOTALL)
    return dict(found)


def table(heading: str) -> dict[str, str]:
    """Return the rows of the table whose first column is called *heading*: name -> description."""
    (rows,) = re.findall(rf"^\| {heading} \| \|\n\| --- \| --- \|\n((?:\|.*\n)+)", _TEXT, re.M)
    return dict(re.findall(r"^\| `(\w+)` \| (.*) \|$", rows, re.M))
