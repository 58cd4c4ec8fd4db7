# SPDX-License-Identifier: Apache-2.0
"""The bed's command line, as a test runs it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[2]


def bed(*words: str) -> str:
    """Run `python -m tests.openstack.bed` with *words*; return what it prints."""
    command = [sys.executable, "-m", "tests.openstack.bed", *words]
    done = subprocess.run(command, check=True, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    return done.stdout


@contextmanager
def lent() -> Iterator[None]:
    """The bed, up; if nothing of it ran before, it is down afterwards.

    Raises `subprocess.CalledProcessError` if it does not come up.
    """
    borrower = f"--for={os.getpid()}"
    try:
        bed("up", borrower)
        yield
    finally:
        bed("down", borrower)
