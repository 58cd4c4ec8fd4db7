# SPDX-License-Identifier: Apache-2.0
"""Workers are prepared before their first request; processes that only fork workers are not."""

from __future__ import annotations

import subprocess
import sys

PREAMBLE = """
import os, threading
from gsaas.wsgi import warm_up

def fail():
    raise RuntimeError("Nova does not answer")

ready = threading.Event()
"""
"""Runs in a process of its own, because fork handlers cannot be unregistered."""
DOES_NOT_FORK = """
warm_up.schedule([fail, ready.set], delay=0)
assert ready.wait(60)
"""
FORKS = """
warm_up.schedule([ready.set], delay=3600)
for _ in range(2):
    child = os.fork()
    if child == 0:
        os._exit(0 if ready.wait(60) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
for thread in threading.enumerate():
    if thread is not threading.main_thread():
        thread.join(60)
assert not ready.is_set()
"""


def test_a_process_that_does_not_fork_runs_all_tasks_even_if_one_fails():
    _run(PREAMBLE + DOES_NOT_FORK)


def test_a_process_that_forks_leaves_the_tasks_to_its_children():
    _run(PREAMBLE + FORKS)


def _run(program: str) -> None:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
