# SPDX-License-Identifier: Apache-2.0
"""`./dev test --repeat=N [--load] ARGUMENT...`: which tests fail now and then, and how often.

With a load, a process for each core competes with the tests, and one keeps the disk busy.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.run.jobs import say

FOLDER = Path("build/tests")
PYTEST = (sys.executable, "-m", "pytest")
BUSY = "while True: pass"
WRITE = """
import os, sys
with open(sys.argv[1], "wb") as file:
    while True:
        file.seek(0)
        file.write(bytes(2**22))
        file.flush()
        os.fsync(file.fileno())
"""


def main(arguments: Sequence[str]) -> int:
    """Run pytest with *arguments*, but for our own options, some times; return 1 if any test ever failed."""
    turns, loaded, told = read(arguments)
    FOLDER.mkdir(parents=True, exist_ok=True)
    failures: Counter[str] = Counter()
    with load() if loaded else nothing():
        for turn in range(turns):
            say(f"turn {turn + 1} of {turns}")
            failures.update(run(told))
    for name, times in sorted(failures.items()):
        say(f"failed {times} of {turns} times: {name}")
    return 1 if failures else 0


def read(arguments: Sequence[str]) -> tuple[int, bool, list[str]]:
    """Return how many times, whether under load, and what pytest is told."""
    ours = {"--load": False}
    turns = 1
    told = []
    for argument in arguments:
        if argument.startswith("--repeat="):
            turns = int(argument.removeprefix("--repeat="))
        elif argument in ours:
            ours[argument] = True
        else:
            told.append(argument)
    return turns, ours["--load"], told


def run(told: Sequence[str]) -> list[str]:
    """Run pytest once; return the tests that failed. That it could not run counts as one."""
    report = FOLDER / "repeated.xml"
    report.unlink(missing_ok=True)
    status = subprocess.run([*PYTEST, f"--junit-xml={report}", *told], check=False).returncode
    failed = broken(report.read_text()) if report.exists() else []
    return failed or ([f"pytest itself, with status {status}"] if status else [])


def broken(report: str) -> list[str]:
    """Return the tests that failed, by a report in the format of JUnit."""
    cases = ElementTree.fromstring(report).iter("testcase")  # noqa: S314 (pytest wrote it)
    return [
        f"{case.get('classname')}.{case.get('name')}"
        for case in cases
        if case.find("failure") is not None or case.find("error") is not None
    ]


@contextmanager
def nothing() -> Iterator[None]:
    """No load."""
    yield


@contextmanager
def load() -> Iterator[None]:
    """Keep all cores and the disk busy. What does so ends with this process, however that ends."""
    with tempfile.NamedTemporaryFile(dir=FOLDER) as file:
        programs = [(BUSY,)] * (os.cpu_count() or 1) + [(WRITE, file.name)]
        die_with_us = ("setpriv", "--pdeathsig=KILL", "--")
        busy = [
            subprocess.Popen((*die_with_us, sys.executable, "-c", *program)) for program in programs
        ]
        try:
            yield
        finally:
            for process in busy:
                process.kill()
                process.wait()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
