# SPDX-License-Identifier: Apache-2.0
"""The examples of doc/plain-servers.md, as they work in this cloud."""

from __future__ import annotations

import re
from pathlib import Path

from tests.openstack.bed import settings

DOCUMENT = Path(__file__).parents[2] / "doc" / "plain-servers.md"
HERE = {
    "mycloud": settings.TENANTS[0],
    "debian": settings.IMAGE,
    "m1.small": settings.FAKE_FLAVOR,
}
"""What the page calls something -> what it is called in this cloud."""


def documented(pattern: str) -> str:
    """Return what the page has in the first group of *pattern*, with this cloud's names."""
    found = re.search(pattern, DOCUMENT.read_text(), re.MULTILINE | re.DOTALL)
    assert found is not None
    text = found[1]
    for name, ours in HERE.items():
        text = text.replace(name, ours)
    return text


def block(title: str) -> str:
    """Return the example below the heading *title*."""
    return documented(rf"^### {title}\n\n```\w+\n(.*?)^```$")
