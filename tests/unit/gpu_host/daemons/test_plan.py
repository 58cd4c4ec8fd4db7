# SPDX-License-Identifier: Apache-2.0
"""What is to be done next about daemons, decided from values alone."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from gsaas.gpu_host.daemons.plan import (
    STUCK_AFTER,
    Check,
    DaemonTimeouts,
    Forget,
    Kill,
    ObservedDaemon,
    RecordExit,
    Start,
    Terminate,
    backoff,
    failures_after,
    is_stuck,
    next_due,
    plan,
    state,
)
from gsaas.objects.daemon import Daemon, DaemonState

TIMEOUTS = DaemonTimeouts(start=30, stop=10, first_pause=1, longest_pause=60, check_healthy=10)
DAEMON = Daemon("GPU-1", 20000, 1024, "lease-1", 0)
KEY = DAEMON.key
STARTING = ObservedDaemon(DAEMON, alive=True, has_processes=True, started_at=100.0)
HEALTHY = replace(STARTING, healthy=True, healthy_at=101.0, checked_at=101.0)
ENDED = replace(HEALTHY, alive=False, has_processes=False, healthy=False)
NOT_DESIRED = None


def next_action(observed: ObservedDaemon | None, now: float, desired: Daemon | None = DAEMON):
    actions = plan(
        {} if desired is None else {KEY: desired},
        {} if observed is None else {KEY: observed},
        now,
        TIMEOUTS,
    )
    return actions[0] if actions else None


CASES = [
    ("what is desired and not there is started", None, 0, DAEMON, Start(DAEMON)),
    ("what starts is asked at once", STARTING, 100, DAEMON, Check(KEY)),
    (
        "and again after a moment",
        replace(STARTING, checked_at=100.0),
        100.1,
        DAEMON,
        Check(KEY),
    ),
    ("not sooner", replace(STARTING, checked_at=100.0), 100.05, DAEMON, None),
    (
        "and less often when it takes long",
        replace(STARTING, checked_at=110.0),
        110.5,
        DAEMON,
        None,
    ),
    (
        "what never becomes healthy is given up",
        replace(STARTING, checked_at=129.0),
        130,
        DAEMON,
        Kill(KEY),
    ),
    ("what is healthy is left alone", HEALTHY, 110.9, DAEMON, None),
    ("and asked from time to time", HEALTHY, 111, DAEMON, Check(KEY)),
    (
        "what was healthy and does not answer is asked again and never killed",
        replace(HEALTHY, healthy=False, checked_at=500.0),
        1000,
        DAEMON,
        Check(KEY),
    ),
    (
        "children of what ended are killed first",
        replace(ENDED, has_processes=True),
        200,
        DAEMON,
        Kill(KEY),
    ),
    ("an end is noted", ENDED, 200, DAEMON, RecordExit(KEY)),
    ("and paused for", replace(ENDED, retry_at=201.0), 200.9, DAEMON, None),
    ("before the next start", replace(ENDED, retry_at=201.0), 201, DAEMON, Start(DAEMON)),
    ("what is not desired is asked to end", HEALTHY, 200, NOT_DESIRED, Terminate(KEY)),
    (
        "and given time",
        replace(HEALTHY, terminated_at=200.0),
        209.9,
        NOT_DESIRED,
        None,
    ),
    ("then killed", replace(HEALTHY, terminated_at=200.0), 210, NOT_DESIRED, Kill(KEY)),
    (
        "children that stay get the same time",
        replace(ENDED, has_processes=True, terminated_at=200.0),
        209,
        NOT_DESIRED,
        None,
    ),
    (
        "when all of it has ended it is gone",
        replace(ENDED, terminated_at=200.0),
        201,
        NOT_DESIRED,
        Forget(KEY),
    ),
    (
        "unless another process listens on its port",
        replace(ENDED, terminated_at=200.0, port_taken=True),
        999,
        NOT_DESIRED,
        None,
    ),
    ("what crashed and is not desired is gone at once", ENDED, 200, NOT_DESIRED, Forget(KEY)),
    (
        "other contents are another daemon: the old one goes first",
        HEALTHY,
        200,
        replace(DAEMON, memory_mb=2048),
        Terminate(KEY),
    ),
    (
        "what is on its way out goes, even if it is desired again",
        replace(HEALTHY, terminated_at=200.0),
        210,
        DAEMON,
        Kill(KEY),
    ),
]


@pytest.mark.parametrize(
    ("observed", "now", "desired", "action"),
    [case[1:] for case in CASES],
    ids=[case[0] for case in CASES],
)
def test_next(observed, now, desired, action):
    assert next_action(observed, now, desired) == action


@pytest.mark.parametrize(
    ("observed", "desired", "first"),
    [
        (replace(ENDED, has_processes=True), DAEMON, 200.0),
        (replace(HEALTHY, terminated_at=190.0), NOT_DESIRED, 200.0),
        (replace(STARTING, checked_at=float("inf")), DAEMON, 130.0),
    ],
    ids=["its children", "the end of its lease", "it never became healthy"],
)
def test_what_does_not_die_is_killed_again_after_pauses_that_double_up_to_a_bound(
    observed, desired, first
):
    """It waits in the kernel for a device, maybe for days."""
    moments, now = [], first
    for kills in range(12):
        assert next_action(observed, now, desired) == Kill(KEY)
        assert is_stuck(observed) == (kills >= STUCK_AFTER)
        moments.append(now)
        observed = replace(observed, kills=kills + 1, killed_at=now)
        wanted = {} if desired is None else {KEY: desired}
        due = next_due(wanted, {KEY: observed}, TIMEOUTS)
        assert next_action(observed, due - 0.01, desired) is None
        now = due
    pauses = [later - earlier for earlier, later in pairwise(moments)]
    assert pauses == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10, 10, 10, 10])
    assert not is_stuck(replace(observed, has_processes=False))


def test_each_daemon_is_decided_by_itself():
    other = Daemon("GPU-1", 20001, None, "lease-2", 0)
    actions = plan({other.key: other}, {KEY: HEALTHY}, 200, TIMEOUTS)
    assert actions == [Terminate(KEY), Start(other)]


def test_pauses_double_up_to_a_bound_and_begin_anew_after_a_good_time():
    assert [backoff(failures, TIMEOUTS) for failures in range(1, 9)] == [1, 2, 4, 8, 16, 32, 60, 60]
    assert backoff(10_000, TIMEOUTS) == 60
    assert failures_after(replace(ENDED, failures=5), 150, TIMEOUTS) == 6
    assert failures_after(replace(ENDED, failures=5), 161.5, TIMEOUTS) == 1
    assert failures_after(replace(ENDED, failures=5, healthy_at=None), 1000, TIMEOUTS) == 6


@pytest.mark.parametrize(
    ("observed", "desired", "moment"),
    [
        (STARTING, DAEMON, 100.0),
        (HEALTHY, DAEMON, 111.0),
        (replace(STARTING, checked_at=float("inf")), DAEMON, 130.0),
        (replace(ENDED, retry_at=201.0), DAEMON, 201.0),
        (replace(HEALTHY, terminated_at=200.0), None, 210.0),
        (replace(ENDED, terminated_at=200.0, port_taken=True), None, None),
    ],
)
def test_nothing_is_to_be_looked_at_before_it_is_due(observed, desired, moment):
    daemons = {} if desired is None else {KEY: desired}
    assert next_due(daemons, {KEY: observed}, TIMEOUTS) == moment
    if moment is not None:
        assert plan(daemons, {KEY: observed}, moment - 0.01, TIMEOUTS) == []
        assert plan(daemons, {KEY: observed}, moment, TIMEOUTS) != []


@pytest.mark.parametrize(
    ("observed", "desired", "expected"),
    [
        (STARTING, DAEMON, DaemonState.STARTING),
        (HEALTHY, DAEMON, DaemonState.HEALTHY),
        (replace(HEALTHY, healthy=False), DAEMON, DaemonState.UNRESPONSIVE),
        (ENDED, DAEMON, DaemonState.DOWN),
        (HEALTHY, None, DaemonState.DRAINING),
        (replace(HEALTHY, terminated_at=1.0), DAEMON, DaemonState.DRAINING),
    ],
)
def test_the_state_of_a_daemon(observed, desired, expected):
    assert state(desired, observed) is expected
