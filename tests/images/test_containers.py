# SPDX-License-Identifier: Apache-2.0
"""Containers of tests are removed when the tests end, also when they are killed."""

from __future__ import annotations

import signal
import subprocess
import sys

from tests.images import containers
from tests.support.waiting import until

TESTS = """
import os, signal, subprocess, sys
from tests.images import containers

with containers.ending_with_us() as label:
    words = ["run", "-d", "--network=none", sys.argv[1], "sleep", "1000"]
    subprocess.run(containers.command(label, words), check=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_containers_are_removed_when_the_tests_are_killed(podman, base):
    command = [sys.executable, "-c", TESTS, base]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    assert done.returncode == -signal.SIGKILL
    container = done.stdout.strip()
    assert container
    until(
        lambda: podman("container", "exists", container, check=False).returncode == 1,
        "the container to be removed",
    )


def test_the_container_of_a_test_that_forgets_it_is_removed_after_the_tests(podman, base):
    with containers.ending_with_us() as label:
        words = ["run", "-d", "--network=none", base, "sleep", "1000"]
        command = containers.command(label, words)
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        container = done.stdout.strip()
        assert podman("container", "exists", container, check=False).returncode == 0
    assert podman("container", "exists", container, check=False).returncode == 1
