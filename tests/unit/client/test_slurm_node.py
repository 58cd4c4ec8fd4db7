# SPDX-License-Identifier: Apache-2.0
"""`gsaas slurm prolog` and `epilog` on a node, while the API does not answer."""

from __future__ import annotations

from types import SimpleNamespace
from typing import NoReturn

import pytest

from gsaasclient import UnreachableError
from gsaasclient.cli.slurm import node, scheduler

CALLED = {
    "SLURM_CLUSTER_NAME": "c1",
    "SLURM_JOB_ID": "17",
    "SLURM_JOB_UID": "1000",
    "SLURMD_NODENAME": "n1",
}


class Clock:
    """Time that passes only while somebody sleeps."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class Api:
    """Answers the first *answers* requests, with no lease but one that is ACTIVE, and then none."""

    def __init__(self, clock: Clock, answers: int) -> None:
        self.clock = clock
        self.answers = answers

    def request(self, *_words: object, **_options: object) -> dict[str, object]:
        self.clock.now += 10
        if self.answers == 0:
            raise UnreachableError("it is away")
        self.answers -= 1
        return {"leases": [{"id": "a", "status": "ACTIVE"}]}


class Silent:
    """Does not answer until this process is told to end."""

    def request(self, *_words: object, **_options: object) -> NoReturn:
        raise KeyboardInterrupt("ended by a signal")


@pytest.fixture
def clock(monkeypatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(node, "time", clock)
    return clock


@pytest.fixture
def requeued(monkeypatch) -> list[str]:
    found: list[str] = []
    monkeypatch.setattr(scheduler, "show", lambda job: f"{job}|16_1|2026-11-01T12:00:00")
    monkeypatch.setattr(scheduler, "requeue", found.append)
    return found


@pytest.mark.parametrize("program", [node.prolog, node.epilog])
@pytest.mark.parametrize("answers", [0, 1])
def test_all_requests_together_wait_for_the_api_once(clock, requeued, tmp_path, program, answers):
    assert program(Api(clock, answers), SimpleNamespace(folder=tmp_path), CALLED) == 0
    assert clock.now <= node.OUTAGE_TIMEOUT + 10 + node.RETRY_DELAY
    assert list(tmp_path.iterdir()) == []
    assert requeued == (["16_1"] if program is node.prolog else [])


def test_a_job_whose_prolog_is_ended_is_requeued(requeued, tmp_path):
    assert node.prolog(Silent(), SimpleNamespace(folder=tmp_path), CALLED) == 0
    assert requeued == ["16_1"]


def test_an_epilog_that_is_ended_leaves_no_environment(tmp_path):
    (tmp_path / "17.n1").touch()
    assert node.epilog(Silent(), SimpleNamespace(folder=tmp_path), CALLED) == 0
    assert list(tmp_path.iterdir()) == []


def test_a_job_whose_environment_cannot_be_written_is_requeued(requeued, tmp_path):
    (tmp_path / "file").touch()
    assert node.prolog(Silent(), SimpleNamespace(folder=tmp_path / "file"), CALLED) == 0
    assert requeued == ["16_1"]
