# SPDX-License-Identifier: Apache-2.0
"""What runs on a job's nodes: its environment is fetched before its first task, and its lease released after the last.

Neither program fails because GSaaS is away, for Slurm would drain the node. A job whose environment cannot be fetched
is requeued, and its tasks do not start without it: the plug-in sees to that. `reconcile` releases what an epilog could
not. The scripts that call them end them after 60 s, first with SIGTERM.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import TypeVar

from gsaasclient import ApiError, Client, ClientError, UnreachableError, grant_client
from gsaasclient.cli import alloc, leases
from gsaasclient.cli.output import print_error
from gsaasclient.cli.slurm import jobs, scheduler
from gsaasclient.cli.slurm.log import log

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

T = TypeVar("T")

FOLDER = "/run/gsaas/slurm"
"""Where the plug-in looks for the environment of a job."""
OUTAGE_TIMEOUT = 30.0
"""Seconds for which a program waits for an API that is away, for all of its requests together."""
RETRY_DELAY = 1.0
GRACE = 600
"""Seconds after which `epilog` looks whether an environment is still of use."""


def prolog(client: Client, args: SimpleNamespace, environment: Mapping[str, str]) -> int:
    """Write the environment of the job's lease on this node to a file that only root can read; return 0."""
    job, node = jobs.job_of(environment), environment["SLURMD_NODENAME"]
    path = _path(args, job, node)
    patiently = _Patience()
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _check_owner(path.parent)
        path.unlink(missing_ok=True)
        lease = jobs.lease_of(patiently(lambda: _find(client, job, node)), job)
        if lease is None:
            raise ClientError(f"there is no lease {job.lease_name(node)}")
        _write(path, patiently(lambda: alloc.usable_environment(client, lease, None, None)))
    except (ClientError, OSError, KeyboardInterrupt) as error:
        log("prolog", str(error))
        print_error(str(error))
        _requeue(job)
    return 0


def epilog(client: Client, args: SimpleNamespace, environment: Mapping[str, str]) -> int:
    """Release the job's lease on this node and remove its environment, and what others have left; return 0."""
    job, node = jobs.job_of(environment), environment["SLURMD_NODENAME"]
    path = _path(args, job, node)
    patiently = _Patience()
    try:
        for lease_id in _lease_in(path) or patiently(lambda: _leases_of(client, job, node)):
            patiently(partial(leases.release, client, lease_id))
    except (ClientError, KeyboardInterrupt) as error:
        log("epilog", f"its cGPUs are released later, by gsaas slurm reconcile: {error}")
        print_error(str(error))
    path.unlink(missing_ok=True)
    _remove_left(client, path.parent, node, GRACE if args.grace is None else args.grace)
    return 0


def _remove_left(client: Client, folder: Path, node: str, grace: int) -> None:
    """Remove the environments on this node whose leases have ended.

    They are those of jobs whose epilog was killed, or was never called: slurmctld may forget a job when it is killed.
    The controller's `reconcile` has released their leases. A file is looked at when it is *grace* seconds old, and
    again when as much time has passed.
    """
    now = time.time()
    try:
        for path in folder.glob(f"*.{node}"):
            with suppress(FileNotFoundError):  # another epilog has removed it
                if now - path.stat().st_mtime < grace:
                    continue
                if any(_lasts(client, lease_id) for lease_id in _lease_in(path)):
                    os.utime(path, (now, now))
                else:
                    path.unlink()
    except (ClientError, KeyboardInterrupt) as error:
        log("epilog", f"the environments of ended jobs stay in {folder} until later: {error}")


def _check_owner(folder: Path) -> None:
    """Raise `ClientError` if users other than this one can write to *folder*: they could choose what a task finds."""
    found = folder.stat()
    if found.st_uid != os.geteuid() or found.st_mode & 0o022:
        raise ClientError(f"{folder} must belong to root, and only root may be able to write to it")


def _lasts(client: Client, lease_id: str) -> bool:
    """Return whether a lease has not ended. Raises `ClientError`."""
    try:
        lease = client.request("GET", f"/v1/leases/{lease_id}")["lease"]
    except ApiError as error:
        its_own_answer = error.code is not None  # and not that of a proxy before it
        if error.status == 404 and its_own_answer:
            return False
        raise
    return lease["status"] not in ("RELEASING", "RELEASED")


def _requeue(job: jobs.Job) -> None:
    """Have Slurm start a batch job again later. An interactive job stays, and its tasks do not start."""
    try:
        scheduler.requeue(jobs.name_of(scheduler.show(job.id), job.id))
    except (ClientError, jobs.JobError) as error:
        log("prolog", str(error))


def _lease_in(path: Path) -> list[str]:
    """Return the id of the lease whose environment the prolog has written; nothing if it has not."""
    try:
        lines = path.read_text().split("\0")
    except FileNotFoundError:
        return []
    variables = dict(line.partition("=")[::2] for line in lines)
    return [variables[grant_client.LEASE]] if grant_client.LEASE in variables else []


def _leases_of(client: Client, job: jobs.Job, node: str) -> list[str]:
    """Return the ids of the leases that the run of the job which has just ended may have on this node."""
    # The epilog of a run after which the job is requeued is told how often it will have been requeued then.
    runs = [job, job.earlier_run()]
    return [lease["id"] for run in runs if run for lease in _find(client, run, node)]


def _path(args: SimpleNamespace, job: jobs.Job, node: str) -> Path:
    return Path(args.folder or FOLDER, f"{job.file_name}.{node}")


def _find(client: Client, job: jobs.Job, node: str) -> list[dict[str, Any]]:
    """Return the leases of this run of the job on this node that are not RELEASED."""
    from urllib.parse import urlencode

    query = urlencode({"name": job.lease_name(node)})
    found: list[dict[str, Any]] = client.request("GET", f"/v1/leases?{query}")["leases"]
    return found


class _Patience:
    """Repeats calls while the API is away, until `OUTAGE_TIMEOUT` has passed since this was made."""

    def __init__(self) -> None:
        self._deadline = time.monotonic() + OUTAGE_TIMEOUT

    def __call__(self, call: Callable[[], T]) -> T:
        """Return what *call* returns, and call it again while the API is away. Raises `ClientError`."""
        while True:
            try:
                return call()
            except ClientError as error:
                away = isinstance(error, UnreachableError) or (
                    isinstance(error, ApiError) and error.status in (502, 503, 504)
                )
                if not away or time.monotonic() > self._deadline:
                    raise
            time.sleep(RETRY_DELAY)


def _write(path: Path, variables: Mapping[str, str]) -> None:
    """Write NAME=VALUE for each variable, each ended by a zero byte. A reader sees all of them or no file."""
    made = path.with_name(f".{path.name}")
    made.unlink(missing_ok=True)
    descriptor = os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.writelines(f"{name}={value}\0".encode() for name, value in variables.items())
        made.replace(path)
    except OSError:  # such as a full disk
        made.unlink()
        raise
