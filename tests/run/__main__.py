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
from tests.run import autogroup, lists
from tests.run.jobs import INTERRUPTED, Job, Jobs, clock, say, table

KINDS: dict[str, Callable[[int], list[Job]]] = {
    "most": lists.most_tests,
    "ci": lists.integration,
    "thorough": lists.thorough,
}
LOGS = Path("build/tests")


def main(kind: str) -> int:
    """Run the lists, print what each says when it ends, and at the end when each ran and which tests failed."""
    began = time.monotonic()
    jobs = KINDS[kind](os.getpid())
    has_cloud = any(job.name == "cloud" for job in jobs)
    if has_cloud and (lacking := fitness.lacks()):
        say(f"no test on OpenStack runs here: it needs {lacking}")
        jobs = lists.without_cloud(jobs)
        has_cloud = False
    shutil.rmtree(lists.CACHES, ignore_errors=True)  # what failed earlier
    down()  # the cloud of an earlier run that was killed would disturb the tests of this one
    running = Jobs(jobs, lists.MOST, LOGS, say)
    try:
        with autogroup.disabled():
            results = running.run()
        say(f"\n{table(results)}")
        took, cpu = time.monotonic() - began, sum(result.cpu for result in results)
        say(f"all: {clock(took)}, {clock(cpu)} of processor time")
        for name in failed(lists.CACHES):
            say(f"failed: {name}")
    finally:
        if has_cloud:
            down()
    if running.interrupted:
        return INTERRUPTED
    return 0 if all(result.passed for result in results) else 1


def down() -> None:
    """Take the cloud down if it is up for this process, or for one that is gone."""
    subprocess.run(("./dev", "cloud", "down", f"--for={os.getpid()}"), check=True)


def failed(caches: Path) -> list[str]:
    """Return the tests that pytest has recorded as failed, in all caches below *caches*."""
    recorded = sorted(caches.glob("*/v/cache/lastfailed"))
    return [name for path in recorded for name in json.loads(path.read_text())]


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
