# SPDX-License-Identifier: Apache-2.0
"""The report of a plan: what the clouds cost that meet the level of service, and how they run the history."""

from __future__ import annotations

from collections.abc import Sequence

from gsaas.sim.fleet import CheapestFleet
from gsaas.sim.plan import LOCALITIES, Impossible, SmallestSite
from gsaas.sim.report import page, results, svg
from gsaas.sim.scenario import Run

HEADINGS = ("GPUs", "policy", "hosts", "GPUs in all", "refused", "cost a year")


def html(title: str, answers: Sequence[SmallestSite | CheapestFleet | Impossible]) -> str:
    """Return the HTML page of a plan: its costs, then the run of each cloud as in the report of a scenario."""
    possible = [answer for answer in answers if not isinstance(answer, Impossible)]
    charts = [
        svg.bars(
            "GPUs in all",
            [(LOCALITIES[answer.locality], answer.site.total_gpus) for answer in possible],
            unit="GPUs",
        )
    ]
    if any(answer.cost_per_year for answer in possible):
        charts.append(
            svg.bars(
                "Cost a year",
                [(LOCALITIES[answer.locality], answer.cost_per_year) for answer in possible],
                unit="a year",
            )
        )
    runs = [
        (
            Run(LOCALITIES[answer.locality], answer.site, answer.policy, answer.locality),
            answer.outcome,
        )
        for answer in possible
    ]
    table = page.table(HEADINGS, [_row(answer) for answer in answers])
    return results.html(title, runs, [("The plan", [table, *charts])])


def _row(answer: SmallestSite | CheapestFleet | Impossible) -> tuple[object, ...]:
    locality = LOCALITIES[answer.locality]
    if isinstance(answer, Impossible):
        return locality, "", f"impossible at any size: {answer.reason}", "", answer.refused, ""
    return (
        locality,
        answer.policy,
        _hosts(answer),
        answer.site.total_gpus,
        answer.outcome.refused,
        f"{answer.cost_per_year:,.0f}",
    )


def _hosts(answer: SmallestSite | CheapestFleet) -> str:
    if isinstance(answer, SmallestSite):
        return str(answer.site.total_hosts)
    return " + ".join(f"{count} {kind.name}" for kind, count in answer.hosts if count)
