# SPDX-License-Identifier: Apache-2.0
"""Every recipe runs, on job sets small enough for a test; `./dev bench sim` runs them at their size."""

from __future__ import annotations

from dataclasses import replace

import pytest

from studies.batch import tsubame
from studies.claims import PublishedClaim, Verdict
from studies.openb.schedulers import SCHEDULERS
from studies.recipes import (
    malleable_2018,
    mrq_2016,
    openb_cloudified,
    openb_local,
    rq_2014,
    slurm_2018,
)


def verdicts(claims: list[PublishedClaim]) -> dict[str, Verdict]:
    assert all(claim.source and claim.published and claim.measured for claim in claims)
    assert all(claim.band for claim in claims)
    return {claim.what: claim.verdict for claim in claims}


def test_a_scheduler_of_the_trace_is_within_its_tolerance():
    (dot,) = (
        claim for claim in openb_local.run(["multigpu20"], seeds=[42]) if "BestFit" in claim.what
    )
    assert dot.verdict is Verdict.REPRODUCED


@pytest.fixture(scope="module")
def cloudified() -> list[openb_cloudified.CloudifiedRow]:
    names = ["best-fit", "first-fit", "first-local"]
    return list(openb_cloudified.rows("multigpu20", seeds=[42], names=names))


def test_cloudified_tasks_allocate_more_than_the_best_local_scheduler(cloudified):
    by_name = {row.placement: row for row in cloudified if row.shares == "thousandths"}
    tied = max(by_name[scheduler.name].at_130 for scheduler in SCHEDULERS)
    assert by_name["best-fit"].at_130 > tied
    assert by_name["repacked"].at_130 >= by_name["best-fit"].at_130


def test_counted_in_mib_they_gain_a_point_and_in_thousandths_the_recipe_says_why_not(cloudified):
    thousandths, mib = openb_cloudified.claims(cloudified)
    reproduced = Verdict.REPRODUCED
    assert thousandths.verdict is reproduced or "cannot be split" in thousandths.why
    assert mib.verdict is reproduced


def test_in_mib_the_best_that_is_tied_to_nodes_is_not_fgd(cloudified):
    by_name = {row.placement: row for row in cloudified if row.shares == "MiB"}
    best = max(SCHEDULERS, key=lambda scheduler: by_name[scheduler.name].at_130).name
    _, mib = openb_cloudified.claims(cloudified)
    assert f"% ({best}) tied to nodes" in mib.published
    assert by_name[best].at_130 >= by_name["FGD"].at_130


def test_first_local_keeps_more_at_home(cloudified):
    by_name = {row.placement: row for row in cloudified if row.shares == "thousandths"}
    assert by_name["first-local"].remote_percent < by_name["first-fit"].remote_percent
    assert by_name["first-local"].node_gbit_median < by_name["first-fit"].node_gbit_median


def test_rq_against_the_g_queue():
    result = rq_2014.run(tsubame.jobs(1, count=1500, nodes=56), nodes=(56, 60))
    assert [row.nodes for row in result.rows] == [56, 60]
    measured = rq_2014.summarise(result)
    found = verdicts(list(rq_2014.claims([measured, measured])))
    assert found["RQ shortens the wait"] is not Verdict.REFUTED
    assert found["RQ hardly lengthens the execution"] is not Verdict.REFUTED


def test_mrq_is_never_behind_rq():
    wanted = [
        replace(setting, model=setting.model.with_(count=60))
        for setting in mrq_2016.settings()
        if setting.experiment in ("intensity", "gpus", "queue")
    ]
    points = [mrq_2016.measure(setting, seed) for setting in wanted for seed in (1, 2)]
    rows = mrq_2016.summarise(points)
    assert len(rows) == len(wanted)
    assert all(len(row.rq.values) == 2 for row in rows)
    found = verdicts(list(mrq_2016.claims(rows)))
    assert found["MRQ is never behind RQ"] is Verdict.REPRODUCED


def test_slurm_with_remote_gpus():
    rows = list(slurm_2018.run([1]))
    assert len(rows) == 3 * 3 + 2 * 3 + 3 * 6
    found = verdicts(list(slurm_2018.claims(rows)))
    assert Verdict.REFUTED not in [found[what] for what in found if "save energy" in what]


def test_malleable_jobs_complete_sooner():
    rows = list(malleable_2018.run([100], [1]))
    found = verdicts(list(malleable_2018.claims(rows)))
    assert Verdict.REFUTED not in [found[what] for what in found if "complete sooner" in what]
