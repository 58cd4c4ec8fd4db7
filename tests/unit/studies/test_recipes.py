# SPDX-License-Identifier: Apache-2.0
"""Every recipe runs, on job sets small enough for a test; `./dev bench sim` runs them at their size."""

from __future__ import annotations

from dataclasses import replace

import pytest

from studies.batch import tsubame
from studies.claims import PublishedClaim
from studies.recipes import (
    malleable_2018,
    mrq_2016,
    openb_cloudified,
    openb_local,
    rq_2014,
    slurm_2018,
)


def holding(claims: list[PublishedClaim]) -> dict[str, bool]:
    assert all(claim.source and claim.published and claim.measured for claim in claims)
    return {claim.what: claim.holds for claim in claims}


def test_a_scheduler_of_the_trace_is_within_its_tolerance():
    (dot,) = (
        claim for claim in openb_local.run(["multigpu20"], seeds=[42]) if "BestFit" in claim.what
    )
    assert dot.holds


@pytest.fixture(scope="module")
def cloudified() -> list[openb_cloudified.CloudifiedRow]:
    names = ["best-fit", "first-fit", "first-local"]
    return list(openb_cloudified.rows("multigpu20", seeds=[42], names=names))


def test_cloudified_tasks_allocate_more_than_the_best_local_scheduler(cloudified):
    by_name = {row.placement: row for row in cloudified if row.shares == "thousandths"}
    assert by_name["best-fit"].at_130 > by_name["FGD"].at_130
    assert by_name["repacked"].at_130 >= by_name["best-fit"].at_130


def test_counted_in_mib_they_gain_a_point_and_in_thousandths_the_recipe_says_why_not(cloudified):
    thousandths, mib = openb_cloudified.claims(cloudified)
    assert thousandths.holds or "cannot be split" in thousandths.why
    assert mib.holds


def test_first_local_keeps_more_at_home(cloudified):
    by_name = {row.placement: row for row in cloudified if row.shares == "thousandths"}
    assert by_name["first-local"].remote_percent < by_name["first-fit"].remote_percent
    assert by_name["first-local"].node_gbit_median < by_name["first-fit"].node_gbit_median


def test_rq_against_the_g_queue():
    result = rq_2014.run(tsubame.jobs(1, count=1500, nodes=56), nodes=(56, 60))
    assert [row.nodes for row in result.rows] == [56, 60]
    found = holding(list(rq_2014.claims(result)))
    assert found["RQ shortens the wait"]
    assert found["RQ hardly lengthens the execution"]


def test_mrq_is_never_behind_rq():
    wanted = [
        replace(setting, model=setting.model.with_(count=60))
        for setting in mrq_2016.settings()
        if setting.experiment in ("intensity", "gpus", "queue")
    ]
    points = list(mrq_2016.run(wanted))
    assert holding(list(mrq_2016.claims(points)))["MRQ is never behind RQ"]


def test_slurm_with_remote_gpus():
    rows = list(slurm_2018.run())
    assert len(rows) == 3 * 3 + 2 * 3 + 3 * 6
    found = holding(list(slurm_2018.claims(rows)))
    assert all(holds for what, holds in found.items() if "save energy" in what)


def test_malleable_jobs_complete_sooner():
    rows = list(malleable_2018.run([100]))
    assert all(holding(list(malleable_2018.claims(rows))).values())
