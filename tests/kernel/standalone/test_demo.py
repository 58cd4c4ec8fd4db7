# SPDX-License-Identifier: Apache-2.0
"""`./dev demo` from its start to its end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from tests.kernel.standalone.cloud import namespaces
from tests.support.waiting import until

pytestmark = pytest.mark.kernel


DAEMON = "gsaas-daemon gsaas-"
ALONE = ("unshare", "--net", "sh", "-euc", 'ip link set lo up; exec "$@"', "sh")
"""In the network of the machine other programs add rules meanwhile, among them endpoints of other tests."""
DEMO = (*ALONE, sys.executable, "-m", "gsaas.standalone.demo")


def test_programs_of_the_demonstration_compute_after_one_that_was_killed_and_nothing_is_left():
    with subprocess.Popen(DEMO, stdout=subprocess.PIPE, text=True, process_group=0) as killed:
        assert killed.stdout is not None
        assert any(line.startswith("  $ gsaas -l") for line in killed.stdout)
        os.killpg(killed.pid, signal.SIGKILL)
    # A command that it was just starting keeps the lock of the demonstration until it has ended, too.
    until(lambda: not is_left(killed.pid), "its commands to be gone")
    assert "gsaas-gpu1" in namespaces()
    shown = demonstrate()
    for command in (
        "$ gsaas -l -ncgpus=2 -poolmem=512 -mode=shared -name=training\n",
        "$ gsaas exec training -- ",
        "$ gsaas -t -id=",
    ):
        assert command in shown
    assert shown.count("has multiplied as the VM does itself") == 2
    assert "MiB for itself, and then an error: std::bad_alloc" in shown
    assert shown.count("right products, and was cut off") == 3
    assert [
        line for line in subprocess.getoutput("ps -eo args").splitlines() if DAEMON in line
    ] == []


def test_every_proof_on_simulated_gpus_holds():
    shown = demonstrate("--simulated")
    for command in (
        "$ gsaas -l -ncgpus=2\n",
        "$ gsaas -l -ncgpus=2 -poolmem=2048 -mode=shared\n",
        "$ gsaas -l -ncgpus=8 -poolmem=4096 -mode=shared -locality=local\n",
        "$ gsaas -l -ncgpus=2 -locality=local\n",
        "$ gsaas -t -id=",
    ):
        assert command in shown


def demonstrate(*options: str) -> str:
    """Run the demonstration; return what it shows, after checking that every proof held."""
    command = (*DEMO, *options)
    done = subprocess.run(command, capture_output=True, text=True, timeout=480, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "FAILS" not in done.stdout
    assert "holds  nothing of GSaaS is left among its network namespaces" in done.stdout
    assert done.stdout.rstrip().endswith("Every proof held.")
    return done.stdout


def is_left(group: int) -> bool:
    """Return whether a process of a process group is left."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True
