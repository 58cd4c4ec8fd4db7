# SPDX-License-Identifier: Apache-2.0
"""The report of `gsaas-manage prove`, as text and as a JSON document. Pure."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence

from gsaas.prove.verdicts import Line, Verdict

_WIDTH = 100
_NAME = 48


def table(lines: Sequence[Line]) -> str:
    """Return the lines as a table, one check each."""
    return "\n".join(f"{line.verdict:<5} {line.name:<{_NAME}} {line.figure}" for line in lines)


def conclusion(lines: Sequence[Line]) -> str:
    """Return what to mend, worst first, and how many checks had which verdict."""
    parts = []
    for verdict, title in (
        (Verdict.FAIL, "To mend before tenants come:"),
        (Verdict.WARN, "Better to mend:"),
        (Verdict.SKIP, "Not checked:"),
    ):
        chosen = [line for line in lines if line.verdict is verdict]
        if chosen:
            parts.append(title)
            parts += [_item(line) for line in chosen]
            parts.append("")
    counts = Counter(line.verdict for line in lines)
    parts.append(
        ", ".join(f"{counts[verdict]} {verdict}" for verdict in Verdict if counts[verdict])
    )
    return "\n".join(parts)


def _item(line: Line) -> str:
    found = "" if line.verdict is Verdict.SKIP else f" ({line.figure})"
    text = f"{line.name}{found}: {line.mend}"
    return textwrap.fill(text, _WIDTH, initial_indent="  - ", subsequent_indent="    ")


def document(lines: Sequence[Line], facts: Mapping[str, object]) -> dict[str, object]:
    """Return everything as plain JSON values; *facts* say what was checked, where and when."""
    return {
        **facts,
        "lines": [
            {
                "name": line.name,
                "verdict": str(line.verdict),
                "figure": line.figure,
                "mend": line.mend,
                "values": dict(line.values),
            }
            for line in lines
        ],
    }
