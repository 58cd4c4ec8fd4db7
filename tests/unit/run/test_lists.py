# SPDX-License-Identifier: Apache-2.0
"""The lists of tests that run side by side: each folder of tests is in one, and each waits for what exists."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.run import lists
from tests.run.__main__ import KINDS, failed

REPOSITORY = Path(__file__).resolve().parents[3]
NOT_IN_LISTS = {"slurm"}
"""Continuous integration runs it as a command of ./dev."""


@pytest.mark.parametrize("kind", KINDS)
def test_jobs_wait_for_jobs_before_them_and_have_names_of_their_own(kind: str):
    seen: set[str] = set()
    jobs = KINDS[kind](1)
    assert len({job.name for job in jobs}) == len(jobs)
    unknown = {name for job in jobs for name in job.needs + job.after} - {job.name for job in jobs}
    assert unknown == set()
    while waiting := [job for job in jobs if job.name not in seen]:
        can = {job.name for job in waiting if seen.issuperset(job.needs + job.after)}
        assert can, "jobs wait for each other"
        seen |= can


@pytest.mark.parametrize("kind", KINDS)
def test_all_lists_are_commands_of_dev_which_gives_them_the_programs_that_are_declared(kind: str):
    commands = [job.command for job in KINDS[kind](1)]
    assert [command for command in commands if "./dev" not in command] == []


@pytest.mark.parametrize("kind", ["most", "ci"])
def test_tests_on_openstack_need_the_cloud(kind: str):
    jobs = [job for job in KINDS[kind](1) if any("tests/openstack" in word for word in job.command)]
    assert jobs
    assert [job.name for job in jobs if "cloud" not in job.needs] == []


@pytest.mark.parametrize("kind", ["most", "ci"])
def test_where_no_cloud_can_be_only_tests_on_openstack_are_left_out(kind: str):
    jobs = KINDS[kind](1)
    left_out = set(jobs) - set(lists.without_cloud(jobs))
    assert left_out == {
        job
        for job in jobs
        if job.name == "cloud" or any("tests/openstack" in word for word in job.command)
    }


def test_every_folder_of_tests_is_in_a_list():
    folders = {
        path.parent.relative_to(REPOSITORY).parts[1]
        for path in REPOSITORY.glob("tests/*/**/test_*.py")
    }
    commands = [word for job in lists.most_tests(1) for word in job.command]
    assert {f"tests/{folder}" for folder in folders - NOT_IN_LISTS} <= set(commands)


def test_what_one_list_leaves_out_of_its_folder_is_in_another():
    jobs = lists.most_tests(1)
    left_out = {
        word.removeprefix("--ignore=")
        for job in jobs
        for word in job.command
        if word.startswith("--ignore=")
    }
    assert left_out
    assert left_out <= {word for job in jobs for word in job.command}
    assert [path for path in left_out if not (REPOSITORY / path).exists()] == []


def test_continuous_integration_runs_all_that_a_developer_does():
    assert set(lists.integration(1)) > set(lists.most_tests(1))


def test_the_tests_that_failed_are_named_from_all_caches(tmp_path: Path):
    for name, tests in (
        ("a", ["tests/a.py::one"]),
        ("b", ["tests/b.py::two", "tests/b.py::three"]),
    ):
        recorded = tmp_path / name / "v/cache/lastfailed"
        recorded.parent.mkdir(parents=True)
        recorded.write_text(json.dumps(dict.fromkeys(tests, True)))
    assert failed(tmp_path) == ["tests/a.py::one", "tests/b.py::two", "tests/b.py::three"]
