# SPDX-License-Identifier: Apache-2.0
"""Slurm's own programs."""

from __future__ import annotations

import os
import subprocess

from gsaasclient import ClientError

TIMEOUT = 60
"""Seconds after which a program of Slurm is taken to have failed."""
CHOICES = ("SQUEUE_", "SLURM_CLUSTERS")
"""How variables begin that narrow what squeue lists, such as SQUEUE_PARTITION; jobs it omits would pass for ended."""


def ask(*command: str) -> str:
    """Run a program of Slurm and return what it prints. Raises `ClientError` if it fails."""
    own = {name: value for name, value in os.environ.items() if not name.startswith(CHOICES)}
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=TIMEOUT, check=False, env=own
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ClientError(f"{command[0]} cannot be asked: {error}") from None
    if done.returncode:
        raise ClientError(f"{command[0]} failed: {done.stderr.strip() or done.returncode}")
    return done.stdout


def show(job: str) -> str:
    """Return the lines of `scontrol show job`: for the first job of an array, and for a heterogeneous job, one for each
    of its jobs. Raises `ClientError`, also if Slurm has no such job.
    """
    return ask("scontrol", "--oneliner", "show", "job", job)


def jobs(*only: str) -> str:
    """Return `id|state|nodes` of all jobs, or of one, a line each; nodes are abbreviated. Raises `ClientError`.

    All are all that this user may see: with `PrivateData=jobs`, only root and SlurmUser see those of others.
    """
    chosen = [f"--jobs={job}" for job in only]
    # Without --all, squeue omits the jobs of hidden partitions.
    listing = ("--all", "--noheader", "--array", "--states=all", "--format=%A|%T|%N")
    return ask("squeue", *listing, *chosen)


def expand(nodes: str) -> list[str]:
    """Return the names of *nodes*, which Slurm abbreviates as n[0-3]."""
    return ask("scontrol", "show", "hostnames", nodes).split()


def config() -> str:
    """Return what `scontrol show config` prints. Raises `ClientError`."""
    return ask("scontrol", "show", "config")


def note(job: str, reason: str) -> None:
    """Show *reason* as the job's AdminComment, which `scontrol show job` prints. A failure has no effect."""
    try:
        ask("scontrol", "update", f"JobId={job}", f"AdminComment=gsaas: {reason}")
    except ClientError:
        return


def requeue(job: str) -> None:
    """Requeue a batch job. Raises `ClientError`, also for an interactive one."""
    ask("scontrol", "requeue", job)


def cancel(job: str) -> None:
    """Cancel a job. Raises `ClientError`."""
    ask("scancel", job)
