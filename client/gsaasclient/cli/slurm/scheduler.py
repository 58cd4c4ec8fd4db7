# SPDX-License-Identifier: Apache-2.0
"""Slurm's own programs."""

from __future__ import annotations

import os
import subprocess

from gsaasclient import ClientError

TIMEOUT = 60
"""Seconds after which a program of Slurm is taken to have failed."""
CHOICES = ("SQUEUE_", "SLURM_CLUSTERS", "SLURM_TIME_FORMAT")
"""How variables begin that narrow what squeue lists, such as SQUEUE_PARTITION, or change how it writes times; jobs it
omits would pass for ended."""


def ask(*command: str) -> str:
    """Run a program of Slurm and return what it prints. Raises `ClientError` if it fails."""
    own = {name: value for name, value in os.environ.items() if not name.startswith(CHOICES)}
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=TIMEOUT, check=False, env=own
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ClientError(f"{command[0]} cannot be run: {error}") from None
    if done.returncode:
        raise ClientError(f"{command[0]} failed: {done.stderr.strip() or done.returncode}")
    return done.stdout


def jobs(*only: str) -> str:
    """Return `id|state|uid|nodes` of all jobs, or of one, a line each; nodes are abbreviated. Raises `ClientError`.

    All are all that this user may see: with `PrivateData=jobs`, only root and SlurmUser see those of others.
    """
    return _squeue("%A|%T|%U|%N", *only)


def show(job: str) -> str:
    """Return `id|name|time of submission` of a job, and of the other jobs of its array. Raises `ClientError`."""
    return _squeue("%A|%i|%V", job)


def time_limits(job: str) -> str:
    """Return `id|time limit` of a job, and of the other jobs of its array. Raises `ClientError`."""
    return _squeue("%A|%l", job)


def _squeue(columns: str, *only: str) -> str:
    """Return these columns of all jobs, or of one. None may be the users' own text, such as the name or the comment of
    a job, which can have anything in it.
    """
    chosen = [f"--jobs={job}" for job in only]
    # Without --all, squeue omits the jobs of hidden partitions.
    listing = ("--all", "--noheader", "--array", "--states=all", f"--format={columns}")
    return ask("squeue", *listing, *chosen)


def expand(nodes: str) -> list[str]:
    """Return the names of *nodes*, which Slurm abbreviates as n[0-3]."""
    return ask("scontrol", "show", "hostnames", nodes).split()


def config() -> str:
    """Return what `scontrol show config` prints. Raises `ClientError`."""
    return ask("scontrol", "show", "config")


def note(job: str, reason: str) -> None:
    """Show *reason* as the AdminComment of the job of that name, which `scontrol show job` prints. A failure has no
    effect.
    """
    try:
        ask("scontrol", "update", f"JobId={job}", f"AdminComment=gsaas: {reason}")
    except ClientError:
        return


def requeue(job: str) -> None:
    """Requeue the batch job of that name. Raises `ClientError`, also for an interactive one."""
    ask("scontrol", "requeue", job)


def cancel(job: str) -> None:
    """Cancel the job of that name. Raises `ClientError`."""
    ask("scancel", job)
