"""What somebody published, beside what was measured here: the rows of the claims table."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Claim:
    """One statement that a recipe puts to the test."""

    what: str
    source: str
    """Paper and section, table or figure."""
    published: str
    """In the paper's words and units; not every claim is a number."""
    measured: str
    holds: bool
    why: str = ""
    """Why the two differ, where they do."""

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)
