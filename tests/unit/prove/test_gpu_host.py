# SPDX-License-Identifier: Apache-2.0
"""What the proof of a GPU host leaves behind when something in it fails: nothing."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import chain, repeat
from pathlib import Path

import pytest

import gsaas.conf
from gsaas.objects.daemon import Daemon
from gsaas.prove import gpu_host, limits
from gsaas.prove import place as places
from gsaas.prove.facts import Facts
from gsaas.prove.jobs import Proof
from gsaas.prove.place import Job, Place, Unusable
from gsaas.prove.verdicts import Gpu, Line, Ran, Verdict
from gsaas.remoting.base import ClientDevice, load

GPU = Gpu("GPU-0", "Fake GPU", 8192)
SETTINGS = load("rcuda", gsaas.conf.load(files=[])).daemon_settings


class FakeJob(Job):
    """A job that lives until it is killed, and has printed *text*; *result* is raised, or returned."""

    def __init__(self, text: str, result: Ran | BaseException) -> None:
        self.text = text
        self.ended_with = result
        self.killed = False

    def lives(self) -> bool:
        return not self.killed

    def kill(self) -> None:
        self.killed = True

    def output(self) -> str:
        return self.text

    def result(self, timeout: float = 0) -> Ran:
        if isinstance(self.ended_with, BaseException):
            raise self.ended_with
        return self.ended_with

    def await_output(self, text: str, timeout: float = 0) -> bool:
        return text in self.text


class FakePlace(Place):
    """Gives out one job after the other, by the program's first word; one that is missing is `Unusable`."""

    def __init__(self, **jobs: FakeJob) -> None:
        super().__init__(SETTINGS, "127.0.0.1")
        self.jobs = jobs

    def start(self, daemon: Daemon, words: Sequence[str] | None) -> Job:
        word = "daemon" if words is None else words[0]
        if word not in self.jobs:
            raise Unusable("systemd refuses it")
        return self.jobs[word]

    def check(self, daemon: Daemon, job: Job, timeout: float) -> tuple[float, str | None]:
        return 0.0, None


class FakeMiddleware:
    """One whose clients need no environment."""

    name = "fake"

    def environment(self, _lease_id: str, _devices: Sequence[ClientDevice]) -> dict[str, str]:
        return {}


@pytest.fixture(autouse=True)
def native(monkeypatch):
    """No program runs on this host itself."""
    monkeypatch.setattr(places, "run", lambda *_arguments, **_more: Ran({"free_mb": 8192}))


def proof(place: Place) -> Proof:
    facts = Facts("570.86.10", [GPU])
    return Proof(facts, place, FakeMiddleware(), "mps", 256, 1.0, {}, Path("/lib"))


def verdicts_of(lines: Iterable[Line]) -> dict[str, Verdict]:
    return {line.name: line.verdict for line in lines}


def test_every_job_is_ended_when_all_goes_well():
    place = FakePlace(
        occupy=FakeJob("computing", Ran({"rounds": 3})),
        exceed=FakeJob("", Ran({"allocated_mb": 256, "refused": "memory", "out_of_memory": True})),
    )
    limit, beside = limits.on_a_gpu(proof(place), GPU)
    assert (limit.verdict, beside.verdict) == (Verdict.OK, Verdict.OK)
    assert all(job.killed for job in place.jobs.values())


def test_a_neighbour_that_does_not_compute_is_ended():
    place = FakePlace(occupy=FakeJob("CUDA cannot be used", Ran(None, "no")))
    limit, _ = limits.on_a_gpu(proof(place), GPU)
    assert "does not compute" in limit.mend
    assert place.jobs["occupy"].killed


def test_a_neighbour_is_ended_when_the_proof_is_interrupted():
    place = FakePlace(
        occupy=FakeJob("computing", Ran({"rounds": 3})),
        exceed=FakeJob("", KeyboardInterrupt()),
    )
    with pytest.raises(KeyboardInterrupt):
        list(limits.on_a_gpu(proof(place), GPU))
    assert all(job.killed for job in place.jobs.values())


def test_a_neighbour_is_ended_when_the_other_program_cannot_be_started():
    place = FakePlace(occupy=FakeJob("computing", Ran({"rounds": 3})))
    limit, beside = limits.on_a_gpu(proof(place), GPU)
    assert (limit.verdict, beside.verdict) == (Verdict.FAIL, Verdict.OK)
    assert place.jobs["occupy"].killed


def test_a_middleware_through_which_nothing_computes_is_not_tried_further(monkeypatch):
    place = FakePlace(daemon=FakeJob("", Ran(None)))
    tried = []

    def hangs(words: Sequence[str], _environment: object) -> Ran:
        tried.append(words)
        return Ran(None, "timed out after 120 seconds")

    monkeypatch.setattr(places, "run", hangs)
    found = verdicts_of(gpu_host.through_the_middleware(proof(place), GPU, Ran({})))
    assert found == {
        "daemon of fake": Verdict.OK,
        "through fake: program": Verdict.FAIL,
        "device pointers of two daemons": Verdict.SKIP,
        "release under load": Verdict.SKIP,
        "neighbour of a release": Verdict.SKIP,
        "memory after a release": Verdict.SKIP,
    }
    assert [words for words in tried if words != ["used"]] == [["compute"]]
    assert place.jobs["daemon"].killed


@pytest.fixture
def release(monkeypatch):
    """Return what proves a release: a daemon that is killed while a client and a neighbour compute."""

    def prove(client: FakeJob, neighbour: FakeJob, used_mb: Iterable[int]) -> dict[str, Verdict]:
        """Return the verdicts; *used_mb* are the MiB of the GPU in use, each time that is asked."""
        right, used = {"uuid": GPU.uuid, "failed": []}, iter(used_mb)
        monkeypatch.setattr(
            places,
            "run",
            lambda words, _: Ran(right | {"used_mb": next(used)} if words == ["used"] else right),
        )
        monkeypatch.setattr(gpu_host, "FREE_TIMEOUT", 0.1)
        monkeypatch.setattr(places, "begin", lambda *_: client)
        daemon = FakeJob("", Ran(None))
        place = FakePlace(daemon=daemon, occupy=neighbour)
        found = verdicts_of(gpu_host.through_the_middleware(proof(place), GPU, Ran({})))
        assert all(job.killed for job in (client, daemon, neighbour))
        return found

    return prove


def computing() -> FakeJob:
    return FakeJob("computing", Ran({"rounds": 3}))


@pytest.mark.parametrize(("printed", "verdict"), [("", "fail"), ("computing", "warn")])
def test_a_client_that_does_not_compute_or_hangs_at_the_end_is_ended(release, printed, verdict):
    found = release(FakeJob(printed, Ran(None)), computing(), repeat(10))
    assert found["release under load"] == verdict
    assert found["memory after a release"] == "ok"


def test_a_release_that_ends_the_program_of_another_tenant_is_told(release):
    """As one MPS server may do to its clients, when one of them is killed."""
    hit = FakeJob(
        "computing", Ran(None, "cuCtxSynchronize: CUDA_ERROR_MPS_CLIENT_TERMINATED (816)")
    )
    found = release(computing(), hit, repeat(10))
    assert found["neighbour of a release"] == "fail"


def test_memory_that_a_killed_daemon_had_for_itself_has_to_be_free_too(release):
    found = release(computing(), computing(), chain([10], repeat(500)))
    assert found["memory after a release"] == "fail"


def test_a_few_mib_more_in_use_are_the_drivers_own(release):
    found = release(computing(), computing(), chain([500], repeat(502)))
    assert found["memory after a release"] == "ok"


def test_a_gpu_in_mig_mode_is_not_taken_for_its_first_instance():
    (line,) = gpu_host.one_gpu(proof(FakePlace()), replace(GPU, mig=True))
    assert (line.verdict, "MIG is on" in line.mend) == (Verdict.SKIP, True)


@pytest.fixture
def tool(tmp_path, monkeypatch):
    """Install a cuda-checkpoint that does what *script* says, and return the file in which it notes its calls."""

    def install(script: str) -> Path:
        file, log = tmp_path / "cuda-checkpoint", tmp_path / "calls"
        file.write_text(f'#!/bin/sh\necho "$@" >>{log}\n{script}\n')
        file.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
        return log

    return install


class Suspendable(FakeJob):
    pid = 4711


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "calls", "said"),
    [
        ("exit 0", 2, "the program went on"),
        ("echo not supported >&2; exit 1", 1, "not supported"),
        ("exec sleep 600", 1, "it does not end within 2 s"),
    ],
)
def test_suspending_ends_with_the_first_failure(monkeypatch, tool, script, calls, said):
    log = tool(script)
    if "sleep" in script:
        monkeypatch.setattr(gpu_host, "FREE_TIMEOUT", 2.0)
    job = Suspendable("computing", Ran({"rounds": 3}))
    monkeypatch.setattr(places, "begin", lambda *_: job)
    line = gpu_host.suspended(proof(FakePlace()), {})
    assert said in (line.mend or line.figure)
    assert log.read_text().splitlines() == ["--toggle --pid 4711"] * calls
    assert job.killed


@pytest.mark.parametrize(
    ("ran", "said"),
    [
        (Ran(None, "it did not end within 35 s"), "it did not end within 35 s"),
        (Ran({"failed": ["a number"]}), "the program computed something wrong"),
    ],
)
def test_a_program_that_does_not_go_on_when_it_is_resumed_is_told_and_ended(
    monkeypatch, tool, ran, said
):
    tool("exit 0")
    job = Suspendable("computing", ran)
    monkeypatch.setattr(places, "begin", lambda *_: job)
    line = gpu_host.suspended(proof(FakePlace()), {})
    assert (line.verdict, line.mend) == ("warn", f"cuda-checkpoint: {said}")
    assert job.killed


def test_a_program_that_does_not_compute_is_not_suspended(monkeypatch, tool):
    log = tool("exit 0")
    monkeypatch.setattr(places, "begin", lambda *_: Suspendable("", Ran(None)))
    assert "does not compute" in gpu_host.suspended(proof(FakePlace()), {}).mend
    assert not log.exists()
