# SPDX-License-Identifier: Apache-2.0
"""An idle lease is warned before it is reclaimed, and one that may be in use is left alone."""

from __future__ import annotations

import datetime

import pytest

from gsaas.engine.idle import NONE, RELEASE, Decision, IdlePolicy, decide
from gsaas.objects.lifecycle import Status
from tests.support import rows

NOON = datetime.datetime(2026, 11, 23, 12, 0, 0)
HOUR = datetime.timedelta(hours=1)
POLICY = IdlePolicy(RELEASE, 2 * HOUR, HOUR, frozenset({"spared"}))


def decided(idle_since, reclaim_at=None, policy=POLICY, project="p") -> Decision:
    lease = rows.new_lease(project_id=project, status=Status.ACTIVE, reclaim_at=reclaim_at)
    return decide(policy, lease, idle_since, NOON)


def test_a_lease_is_warned_when_it_has_been_idle_for_long_enough():
    almost = NOON - 2 * HOUR + datetime.timedelta(seconds=1)
    assert decided(almost) is Decision.NOTHING
    assert decided(NOON - 2 * HOUR) is Decision.WARN


def test_a_lease_that_was_idle_for_days_is_still_warned_first():
    assert decided(NOON - 100 * HOUR) is Decision.WARN


def test_a_warned_lease_is_reclaimed_at_the_time_that_its_warning_said():
    almost = NOON + datetime.timedelta(seconds=1)
    assert decided(NOON - 3 * HOUR, almost) is Decision.NOTHING
    assert decided(NOON - 3 * HOUR, NOON) is Decision.RECLAIM


@pytest.mark.parametrize(
    "idle_since",
    [
        pytest.param(None, id="in use, or not known"),
        pytest.param(NOON - HOUR, id="in use while no engine ran"),
    ],
)
def test_a_lease_that_may_have_been_used_since_its_warning_is_not_reclaimed(idle_since):
    assert decided(idle_since, NOON - HOUR) is Decision.WITHDRAW


def test_a_lease_that_was_never_warned_and_may_be_in_use_is_left_alone():
    assert decided(None) is Decision.NOTHING


@pytest.mark.parametrize(
    ("policy", "project"),
    [(POLICY, "spared"), (IdlePolicy(NONE, 2 * HOUR, HOUR), "p")],
    ids=["an exempt project", "an operator who reclaims nothing"],
)
def test_some_leases_are_spared_and_their_warnings_withdrawn(policy, project):
    long_ago = NOON - 100 * HOUR
    assert decided(long_ago, None, policy, project) is Decision.NOTHING
    assert decided(long_ago, NOON - HOUR, policy, project) is Decision.WITHDRAW
