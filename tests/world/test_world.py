# SPDX-License-Identifier: Apache-2.0
"""No seed breaks a rule, and together they take every operation, every fault and every edge of the table of status.

Worlds run in processes of their own: they replace the clocks and threads of GSaaS, and need a fixed order of hashes.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gsaas.objects.lifecycle import TRANSITIONS, Event, Status
from tests.world import happenings

REPOSITORY = Path(__file__).resolve().parents[2]
SEEDS, MANY_SEEDS = 60, 5000
UNUSED = {(Status.QUEUED, Event.FAIL)}
"""No code takes it: what leaves the queue without GPUs is released."""

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


def test_no_seed_breaks_a_rule_and_together_they_take_everything():
    found = run_many("--seeds", SEEDS, "--jobs", 2)
    assert found["broken"] == {}
    edges = {f"edge {status} {event}" for status, event in TRANSITIONS.keys() - UNUSED}
    assert sorted((edges | happenings.ALL.keys()) - found["counted"].keys()) == []
    assert found["points"] > 300 * SEEDS


@pytest.mark.thorough
def test_none_of_many_seeds_breaks_a_rule():
    assert run_many("--seeds", MANY_SEEDS, "--first", SEEDS + 1, "--jobs", 2)["broken"] == {}


def test_a_seed_tells_the_same_story_in_every_process():
    stories = [run("--seed", 7, "--trace").stdout for _ in range(2)]
    assert "starts" in stories[0]
    assert stories[0] == stories[1]


def test_a_planted_bug_is_found():
    """`--plant` takes the others of `tests.world.planted`, which take more seeds."""
    bug = "a_repeated_launch_makes_another_lease"
    found = run_many("--plant", bug, "--seeds", 20, "--until-broken", "--jobs", 1)
    assert any("repeated" in each for broken in found["broken"].values() for each in broken)
