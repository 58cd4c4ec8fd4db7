# SPDX-License-Identifier: Apache-2.0
"""Published claims beside what was measured here: the rows of the claims table."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class PublishedClaim:
    """One statement of a paper, and the result of testing it. It has nothing to do with claims on GPUs."""

    what: str
    """The statement."""
    source: str
    """Paper and section, table or figure."""
    published: str
    """What the paper says, in its own words and units; not every claim is a number."""
    measured: str
    """What was measured here, in the same units."""
    holds: bool
    """Whether the statement is true of what was measured."""
    why: str = ""
    """Why published and measured values differ, if they do."""

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as a dictionary."""
        return asdict(self)
