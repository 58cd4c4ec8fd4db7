# SPDX-License-Identifier: Apache-2.0
"""What tenants call leases and reservations: an id, the beginning of one, or a name. Pure."""

from __future__ import annotations

from collections.abc import Iterable

UUID_LENGTH = 36
SHORTEST_PREFIX = 4
"""Characters of an id at least: fewer are often the beginning of several."""

SHORTEST_GPU_PREFIX = len("GPU-") + SHORTEST_PREFIX
"""The same of the UUID of a GPU."""


def is_id(text: str) -> bool:
    """Return whether *text* has the form of an id."""
    return len(text) == UUID_LENGTH and text.count("-") == 4


def may_begin_id(text: str) -> bool:
    """Return whether *text* may be the beginning of an id."""
    return len(text) >= SHORTEST_PREFIX and set(text.lower()) <= set("0123456789abcdef-")


def begins_one_of(text: str, ids: Iterable[str | None]) -> bool:
    """Return whether *text* is the beginning of one of these ids."""
    return any(id is not None and id.startswith(text.lower()) for id in ids)


def ambiguous(text: str, noun: str, names: Iterable[str | None], ids: Iterable[str]) -> str:
    """Return a sentence: *text* means several resources, which have these names and ids; *noun* is in the plural."""
    ids = list(ids)
    how = f"{len(ids)} {noun} are named {text}; name one of them by its id"
    if text not in set(names):
        how = f"the ids of {len(ids)} {noun} begin with {text}; type more of the one that you mean"
    return f"{how}: {', '.join(ids)}"
