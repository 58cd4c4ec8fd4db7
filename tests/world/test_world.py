# SPDX-License-Identifier: Apache-2.0
"""No seed breaks a rule, and together they take every operation, fault and edge of the table of status.

Worlds run in processes of their own: they replace the clocks and threads of GSaaS, and need a fixed order of hashes.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gsaas.api.routes import ROUTES
from gsaas.objects.lifecycle import (
    END,
    ENDING,
    IDLE,
    IN_USE,
    SHELVED,
    TRANSITIONS,
    Event,
    Status,
)
from gsaas.objects.move import DRAIN, DRAIN_CANCELLED, GPU_LOST, MOVE, MOVED, UNDONE
from tests.world import clients, happenings, planted

REPOSITORY = Path(__file__).resolve().parents[2]
SEEDS, MANY_SEEDS = 60, 5000
UNUSED = {(Status.QUEUED, Event.FAIL)}
"""No code takes it: what leaves the queue without GPUs is released."""
EVENTS = (
    *(IDLE, IN_USE, SHELVED, ENDING, END),
    *(MOVE, MOVED, UNDONE, DRAIN, DRAIN_CANCELLED, GPU_LOST),
)
"""Those that change no status."""
QUICKLY_FOUND = (
    "a_repeated_launch_makes_another_lease",
    "a_token_is_logged",
    "an_owner_is_not_checked",
    "launches_pass_the_queue",
    "quotas_are_not_counted",
)
"""Planted bugs that the first few seeds find."""

pytestmark = pytest.mark.slow


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tests.world", *map(str, arguments)],
        cwd=REPOSITORY,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


def run_many(*arguments: object) -> Any:
    ran = run("--json", *arguments)
    assert ran.stdout, ran.stderr
    return json.loads(ran.stdout)


def usual() -> set[str]:
    """What the first seeds have to take together, as they count it."""
    return {
        *happenings.ALL,
        *(f"edge {status} {event}" for status, event in TRANSITIONS.keys() - UNUSED),
        *(f"launch in {version}" for version in (*clients.versions(), clients.NEWEST)),
        *(f"event {event}" for event in EVENTS),
        *(f"route {route.method} {route.path}" for route in ROUTES),
        "move that was accepted",
    }


def test_no_seed_breaks_a_rule_and_together_they_take_what_is_usual():
    found = run_many("--seeds", SEEDS, "--jobs", 2)
    assert found["broken"] == {}
    assert sorted(usual() - found["counted"].keys()) == []
    assert found["fewest_points"] >= 300


@pytest.mark.thorough
def test_none_of_many_seeds_breaks_a_rule_and_together_they_take_everything():
    found = run_many("--seeds", MANY_SEEDS, "--first", SEEDS + 1, "--jobs", 2)
    assert found["broken"] == {}
    assert sorted(usual() - found["counted"].keys()) == []


def test_a_seed_tells_the_same_story_in_every_process():
    stories = [run("--seed", 7, "--trace").stdout for _ in range(2)]
    assert "starts" in stories[0]
    assert stories[0] == stories[1]


@pytest.mark.parametrize("bug", QUICKLY_FOUND)
def test_a_planted_bug_is_found(bug: str):
    assert run_many("--planted", bug, "--seeds", 20, "--until-broken", "--jobs", 1)["broken"]


@pytest.mark.thorough
@pytest.mark.parametrize("bug", sorted(planted.BUGS))
def test_each_planted_bug_is_found_within_a_thousand_seeds(bug: str):
    found = run_many("--planted", bug, "--seeds", 1000, "--until-broken", "--jobs", 2)
    print(f"{bug} is found within {found['seeds']} seeds: {found['broken']}")
    assert found["broken"]
