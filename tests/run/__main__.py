# SPDX-License-Identifier: Apache-2.0
"""`./dev test`, `./dev test ci` and `./dev test thorough`: all lists of one kind, side by side."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from tests.openstack.bed import fitness
from tests.run import lists
from tests.run.jobs import INTERRUPTED, Job, Jobs, clock, line, say

KINDS: dict[str, Callable[[int], list[Job]]] = {
    "most": lists.most_tests,
    "ci": lists.integration,
    "thorough": lists.thorough,
}
LOGS = Path("build/tests")


def main(kind: str) -> int:
    """Run the lists, print what each says when it ends, and at the end how long each took and which tests failed."""
    began = time.monotonic()
    jobs = KINDS[kind](os.getpid())
    has_cloud = any(job.name == "cloud" for job in jobs)
    if has_cloud and (lacking := fitness.lacks()):
        say(f"no test on OpenStack runs here: it needs {lacking}")
        jobs = [job for job in jobs if job.name != "cloud"]
        has_cloud = False
    shutil.rmtree(lists.CACHES, ignore_errors=True)  # what failed earlier
    down()  # the cloud of an earlier run that was killed would disturb the tests of this one
    running = Jobs(jobs, lists.MOST, LOGS, say)
    try:
        results = running.run()
    finally:
        if has_cloud:
            down()
    say("")
    for result in results:
        say(line(result))
    say(
        f"all: {clock(time.monotonic() - began)}, {clock(sum(result.cpu for result in results))} of processor time"
    )
    for name in failed(lists.CACHES):
        say(f"failed: {name}")
    if running.interrupted:
        return INTERRUPTED
    return 1 if any(result.status for result in results) else 0


def down() -> None:
    """Take the cloud down if it is up for this process, or for one that is gone."""
    command = (sys.executable, "-m", "tests.openstack.bed", "down", f"--for={os.getpid()}")
    subprocess.run(command, check=True)


def failed(caches: Path) -> list[str]:
    """Return the tests that pytest has recorded as failed, in all caches below *caches*."""
    recorded = sorted(caches.glob("*/v/cache/lastfailed"))
    return [name for path in recorded for name in json.loads(path.read_text())]


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
