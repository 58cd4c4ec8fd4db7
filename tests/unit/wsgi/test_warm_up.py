"""Workers are made ready before their first request, and only workers are."""

from __future__ import annotations

import subprocess
import sys

IN_A_PROCESS = """
import os, threading
from gsaas.wsgi import warm_up

def fail():
    raise RuntimeError("Nova does not answer")

ready = threading.Event()
"""
"""A process of its own, as what it asks of its children cannot be taken back."""
STAYS = """
warm_up.later([fail, ready.set], moment=0)
assert ready.wait(60)
"""
FORKS = """
warm_up.later([ready.set], moment=3600)
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


def test_a_process_that_does_not_fork_gets_ready_whatever_fails():
    _run(IN_A_PROCESS + STAYS)


def test_a_process_that_forks_leaves_it_to_its_children():
    _run(IN_A_PROCESS + FORKS)


def _run(program: str) -> None:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
