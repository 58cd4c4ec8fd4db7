# SPDX-License-Identifier: Apache-2.0
"""The names that hosts may have: one rule for inventories, agents and engines.

Nova takes letters, digits, dots, hyphens and underscores, so full names and capitals are among them. Shorter than
its 255 characters, because the name of a queue on the message bus, which contains it, has the same limit.
Names are compared as they are written: `Gpu1` and `gpu1` are two hosts.
"""

from __future__ import annotations

import re

LONGEST = 200
PATTERN = rf"^[A-Za-z0-9][A-Za-z0-9._-]{{0,{LONGEST - 1}}}$"
RULE = f"1 to {LONGEST} letters, digits, dots, hyphens and underscores, beginning with a letter or digit"


def is_valid(name: object) -> bool:
    """Return whether a host may have this name."""
    return isinstance(name, str) and re.fullmatch(PATTERN[1:-1], name) is not None
