"""The bed's command line, as a test runs it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def bed(*words: str) -> str:
    """Run `python -m tests.openstack.bed` with *words*; return what it prints."""
    command = [sys.executable, "-m", "tests.openstack.bed", *words]
    done = subprocess.run(command, check=True, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    return done.stdout
