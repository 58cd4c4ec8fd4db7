# SPDX-License-Identifier: Apache-2.0
"""The system log, because Slurm does not show what its prologs print."""

from __future__ import annotations

import os
import syslog


def log(program: str, sentence: str) -> None:
    """Write a warning to the system log."""
    job = os.environ.get("SLURM_JOB_ID")
    about = f"job {job}: " if job else ""
    syslog.openlog("gsaas-slurm", 0, syslog.LOG_DAEMON)
    syslog.syslog(syslog.LOG_WARNING, f"{program}: {about}{sentence}")
