# SPDX-License-Identifier: Apache-2.0
"""Small runs of the benchmarks, as `./dev bench NAME --quick` makes them."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any


def quick(name: str, *parts: str) -> dict[str, Any]:
    """Return what a small run of the benchmark *name* measures; some seconds, or a minute."""
    command = (sys.executable, "-m", "bench", name, *parts, "--quick", "--json")
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    result: dict[str, Any] = json.loads(done.stdout)
    assert result["bench"] == name
    return result


def column(result: dict[str, Any], label: str, value: str) -> dict[Any, Any]:
    """Return the *value* of each row by its *label*, of the rows that have both."""
    return {row[label]: row[value] for row in result["rows"] if label in row and value in row}
