# SPDX-License-Identifier: Apache-2.0
"""The names that hosts may have: one rule for inventories, agents and engines.

Nova takes letters, digits, dots, hyphens and underscores, so full names and capitals are among them. Shorter than
its 255 characters, because the name of a queue on the message bus, which contains it, has the same limit.
Names are compared as they are written: `Gpu1` and `gpu1` are two hosts. Only callers may write the name of a host in
another way, as the host's own programs do: some have its full name, some its short one.
"""

from __future__ import annotations

import re
from collections.abc import Collection

LONGEST = 200
PATTERN = rf"^[A-Za-z0-9][A-Za-z0-9._-]{{0,{LONGEST - 1}}}$"
RULE = f"1 to {LONGEST} letters, digits, dots, hyphens and underscores, beginning with a letter or digit"


def is_valid(name: object) -> bool:
    """Return whether a host may have this name."""
    return isinstance(name, str) and re.fullmatch(PATTERN[1:-1], name) is not None


def meant_by(name: str, known: Collection[str]) -> list[str]:
    """Return the *known* hosts that a caller may mean by *name*, sorted: one, if it is plain.

    That is the host of that name; else those whose names differ in upper and lower case only; else those that are the
    same but for the domain, or the end of it, which one of the two names lacks.
    """
    if name in known:
        return [name]
    wanted = _plain(name)
    same = [host for host in known if _plain(host) == wanted]
    return sorted(same or [host for host in known if _differ_in_domain(_plain(host), wanted)])


def _plain(name: str) -> str:
    return name.strip().rstrip(".").lower()


def _differ_in_domain(one: str, other: str) -> bool:
    longer, shorter = (one, other) if len(one) > len(other) else (other, one)
    # An address, or a part of one, has no domain.
    return longer.startswith(f"{shorter}.") and not longer.replace(".", "").isdecimal()
