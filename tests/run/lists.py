# SPDX-License-Identifier: Apache-2.0
"""Which tests run side by side: each list is a command of `./dev`, which gives it the programs that its tests declare.

The tests on OpenStack take longest, one after the other. So the cloud comes up first, and they run beside all others,
which give way to them.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from tests.run.jobs import Job
from tests.support.constraints import UPPER_CONSTRAINTS

TEST = ("./dev", "test")
CACHES = Path(".pytest_cache")
CONSTRAINTS = "upper-constraints-"
MOST = 6
"""Lists at work at once, beside those on OpenStack: each mostly waits. Of fewer, two cores are idle in the end."""
SLOWEST = ("--durations=8", "--durations-min=10")
"""Each list ends with the tests that took longest."""
NICE = ("nice", "--adjustment=5")
"""A third of the share of the cloud and the tests on it: with less, others would wait too long while guests boot."""
TOGETHER = "not alone and not thorough and not users"
"""Tests on OpenStack that others do not disturb."""
ALONE = "alone and not thorough"


def cloud(pid: int) -> Job:
    """Bring the cloud up, for the process *pid*."""
    return Job("cloud", ("./dev", "cloud", "up", f"--for={pid}"), beside=True)


def in_the_cloud(name: str, *arguments: str, after: tuple[str, ...] = ()) -> Job:
    """A list of tests on OpenStack."""
    command = (*TEST, *_options(name), *arguments)
    return Job(name, command, needs=("cloud",), after=after, beside=True)


def without_cloud(jobs: Iterable[Job]) -> list[Job]:
    """Return those of *jobs* that need no OpenStack."""
    return [job for job in jobs if "cloud" not in (job.name, *job.needs)]


def tests(name: str, *arguments: str) -> Job:
    """Any other list of tests."""
    return Job(name, (*NICE, *TEST, *arguments, *_options(name)))


def constrained(release: str, *arguments: str) -> Job:
    """Tests under the constraints of a release of OpenStack."""
    command = (*NICE, "./dev", "test", "constrained", release, *arguments)
    return Job(f"constrained-{release}", command)


def most_tests(pid: int) -> list[Job]:
    """What `./dev test` runs, in the process *pid*."""
    folder, processes = "tests/openstack", "tests/services/processes"
    # These do not use the GSaaS of the cloud, which the test of the operator's guide takes away for a while.
    nova = f"{folder}/nova"
    return [
        cloud(pid),
        in_the_cloud("openstack", folder, f"--ignore={nova}", "-m", TOGETHER),
        in_the_cloud("nova", nova, "-m", TOGETHER),
        in_the_cloud("alone", folder, "-m", ALONE, after=("openstack", "nova")),
        # Those that mostly wait, and take longest, start first. Those that need a processor all the time use what is
        # left of it later.
        tests("databases", "tests/services", f"--ignore={processes}"),
        tests("kernel", "tests/kernel"),
        tests("processes", processes),
        tests("guest", "tests/guest"),
        tests("hostile", "tests/hostile", "tests/install"),
        tests("world", "tests/world"),
        tests("unit", "--numprocesses=2", "--dist=worksteal", "tests/unit", "tests/api"),
        tests("images", "tests/images"),
        Job("lint", (*NICE, "./dev", "lint")),
        constrained("2026.1"),
    ]


def integration(pid: int) -> list[Job]:
    """What continuous integration runs: also the tests with the tools of others, and with Slurm."""
    return [
        in_the_cloud("tools", "tests/openstack/test_tools.py", "-m", "users"),
        # It installs packages of Debian, which the machines of the operator's guide should find whole.
        tests("slurm", "tests/slurm"),
        *most_tests(pid),
        # They take all GPUs of the cloud, and stop services of it.
        in_the_cloud("users", "tests/openstack", "-m", "users", after=("alone", "tools")),
    ]


def thorough(pid: int) -> list[Job]:
    """What is slow and rare: small runs of benchmarks, more inputs and jobs, other releases, all images."""
    releases = sorted(path.stem.removeprefix(CONSTRAINTS) for path in UPPER_CONSTRAINTS.iterdir())
    profile = ("--hypothesis-profile=thorough", "-m", "hypothesis")
    return [
        tests("hypothesis", *profile, "tests/unit", "tests/api", "tests/hostile"),
        tests("thorough", "-m", "thorough", "tests"),
        tests("slurm", "slurm"),
        tests("images", "images"),
        *(constrained(release, "all") for release in releases),
    ]


def _options(name: str) -> tuple[str, ...]:
    """Each list records apart from the others what failed."""
    return ("-o", f"cache_dir={CACHES / name}", *SLOWEST)
