# SPDX-License-Identifier: Apache-2.0
"""Commands that run side by side: which start, what becomes of them, and how they are ended."""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path

import pytest

from tests.run.jobs import Job, Jobs, Result, line, ready
from tests.support.waiting import until


def job(name: str, *after: str, beside: bool = False, script: str = "") -> Job:
    return Job(name, ("bash", "-c", script), after, beside=beside)


def names(jobs: list[Job]) -> list[str]:
    return [each.name for each in jobs]


def test_those_first_in_the_list_start_first_and_no_more_than_there_is_room_for():
    waiting = [job("a"), job("b"), job("c")]
    assert names(ready(waiting, [], 2)) == ["a", "b"]
    assert names(ready(waiting, [job("x")], 2)) == ["a"]
    assert ready(waiting, [job("x"), job("y")], 2) == []


def test_a_job_waits_for_others_whether_they_run_or_have_not_started():
    after = job("after", "first")
    assert names(ready([job("first"), after], [], 2)) == ["first"]
    assert ready([after], [job("first")], 2) == []
    assert names(ready([after], [], 2)) == ["after"]


def test_a_job_beside_the_others_takes_no_room():
    beside = job("beside", beside=True)
    assert names(ready([beside, job("a")], [], 1)) == ["beside", "a"]
    assert names(ready([beside], [job("x")], 1)) == ["beside"]
    assert names(ready([job("a")], [beside], 1)) == ["a"]


@pytest.fixture
def said() -> list[str]:
    return []


def run(tmp_path: Path, said: list[str], *jobs: Job) -> dict[str, Result]:
    return {result.name: result for result in Jobs(jobs, 2, tmp_path / "logs", said.append).run()}


def test_all_jobs_run_and_each_result_has_its_status(tmp_path: Path, said: list[str]):
    results = run(
        tmp_path,
        said,
        job("good", script="echo to be seen"),
        job("bad", script="echo also >&2; exit 3"),
        job("last", "good", "bad", script=f"ls {tmp_path}/logs"),
    )
    assert {name: result.status for name, result in results.items()} == {
        "good": 0,
        "bad": 3,
        "last": 0,
    }
    text = "\n".join(said)
    assert "=== good ===\nto be seen\ngood: passed after 0:0" in text
    assert "=== bad ===\nalso\nbad: failed with 3 after" in text
    assert "=== last ===\nbad.log\ngood.log\nlast.log\n" in text


def test_the_processor_time_of_a_job_is_that_of_all_that_it_started(tmp_path, said: list[str]):
    burn = f"{sys.executable} -c 'import time\nwhile time.process_time() < 0.3: pass'"
    results = run(tmp_path, said, job("busy", script=f"{burn}; {burn}; true"))
    assert results["busy"].cpu > 0.5


def test_a_result_is_a_line_with_minutes():
    assert line(Result("services", 1, 601.5, 59.9)) == (
        "services: failed with 1 after 10:01, 0:59 of processor time"
    )


WAITS = "trap 'echo cleaned up; exit 2' INT; touch {}; while :; do sleep 0.05; done"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_interrupts_those_at_work_which_clean_up_and_starts_no_other(
    tmp_path: Path, said: list[str], number: signal.Signals
):
    first, second = tmp_path / "first", tmp_path / "second"
    jobs = Jobs(
        [
            job("first", script=WAITS.format(first)),
            job("second", script=WAITS.format(second)),
            job("third", "first", script="exit 0"),
        ],
        2,
        tmp_path / "logs",
        said.append,
    )

    def interrupt() -> None:
        until(lambda: first.exists() and second.exists(), "both to run")
        os.kill(os.getpid(), number)

    interrupting = threading.Thread(target=interrupt)
    interrupting.start()
    results = jobs.run()
    interrupting.join()
    assert [(result.name, result.status) for result in sorted(results, key=str)] == [
        ("first", 2),
        ("second", 2),
    ]
    assert jobs.interrupted
    assert "\n".join(said).count("cleaned up") == 2
