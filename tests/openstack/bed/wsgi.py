# SPDX-License-Identifier: Apache-2.0
"""The web services of OpenStack under uWSGI, one process tree each."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tests.openstack.bed import rest, venv
from tests.openstack.bed.processes import Daemon
from tests.openstack.bed.settings import ADDRESS, VENV


def daemon(
    name: str,
    port: int,
    application: str,
    *,
    environment: Mapping[str, str],
    reads: tuple[Path, ...],
    workers: int = 1,
    threads: int = 8,
    virtualenv: Path = VENV,
) -> Daemon:
    """The WSGI *application* (`module:variable`) of *virtualenv* on the bed's address."""
    return Daemon(
        name=name,
        command=(
            venv.program("uwsgi"),
            f"--http-socket={ADDRESS}:{port}",
            f"--module={application}",
            f"--virtualenv={virtualenv}",
            f"--processes={workers}",
            f"--threads={threads}",
            "--master",
            # Processes of one service share what its first one has loaded.
            *(("--lazy-apps",) if workers == 1 else ()),
            "--need-app",
            "--die-on-term",
            "--enable-threads",
            "--thunder-lock",
            "--buffer-size=65535",
            # On a busy machine a thread may not come to read a request within uWSGI's 4 s, which then drops it.
            "--socket-timeout=120",
            # Nova sends snapshots to Glance in chunks of 1 MiB, just above what uWSGI takes by default.
            f"--chunked-input-limit={4 * 2**20}",
            # uWSGI closes connections that clients would keep; unannounced, that is an error to them.
            "--add-header=Connection: close",
            "--disable-logging",
        ),
        environment=environment,
        reads=reads,
        ports=(port,),
        ready=lambda: rest.answers(port),
    )
