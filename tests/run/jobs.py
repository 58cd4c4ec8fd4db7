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
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

INTERRUPTED = 130
"""The exit status of a run that was asked to end."""
SIGNALS = (signal.SIGINT, signal.SIGTERM)


@dataclass(frozen=True)
class Job:
    """A command that starts when the jobs named in *after* have ended.

    One that is *beside* the others does not count as one at work: it mostly waits for downloads.
    """

    name: str
    command: tuple[str, ...]
    after: tuple[str, ...] = ()
    beside: bool = False


@dataclass(frozen=True)
class Result:
    """What became of a job: its exit status, and the seconds that it took, also on processors."""

    name: str
    status: int
    took: float
    cpu: float


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
        self._interrupted = False

    def run(self) -> list[Result]:
        """Return the results in the order in which the jobs ended.

        After a signal to end, no further job starts, and those at work are interrupted and clean up.
        """
        self._logs.mkdir(parents=True, exist_ok=True)
        before = {number: signal.signal(number, self._interrupt) for number in SIGNALS}
        try:
            results = []
            self._start()
            while self._running:
                results.append(self._next())
                self._start()
            return results
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    @property
    def interrupted(self) -> bool:
        return self._interrupted

    def _start(self) -> None:
        """Start what can be started now."""
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

    def _next(self) -> Result:
        """Wait for one to end; print its log."""
        pid, status, usage = os.wait4(-1, 0)
        while pid not in self._running:  # not ours
            pid, status, usage = os.wait4(-1, 0)
        job, process, began = self._running.pop(pid)
        process.returncode = os.waitstatus_to_exitcode(status)
        took = time.monotonic() - began
        result = Result(job.name, process.returncode, took, usage.ru_utime + usage.ru_stime)
        self._say(
            f"\n=== {job.name} ===\n{self._log(job).read_text(errors='replace')}{line(result)}"
        )
        return result

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
        if unfinished.isdisjoint(job.after) and (job.beside or room > 0):
            chosen.append(job)
            room -= not job.beside
    return chosen


def line(result: Result) -> str:
    """Return how long a job took, and how it ended."""
    outcome = "passed" if result.status == 0 else f"failed with {result.status}"
    return f"{result.name}: {outcome} after {clock(result.took)}, {clock(result.cpu)} of processor time"


def say(text: str) -> None:
    """Print a line now: the output of what runs meanwhile comes after it."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def clock(seconds: float) -> str:
    """Return minutes and seconds."""
    return f"{int(seconds) // 60}:{int(seconds) % 60:02}"
