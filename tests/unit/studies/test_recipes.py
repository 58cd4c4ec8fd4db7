# SPDX-License-Identifier: Apache-2.0
"""Every recipe runs, on clouds and job sets small enough for a test; `./dev bench sim` runs them at their size."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from studies.batch import tsubame
from studies.claims import PublishedClaim, Verdict
from studies.openb import trace
from studies.openb.schedulers import SCHEDULERS
from studies.recipes import (
    dmr_2018,
    malleable_2018,
    malleable_mix_2018,
    mrq_2016,
    mrq_figures_2016,
    openb_cloudified,
    openb_local,
    openb_remote,
    rq_2014,
    slurm_2018,
)

pytestmark = pytest.mark.slow

CLOUDS = (4, pytest.param(1, marks=pytest.mark.thorough))
"""Of how many machines of the trace one is there; as many tasks arrive as ask for 130 % of their GPUs."""


def verdicts(claims: list[PublishedClaim]) -> dict[str, Verdict]:
    assert all(claim.source and claim.published and claim.measured for claim in claims)
    assert all(claim.band for claim in claims)
    return {claim.what: claim.verdict for claim in claims}


def test_a_scheduler_of_the_trace_is_within_its_tolerance():
    settings = [
        one for one in openb_local.settings(["multigpu20"], [42]) if one.scheduler == "BestFit"
    ]
    (claim,) = openb_local.claims([(one, openb_local.measure(one)) for one in settings])
    assert claim.verdict is Verdict.REPRODUCED


@contextmanager
def one_machine_of(count: int) -> Iterator[None]:
    nodes = trace.nodes()[::count]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trace, "nodes", lambda: nodes)
        yield


@pytest.fixture(params=CLOUDS)
def cloud(request: pytest.FixtureRequest) -> Iterator[None]:
    with one_machine_of(request.param):
        yield


@pytest.fixture(scope="module", params=CLOUDS)
def cloudified(request: pytest.FixtureRequest) -> list[openb_cloudified.CloudifiedRow]:
    names = ["best-fit", "first-fit", "first-local"]
    with one_machine_of(request.param):
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


def test_rows_of_single_seeds_are_merged_to_what_all_seeds_give(cloud):
    for recipe, wanted in (
        (openb_cloudified, openb_cloudified.settings("multigpu20", [42, 43], ["best-fit"])[6]),
        (openb_remote, openb_remote.settings("multigpu20", [42, 43])[1]),
    ):
        one_by_one = [recipe.measure(replace(wanted, seeds=(seed,))) for seed in wanted.seeds]
        (merged,) = recipe.merged(one_by_one)
        together = recipe.measure(wanted)
        ours, theirs = merged.to_dict(), together.to_dict()
        for name in ("runs", "slowdowns"):
            assert ours.pop(name, ()) == pytest.approx(theirs.pop(name, ()))
        assert ours == pytest.approx(theirs)


def test_local_gradient_is_never_below_fgd_on_one_workload(cloud):
    """With one seed; `./dev bench sim remote` runs all workloads."""
    tied = [
        openb_cloudified.measure(one)
        for one in openb_cloudified.settings("multigpu20", [42], [])
        if one.shares == "thousandths"
    ]
    rows = [
        openb_remote.measure(one)
        for one in openb_remote.settings("multigpu20", [42])
        if one.shares == "thousandths"
    ]
    (margins,) = openb_remote.margins(tied, rows)
    assert margins.over_fgd >= 0
    assert margins.below_repacked <= openb_remote.WITHIN
    assert margins.best_fit_over_fgd < 0
    assert len(list(openb_remote.claims(tied, rows))) == 2
    assert all(row.slowdowns[0] >= row.slowdowns[-1] >= 1 for row in rows)


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


def test_the_intensity_of_figures_8_to_11_is_tried_with_each_variant():
    wanted = mrq_figures_2016.settings(40)
    assert sum(setting.label.startswith("every") for setting in wanted) == 4 * 3
    rows = mrq_2016.summarise(mrq_2016.measure(setting, 1) for setting in wanted)
    assert len(rows) == len(wanted) == (4 + 4 + 3 + 4) * 3
    found = verdicts(list(mrq_figures_2016.claims(rows)))
    assert len(found) == 6
    assert found["however long the queue, MRQ is better than RQ and FCFS"] is not Verdict.REFUTED


def test_malleable_jobs_of_chapter_6_wait_less_and_run_longer():
    wanted = [
        setting
        for setting in dmr_2018.settings([1])
        if setting.jobs in (50, 100) and setting.workload == dmr_2018.APPLICATIONS
    ]
    rows = [dmr_2018.measure(setting) for setting in wanted]
    for rigid, malleable in zip(rows[::2], rows[1::2], strict=True):
        assert malleable.allocated_percent < rigid.allocated_percent
        assert malleable.wait < rigid.wait
        assert malleable.execution > rigid.execution
        assert malleable.completion < rigid.completion


def test_tables_6_2_and_6_5_have_a_claim_for_each_of_their_rows():
    found = verdicts(list(dmr_2018.claims(list(dmr_2018.run([1])))))
    assert len(found) == 2 + 1 + 4


def test_slurm_with_remote_gpus():
    rows = list(slurm_2018.run(slurm_2018.settings([1])))
    assert len(rows) == 3 * 3 + 2 * 3 + 3 * 7
    found = verdicts(list(slurm_2018.claims(rows)))
    assert Verdict.REFUTED not in [found[what] for what in found if "save energy" in what]


def test_malleable_jobs_complete_sooner():
    rows = list(malleable_2018.run([100], [1]))
    found = verdicts(list(malleable_2018.claims(rows)))
    assert Verdict.REFUTED not in [found[what] for what in found if "complete sooner" in what]


def test_the_more_jobs_are_malleable_the_sooner_all_are_done():
    rows = [
        malleable_mix_2018.measure(setting, jobs=120)
        for setting in malleable_mix_2018.settings([1])
    ]
    none, quarter, half, most, everything, *_ = (row.makespan for row in rows)
    assert none > half > everything
    assert quarter > most
    assert all(row.makespan < none for row in rows if row.submission == "moldable")
    assert len(list(malleable_mix_2018.claims(rows))) == 4
