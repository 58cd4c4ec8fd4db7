# SPDX-License-Identifier: Apache-2.0
"""The report of a plan: what the clouds cost that meet the level of service, and how they run the history."""

from __future__ import annotations

from collections.abc import Sequence

from gsaas.sim.fleet import CheapestFleet
from gsaas.sim.plan import LOCALITIES, SmallestSite
from gsaas.sim.report import page, results, svg
from gsaas.sim.scenario import Run

HEADINGS = ("GPUs", "policy", "hosts", "GPUs in all", "cost a year")


def html(title: str, answers: Sequence[SmallestSite | CheapestFleet]) -> str:
    """Return the HTML page of a plan: its costs, then the run of each cloud as in the report of a scenario."""
    rows = [
        (
            LOCALITIES[answer.locality],
            answer.policy,
            _hosts(answer),
            answer.site.total_gpus,
            f"{answer.cost_per_year:,.0f}",
        )
        for answer in answers
    ]
    charts = [
        svg.bars(
            "GPUs in all",
            [(LOCALITIES[answer.locality], answer.site.total_gpus) for answer in answers],
            unit="GPUs",
        )
    ]
    if any(answer.cost_per_year for answer in answers):
        charts.append(
            svg.bars(
                "Cost a year",
                [(LOCALITIES[answer.locality], answer.cost_per_year) for answer in answers],
                unit="a year",
            )
        )
    runs = [
        (
            Run(LOCALITIES[answer.locality], answer.site, answer.policy, answer.locality),
            answer.outcome,
        )
        for answer in answers
    ]
    return results.html(title, runs, [("The plan", [page.table(HEADINGS, rows), *charts])])


def _hosts(answer: SmallestSite | CheapestFleet) -> str:
    if isinstance(answer, SmallestSite):
        return str(answer.site.total_hosts)
    return " + ".join(f"{count} {kind.name}" for kind, count in answer.hosts if count)
