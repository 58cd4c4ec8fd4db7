# SPDX-License-Identifier: Apache-2.0
"""The HTML page of the recipes: the claims table, and charts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from gsaas.sim.report import page
from studies.claims import Verdict

CLAIM_HEADINGS = (
    "claim",
    "published",
    "measured",
    "verdict",
    "reproduced if",
    "why they differ",
    "source",
)


def html(
    claims: Sequence[Mapping[str, Any]], charts: Sequence[tuple[str, Sequence[str]]] = ()
) -> str:
    """Return the page of all *claims*, with *charts*, pairs of a heading and pieces of HTML, as further sections."""
    found = Counter(claim["verdict"] for claim in claims)
    rows = [
        (
            claim["what"],
            claim["published"],
            claim["measured"],
            claim["verdict"],
            claim["band"],
            claim["why"],
            claim["source"],
        )
        for claim in claims
    ]
    return page.page(
        "What the papers claim, and what was measured",
        f"Of {len(claims)} claims, " + ", ".join(f"{found[one]} {one}" for one in Verdict) + ".",
        [("Claims", [page.table(CLAIM_HEADINGS, rows)]), *charts],
    )
