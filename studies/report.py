# SPDX-License-Identifier: Apache-2.0
"""The HTML page of the recipes: the claims table, and charts."""

from __future__ import annotations

from collections.abc import Sequence

from gsaas.sim.report import page
from studies.claims import PublishedClaim

CLAIM_HEADINGS = ("claim", "published", "measured", "holds", "why they differ", "source")


def html(claims: Sequence[PublishedClaim], charts: Sequence[tuple[str, Sequence[str]]] = ()) -> str:
    """Return the page of all *claims*, with *charts*, pairs of a heading and pieces of HTML, as further sections."""
    holding = sum(claim.holds for claim in claims)
    rows = [
        (claim.what, claim.published, claim.measured, claim.holds, claim.why, claim.source)
        for claim in claims
    ]
    return page.page(
        "What the papers claim, and what was measured",
        f"{holding} of {len(claims)} claims hold here.",
        [("Claims", [page.table(CLAIM_HEADINGS, rows)]), *charts],
    )
