# SPDX-License-Identifier: Apache-2.0
"""Run a program to its end, and say what it said when it fails."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

from tests.openstack.bed import settings
from tests.openstack.bed.errors import BedError

TAIL = 30


def run(
    *command: str | Path,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    text: str | None = None,
    patience: float = 900,
) -> str:
    """Return the standard output of *command*; raise `BedError` if it fails.

    *text* is its standard input, *patience* the seconds it may take. It runs with *env*, or with
    the environment of the cloud's own programs.
    """
    words = [str(word) for word in command]
    try:
        done = subprocess.run(
            words,
            env=dict(settings.environment() if env is None else env),
            cwd=cwd,
            input=text if text is not None else "",
            capture_output=True,
            text=True,
            errors="replace",
            timeout=patience,
        )
    except FileNotFoundError:
        raise BedError(f"{words[0]} is not installed") from None
    except subprocess.TimeoutExpired:
        raise BedError(f"`{' '.join(words)}` did not end within {patience:.0f} s") from None
    if done.returncode:
        said = "\n".join((done.stdout + done.stderr).splitlines()[-TAIL:])
        raise BedError(f"`{' '.join(words)}` ended with {done.returncode}:\n{said}")
    return done.stdout


def succeeds(*command: str | Path) -> bool:
    """Whether *command* ends with 0."""
    try:
        run(*command, patience=60)
    except BedError:
        return False
    return True
