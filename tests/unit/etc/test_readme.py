# SPDX-License-Identifier: Apache-2.0
"""The operator's path in README.md is the guide's, command by command, and fits on one screen."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
SECTION = "## Run it on your OpenStack"


def commands(text: str) -> list[str]:
    """Return the lines of all indented blocks that are commands; one that a backslash continues is one line."""
    lines = text.replace("\\\n", " ").splitlines()
    indented = [line.strip() for line in lines if re.match(r" {4,}\S", line)]
    without_remarks = (re.sub(r"\s+", " ", re.sub(r"(^| )\s*# .*", "", line)) for line in indented)
    return [line for line in without_remarks if line]


def section() -> str:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    return text.partition(f"{SECTION}\n")[2].partition("\n## ")[0]


def test_the_operators_path_fits_on_one_screen():
    lines = section().splitlines()
    first, *_, last = (number for number, line in enumerate(lines) if line.startswith("    "))
    assert 8 <= last + 1 - first <= 20


def test_every_command_of_the_path_is_one_of_the_guide_in_the_order_of_the_guide():
    guide = iter(commands((ROOT / "doc/operator-guide.md").read_text(encoding="utf-8")))
    for command in commands(section()):
        assert command in guide, f"not in the guide, or not in this order: {command}"


def test_the_path_leads_from_the_wheels_to_the_gpus():
    path = commands(section())
    assert "./dev package" in section()
    assert any("--find-links PACKAGES" in command for command in path)
    assert path[-1] == "gsaas gpus"
