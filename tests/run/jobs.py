# SPDX-License-Identifier: Apache-2.0
"""Commands that run side by side, some of which have to wait for others.

A process mostly waits, for a server or a guest to start. So there are more of them at work than the machine has cores.
Each writes to a log of its own, which is printed when it has ended.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

INTERRUPTED = 130
"""The exit status of a run that was asked to end."""
SIGNALS = (signal.SIGINT, signal.SIGTERM)


@dataclass(frozen=True)
class Job:
    """A command that starts when the jobs named in *needs* have passed, and those named in *after* have ended.

    One that is *beside* the others does not count as one at work.
    """

    name: str
    command: tuple[str, ...]
    needs: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    beside: bool = False


@dataclass(frozen=True)
class Result:
    """What became of a job.

    All times are in seconds: *began* since the first job started, *cpu* of processors. A job that was not run, because
    another one did not pass, has the name of that one in *lacks*.
    """

    name: str
    status: int | None
    began: float
    took: float = 0.0
    cpu: float = 0.0
    lacks: str = ""

    @property
    def passed(self) -> bool:
        return self.status == 0


class Jobs:
    """Run *jobs*, at most *most* at once; those first in the list start first."""

    def __init__(
        self, jobs: Sequence[Job], most: int, logs: Path, say: Callable[[str], None]
    ) -> None:
        self._waiting = list(jobs)
        self._most = most
        self._logs = logs
        self._say = say
        self._running: dict[int, tuple[Job, subprocess.Popen[bytes], float]] = {}
        self._results: list[Result] = []
        self._began = time.monotonic()
        self._interrupted = False

    def run(self) -> list[Result]:
        """Return the results in the order in which the jobs ended.

        After a signal to end, no further job starts, and those at work are interrupted and clean up.
        """
        self._logs.mkdir(parents=True, exist_ok=True)
        before = {number: signal.signal(number, self._interrupt) for number in SIGNALS}
        try:
            self._start()
            while self._running:
                self._wait()
                self._start()
            return self._results
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    @property
    def interrupted(self) -> bool:
        return self._interrupted

    def _start(self) -> None:
        """Start what can be started now, and give up what lacks a job that it needs."""
        if self._interrupted:
            return
        self._give_up()
        for job in ready(self._waiting, [job for job, _, _ in self._running.values()], self._most):
            if self._interrupted:
                return
            self._waiting.remove(job)
            with self._log(job).open("wb") as log:
                # Each has a process group, to be interrupted with all that it started, and ends if this process is
                # killed.
                process = subprocess.Popen(
                    ("setpriv", "--pdeathsig=INT", "--", *job.command),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    process_group=0,
                )
            self._running[process.pid] = job, process, time.monotonic()
            self._say(f"{job.name}: starts")

    def _give_up(self) -> None:
        """Take away the jobs that need one which did not pass, and those that need these."""
        while lost := hopeless(self._waiting, self._results):
            for job, lacks in lost:
                self._waiting.remove(job)
                result = Result(job.name, None, time.monotonic() - self._began, lacks=lacks)
                self._results.append(result)
                self._say(line(result))

    def _wait(self) -> None:
        """Wait for one to end; print its log."""
        pid, status, usage = os.wait4(-1, 0)
        while pid not in self._running:  # not ours
            pid, status, usage = os.wait4(-1, 0)
        job, process, began = self._running.pop(pid)
        process.returncode = os.waitstatus_to_exitcode(status)
        result = Result(
            job.name,
            process.returncode,
            began=began - self._began,
            took=time.monotonic() - began,
            cpu=usage.ru_utime + usage.ru_stime,
        )
        self._results.append(result)
        self._say(
            f"\n=== {job.name} ===\n{self._log(job).read_text(errors='replace')}{line(result)}"
        )

    def _log(self, job: Job) -> Path:
        return self._logs / f"{job.name}.log"

    def _interrupt(self, *_: object) -> None:
        self._interrupted = True
        for _job, process, _began in list(self._running.values()):
            os.killpg(process.pid, signal.SIGINT)


def ready(waiting: Sequence[Job], running: Sequence[Job], most: int) -> list[Job]:
    """Return the jobs that can start now, while at most *most* are at work."""
    unfinished = {job.name for job in (*waiting, *running)}
    room = most - sum(not job.beside for job in running)
    chosen = []
    for job in waiting:
        if unfinished.isdisjoint(job.needs + job.after) and (job.beside or room > 0):
            chosen.append(job)
            room -= not job.beside
    return chosen


def hopeless(waiting: Sequence[Job], results: Sequence[Result]) -> list[tuple[Job, str]]:
    """Return the jobs that need one which did not pass, each with the name of such a one."""
    failed = {result.name for result in results if not result.passed}
    return [(job, min(lost)) for job in waiting if (lost := failed.intersection(job.needs))]


def line(result: Result) -> str:
    """Return how long a job took, and how it ended."""
    if result.lacks:
        return f"{result.name}: {outcome(result)}"
    return f"{result.name}: {outcome(result)} after {clock(result.took)}, {clock(result.cpu)} of processor time"


def table(results: Iterable[Result]) -> str:
    """Return a line for each job, in the order in which they started: what it waited for ended just before."""
    heads = ("list", "start", "took", "cpu", "outcome")
    rows = [
        (result.name, *map(clock, (result.began, result.took, result.cpu)), outcome(result))
        for result in sorted(results, key=lambda result: result.began)
    ]
    return "\n".join(
        f"{name:20} {began:>6} {took:>6} {cpu:>6}  {ended}"
        for name, began, took, cpu, ended in (heads, *rows)
    )


def outcome(result: Result) -> str:
    """Return how a job ended."""
    if result.lacks:
        return f"not run, because {result.lacks} did not pass"
    return "passed" if result.passed else f"failed with {result.status}"


def say(text: str) -> None:
    """Print a line now: the output of what runs meanwhile comes after it."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def clock(seconds: float) -> str:
    """Return minutes and seconds."""
    return f"{int(seconds) // 60}:{int(seconds) % 60:02}"
