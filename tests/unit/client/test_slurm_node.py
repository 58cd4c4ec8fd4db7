# SPDX-License-Identifier: Apache-2.0
"""`gsaas slurm prolog` and `epilog` on a node: while the API does not answer, and with what other jobs have left."""

from __future__ import annotations

import os
import resource
from pathlib import Path
from types import SimpleNamespace
from typing import NoReturn

import pytest

from gsaasclient import ApiError, UnreachableError
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

    def time(self) -> float:
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
        lease = {"id": "a", "status": "ACTIVE", "created_at": "", "consumer": {"uid": 1000}}
        return {"leases": [lease]}


class Leases:
    """An API that has leases with these statuses, and counts how often it is asked for one."""

    def __init__(self, **statuses: str) -> None:
        self.statuses = statuses
        self.asked: list[str] = []
        self.code: str | None = "gsaas.not-found"

    def request(self, method: str, path: str, *_rest: object, **_options: object) -> object:
        name = path.removeprefix("/v1/leases/")
        if method == "DELETE" or name.startswith("/v1/leases?"):
            return {"leases": []}
        self.asked.append(name)
        if name not in self.statuses:
            raise ApiError(404, code=self.code)
        return {"lease": {"id": name, "status": self.statuses[name]}}


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
    assert program(Api(clock, answers), SimpleNamespace(folder=tmp_path, grace=None), CALLED) == 0
    assert clock.now <= node.OUTAGE_TIMEOUT + 10 + node.RETRY_DELAY
    assert list(tmp_path.iterdir()) == []
    assert requeued == (["16_1"] if program is node.prolog else [])


def test_a_job_whose_prolog_is_ended_is_requeued(requeued, tmp_path):
    assert node.prolog(Silent(), SimpleNamespace(folder=tmp_path, grace=None), CALLED) == 0
    assert requeued == ["16_1"]


def test_on_a_full_disk_a_job_is_requeued_and_nothing_is_left(requeued, tmp_path, monkeypatch):
    size = 64 * 1024
    monkeypatch.setattr(
        node.alloc, "usable_environment", lambda *_: {"LD_LIBRARY_PATH": "x" * 2 * size}
    )
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        args = SimpleNamespace(folder=tmp_path, grace=None)
        assert node.prolog(Api(Clock(), 1), args, CALLED) == 0
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert requeued == ["16_1"]
    assert list(tmp_path.iterdir()) == []


def test_an_epilog_that_is_ended_leaves_no_environment(tmp_path):
    (tmp_path / "17.1000.n1").touch()
    assert node.epilog(Silent(), SimpleNamespace(folder=tmp_path, grace=None), CALLED) == 0
    assert list(tmp_path.iterdir()) == []


def test_a_job_whose_environment_cannot_be_written_is_requeued(requeued, tmp_path):
    (tmp_path / "file").touch()
    assert node.prolog(Silent(), SimpleNamespace(folder=tmp_path / "file", grace=None), CALLED) == 0
    assert requeued == ["16_1"]


def test_nothing_is_written_where_others_could_replace_it(clock, requeued, tmp_path):
    tmp_path.chmod(0o777)
    assert node.prolog(Api(clock, 1), SimpleNamespace(folder=tmp_path), CALLED) == 0
    assert list(tmp_path.iterdir()) == []
    assert requeued == ["16_1"]


def leave(folder: Path, name: str, content: str, age: float) -> None:
    """Write an environment that is *age* seconds old at second 10000."""
    (folder / name).write_text(content)
    os.utime(folder / name, (0, 10_000 - age))


def test_an_epilog_removes_what_jobs_without_one_have_left_on_its_node(clock, tmp_path):
    clock.now = 10_000
    api = Leases(used="ACTIVE", ending="RELEASING", over="RELEASED")
    leave(tmp_path, "1.0.n1", "GSAAS_LEASE=gone\0", 600)
    leave(tmp_path, "2.0.n1", "GSAAS_LEASE=over\0", 600)
    leave(tmp_path, "3.0.n1", "GSAAS_LEASE=ending\0", 600)
    leave(tmp_path, "4.0.n1", "", 600)
    leave(tmp_path, ".5.0.n1", "GSAAS_LEA", 600)
    leave(tmp_path, "6.0.n1", "GSAAS_LEASE=gone\0", 599)
    leave(tmp_path, "7.0.n1", "GSAAS_LEASE=used\0", 600)
    leave(tmp_path, "8.0.n11", "GSAAS_LEASE=gone\0", 600)
    assert node.epilog(api, SimpleNamespace(folder=tmp_path, grace=None), CALLED) == 0
    assert {path.name for path in tmp_path.iterdir()} == {"6.0.n1", "7.0.n1", "8.0.n11"}


def test_an_answer_that_is_not_the_apis_removes_nothing(clock, tmp_path):
    clock.now = 10_000
    api = Leases()
    api.code = None
    leave(tmp_path, "7.0.n1", "GSAAS_LEASE=used\0", 600)
    assert node.epilog(api, SimpleNamespace(folder=tmp_path, grace=None), CALLED) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["7.0.n1"]


def test_what_is_of_use_is_looked_at_once_in_a_grace(clock, tmp_path):
    clock.now = 10_000
    api = Leases(used="ACTIVE")
    leave(tmp_path, "7.0.n1", "GSAAS_LEASE=used\0", 600)
    for _ in range(2):
        node.epilog(api, SimpleNamespace(folder=tmp_path, grace=600), CALLED)
    assert api.asked == ["used"]


def test_nothing_is_removed_while_the_api_does_not_answer(clock, tmp_path):
    clock.now = 10_000
    leave(tmp_path, "7.0.n1", "GSAAS_LEASE=used\0", 600)
    assert node.epilog(Api(clock, 0), SimpleNamespace(folder=tmp_path, grace=0), CALLED) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["7.0.n1"]
