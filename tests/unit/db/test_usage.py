# SPDX-License-Identifier: Apache-2.0
"""The usage of projects in a period, calculated by hand."""

from __future__ import annotations

import datetime

import pytest

from gsaas.db import usage
from gsaas.db.database import Database
from gsaas.objects.usage import ProjectUsage
from tests.support import rows


def at(hour: float) -> datetime.datetime:
    return datetime.datetime(2026, 11, 1) + datetime.timedelta(hours=hour)


START, END, NOW = at(0), at(24), at(100)

HISTORY = [
    ("blue", at(2), at(5), 2, 16384),  # 3 h
    ("blue", at(-10), at(1), 1, 8192),  # 1 h of it in the period
    ("blue", at(23.5), at(30), 0.25, 2048),  # half an hour of it
    ("red", at(-10), None, 0.5, 4096),  # all 24 h, and still
    ("green", at(-5), at(0), 8, 65536),  # ended as the period began
    ("green", at(24), at(25), 8, 65536),  # began as it ended
    ("green", None, at(12), None, None),  # waited in vain
    ("grey", at(3), at(3), 1, 2**40),  # given back at once
    ("huge", at(3), at(4), 1, 2**40),
]
"""Project, claim, release, GPUs and MiB of each lease."""


@pytest.fixture
def history(database: Database) -> Database:
    with database.write() as session:
        for number, (project, begin, end, gpus, memory_mb) in enumerate(HISTORY):
            over = {} if end is None else {"status": "RELEASED", "released_at": end}
            had = {"claimed_at": begin, "claimed_gpus": gpus, "claimed_mb": memory_mb}
            session.add(rows.lease(f"lease-{number}", project_id=project, **had, **over))
    return database


def used(database: Database, start=START, end=END, now=NOW, **more) -> list[ProjectUsage]:
    with database.reading() as connection:
        return usage.by_project(connection, start, end, now, **more)


def near(project: str, leases: int, gpu_hours: float, memory_mb_hours: float) -> ProjectUsage:
    """Return such usage, equal to any that differs by less than a hundred-thousandth of it."""
    hours = pytest.approx(gpu_hours, rel=1e-5), pytest.approx(memory_mb_hours, rel=1e-5)
    return ProjectUsage(project, leases, *hours)


def test_hours_are_those_within_the_period_in_which_a_lease_had_gpus(history):
    assert used(history) == [
        near("blue", 3, 6 + 1 + 0.125, 49152 + 8192 + 1024),
        near("huge", 1, 1, 2**40),
        near("red", 1, 12, 98304),
    ]


def test_hours_are_those_of_models_if_they_are_asked_for(database):
    """Also of leases that have several models, or were made before their models were stored."""
    models = ['{"A100": 1.0}', '{"A100": 1.0}', '{"A100": 0.25, "H100": 0.75}', None]
    with database.write() as session:
        for number, text in enumerate(models):
            over = {} if number == 1 else {"status": "RELEASED", "released_at": at(4)}
            had = {"claimed_at": at(0), "claimed_gpus": 2, "claimed_mb": 1, "claimed_models": text}
            session.add(rows.lease(f"lease-{number}", project_id="blue", **had, **over))
    (blue,) = used(database, end=at(4), by_model=True)
    assert (blue.leases, blue.gpu_hours) == (4, pytest.approx(32, rel=1e-5))
    hours = {"A100": 8 + 8 + 2, "H100": 6, "": 8}
    assert blue.hours_by_model == pytest.approx(hours, rel=1e-5)
    assert used(database, end=at(4))[0].hours_by_model == {}


def test_a_fraction_of_a_second_counts(database):
    with database.write() as session:
        end = START + datetime.timedelta(milliseconds=4500)
        had = {"claimed_at": START, "claimed_gpus": 800, "claimed_mb": 1}
        session.add(rows.lease(status="RELEASED", released_at=end, **had))
    assert used(database) == [near("project-1", 1, 1, 0.00125)]


def test_one_projects_usage_is_read_by_itself(history):
    assert used(history, project_id="red") == [near("red", 1, 12, 98304)]
    assert used(history, project_id="green") == []


def test_an_open_lease_counts_until_now_and_not_into_the_future(history):
    assert used(history, now=at(6), project_id="red") == [near("red", 1, 3, 24576)]


def test_a_period_in_the_future_has_no_usage(history):
    assert used(history, at(200), at(300)) == []


@pytest.mark.parametrize("cut", [0.5, 4, 23.75])
def test_two_halves_of_a_period_are_the_whole(history, cut):
    halves = [used(history, START, at(cut)), used(history, at(cut), END)]
    for whole in used(history):
        parts = [used for half in halves for used in half if used.project_id == whole.project_id]
        assert sum(part.gpu_hours for part in parts) == pytest.approx(whole.gpu_hours)
        assert sum(part.memory_mb_hours for part in parts) == pytest.approx(whole.memory_mb_hours)
