"""The claims table: what others published, beside what was measured here."""

from __future__ import annotations

from collections.abc import Sequence

from gsaas.sim.report import page
from studies.claims import Claim

HEADINGS = ("claim", "published", "measured", "holds", "why they differ", "source")


def html(claims: Sequence[Claim], charts: Sequence[tuple[str, Sequence[str]]] = ()) -> str:
    """The page of the recipes, with *charts* as further sections."""
    kept = sum(claim.holds for claim in claims)
    rows = [
        (claim.what, claim.published, claim.measured, claim.holds, claim.why, claim.source)
        for claim in claims
    ]
    return page.page(
        "What the papers say, and what was measured",
        f"{kept} of {len(claims)} claims hold here.",
        [("Claims", [page.table(HEADINGS, rows)]), *charts],
    )
