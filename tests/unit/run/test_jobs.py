# SPDX-License-Identifier: Apache-2.0
"""Commands that run side by side: which start, what becomes of them, and how they are ended."""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path

import pytest

from tests.run.jobs import Job, Jobs, Result, hopeless, line, ready, table
from tests.support.waiting import until


def job(
    name: str, *after: str, needs: tuple[str, ...] = (), beside: bool = False, script: str = ""
) -> Job:
    return Job(name, ("bash", "-c", script), needs, after, beside)


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


def test_a_job_waits_for_what_it_needs_and_is_hopeless_once_that_did_not_pass():
    needs = job("needs", needs=("cloud",))
    assert ready([needs], [job("cloud")], 2) == []
    assert hopeless([needs], [Result("other", 1, 0.0)]) == []
    assert hopeless([needs, job("after", "cloud")], [Result("cloud", 1, 0.0)]) == [(needs, "cloud")]
    assert hopeless([needs], [Result("cloud", 0, 0.0)]) == []


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


@pytest.mark.slow
def test_the_processor_time_of_a_job_is_that_of_all_that_it_started(tmp_path, said: list[str]):
    burn = f"{sys.executable} -c 'import time\nwhile time.process_time() < 0.3: pass'"
    results = run(tmp_path, said, job("busy", script=f"{burn}; {burn}; true"))
    assert results["busy"].cpu > 0.5


def test_without_what_they_need_jobs_are_not_run_which_is_said_and_the_others_are(
    tmp_path: Path, said: list[str]
):
    results = run(
        tmp_path,
        said,
        job("tests", needs=("cloud",), script=f"touch {tmp_path}/started"),
        job("more", needs=("tests",), script=f"touch {tmp_path}/started"),
        job("cloud", script="echo no room; exit 1"),
        job("others", "tests"),
    )
    assert {name: (result.status, result.lacks) for name, result in results.items()} == {
        "cloud": (1, ""),
        "tests": (None, "cloud"),
        "more": (None, "tests"),
        "others": (0, ""),
    }
    assert not (tmp_path / "started").exists()
    assert "tests: not run, because cloud did not pass" in said
    assert not any(result.passed for name, result in results.items() if name != "others")


def test_a_result_is_a_line_with_minutes():
    assert line(Result("services", 1, 0.0, 601.5, 59.9)) == (
        "services: failed with 1 after 10:01, 0:59 of processor time"
    )


def test_the_table_shows_in_which_order_jobs_started_and_how_they_ended():
    results = [
        Result("users", None, 86.0, lacks="cloud"),
        Result("services", 1, 86.4, 601.5, 59.9),
        Result("cloud", 0, 0.0, 86.0, 17.0),
    ]
    assert table(results).splitlines() == [
        "list                  start   took    cpu  outcome",
        "cloud                  0:00   1:26   0:17  passed",
        "users                  1:26   0:00   0:00  not run, because cloud did not pass",
        "services               1:26  10:01   0:59  failed with 1",
    ]


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
