# SPDX-License-Identifier: Apache-2.0
"""Which tests run side by side: each list is a command of `./dev`, which gives it the programs that its tests declare.

The tests on OpenStack take longest, one after the other. So the cloud comes up first, and they run beside all others,
which give way to them.
"""

from __future__ import annotations

from pathlib import Path

from tests.run.jobs import Job
from tests.support.constraints import UPPER_CONSTRAINTS

PYTHON = ".venv/bin/python"
TEST = ("./dev", "test")
CACHES = Path(".pytest_cache")
CONSTRAINTS = "upper-constraints-"
MOST = 3
"""Lists at work at once, beside those on OpenStack: each mostly waits, and two cores are busy with these."""
NICE = ("nice", "--adjustment=5")
"""A third of the share of the tests on OpenStack: with less, they would wait too long while guests boot."""
TOGETHER = "not alone and not thorough and not users"
"""Tests on OpenStack that others do not disturb."""


def cloud(pid: int) -> Job:
    """Bring the cloud up, for the process *pid*."""
    return Job("cloud", ("./dev", "cloud", "up", f"--for={pid}"), beside=True)


def in_the_cloud(name: str, *arguments: str, after: tuple[str, ...] = ("cloud",)) -> Job:
    """A list of tests on OpenStack."""
    return Job(name, (*TEST, *_cache(name), *arguments), after, beside=True)


def tests(name: str, *arguments: str, after: tuple[str, ...] = ()) -> Job:
    """Any other list of tests."""
    return Job(name, (*NICE, *TEST, *arguments, *_cache(name)), after)


def constrained(release: str, *arguments: str) -> Job:
    """Tests under the constraints of a release of OpenStack."""
    command = (*NICE, "./dev", "test", "constrained", release, *arguments)
    return Job(f"constrained-{release}", command)


def most_tests(pid: int) -> list[Job]:
    """What `./dev test` runs, in the process *pid*."""
    folder, engine = "tests/openstack", "tests/openstack/engine"
    return [
        cloud(pid),
        in_the_cloud("openstack", folder, f"--ignore={engine}", "-m", TOGETHER),
        in_the_cloud("engine", engine, "-m", TOGETHER),
        in_the_cloud("alone", folder, "-m", "alone", after=("openstack", "engine")),
        tests("unit", "--numprocesses=2", "--dist=worksteal", "tests/unit", "tests/api"),
        Job("lint", (*NICE, "./dev", "lint")),
        tests("kernel", "tests/kernel"),
        tests("images", "tests/images"),
        tests("services", "tests/services"),
        tests("hostile", "tests/hostile", "tests/install"),
        constrained("2026.1"),
    ]


def integration(pid: int) -> list[Job]:
    """What continuous integration runs: also the tests with the tools of others, and with Slurm."""
    return [
        # The tests with the tools of others end last: what they wait for goes first.
        Job("tools", (PYTHON, "-m", "tests.openstack.tools"), after=("cloud",), beside=True),
        # Of what installs packages of Debian or removes them, one after the other. Slurm's daemons give up messages
        # that wait for long, so they run when half of the other lists have ended.
        tests("slurm", "slurm", after=("tools", "openstack")),
        *most_tests(pid),
        in_the_cloud("users", "tests/openstack", "-m", "users", after=("alone", "slurm")),
    ]


def thorough(pid: int) -> list[Job]:
    """What is slow and rare: small runs of benchmarks, more inputs of Hypothesis, other releases, all images."""
    releases = sorted(path.stem.removeprefix(CONSTRAINTS) for path in UPPER_CONSTRAINTS.iterdir())
    profile = ("--hypothesis-profile=thorough", "-m", "hypothesis")
    return [
        tests("hypothesis", *profile, "tests/unit", "tests/api", "tests/hostile"),
        tests("thorough", "-m", "thorough", "tests"),
        tests("images", "images"),
        *(constrained(release, "all") for release in releases),
    ]


def _cache(name: str) -> tuple[str, str]:
    """Each list records apart from the others what failed."""
    return ("-o", f"cache_dir={CACHES / name}")
