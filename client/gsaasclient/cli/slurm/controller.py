# SPDX-License-Identifier: Apache-2.0
"""What runs beside slurmctld: the claims of a job that is about to start, and the release of leases that no job has.

A job's claims are made here and not on its nodes: when PrologSlurmctld fails, slurmctld requeues the job, but when the
Prolog of a node fails, it drains the node.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import SimpleNamespace

from gsaasclient import ApiError, Client, ClientError
from gsaasclient.cli import leases, queue
from gsaasclient.cli.paging import get_all
from gsaasclient.cli.slurm import jobs, scheduler, sightings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

NEVER = (
    "gsaas.capacity.impossible",
    "gsaas.bad-request",
    "gsaas.lease.end.too-late",
    "gsaas.remoting.kind",
    "gsaas.remoting.limit",
)
"""Refusals of requests that no later attempt can change: their job is cancelled, not requeued."""
ACTIVATION_TIMEOUT = 60.0
"""Seconds within which the hosts of a claimed lease have to confirm it."""
ENDING = 3600
"""Seconds that a job may take to end after its time limit: a lease that has to have an end lasts as much longer."""
GRACE = 600
"""Seconds for which a lease has to be without a job before `reconcile` releases it."""
STATE = "/var/lib/gsaas-slurm"
"""Where `reconcile` keeps since when leases are without a job."""


def prolog(client: Client, args: SimpleNamespace, environment: Mapping[str, str]) -> int:
    """Claim cGPUs on each node of the job; return 0 when its nodes' prologs will find them.

    Otherwise nothing stays claimed, and the reason is the job's AdminComment. Slurm then requeues a batch job, and
    cancels an interactive one. Raises `ClientError`.
    """
    job = jobs.job_of(environment)
    shown = scheduler.show(job.id)
    name = jobs.name_of(shown, job.id)
    try:
        cgpus = jobs.cgpus_of(environment)
    except jobs.JobError as error:
        _cancel(name, str(error))
    if cgpus is None:
        return 0
    nodes = scheduler.expand(environment["SLURM_JOB_NODELIST"])
    submitted = jobs.submitted(shown, job.id)
    claimed: list[str] = []
    try:
        for node in nodes:
            _claim(client, args, job, node, cgpus, submitted, claimed)
        # A job that was cancelled before the claim has had its epilog, which found nothing to release. A job that is
        # cancelled after this question will have its epilog later.
        if jobs.ends(scheduler.jobs(job.id), job.id):
            raise ClientError("it has ended before it got its cGPUs")
    except BaseException as error:
        _release(client, claimed)
        is_refused = isinstance(error, ApiError) and error.code in NEVER
        if is_refused or isinstance(error, jobs.EndlessJobError):
            _cancel(name, str(error))
        if isinstance(error, ClientError):
            scheduler.note(name, str(error))
        raise
    if job.restarts:  # an earlier attempt may have said why it failed
        scheduler.note(name, "its cGPUs are claimed")
    return 0


def reconcile(client: Client, args: SimpleNamespace, _environment: Mapping[str, str]) -> int:
    """Release the leases of this cluster whose job has not had their node for a while. It may run at any time.

    Nothing is released if Slurm does not answer, or for a user to whom it does not show all jobs. Raises `ClientError`.
    """
    config = scheduler.config()
    _check_user(config)
    cluster = jobs.cluster_of(config)
    # Leases first: one that is made after this question is not judged by an older answer of Slurm.
    found = get_all(client, "/v1/leases", "leases")["leases"]
    holders = jobs.holders(scheduler.jobs())
    named = {jobs.job_named(lease, cluster) for lease in found}
    nodes = {
        (job, uid): scheduler.expand(held) for job, (uid, held) in holders.items() if job in named
    }
    names = {lease["id"]: lease["name"] for lease in jobs.stale(found, cluster, nodes)}
    refused = []
    for lease_id in _without_job_for_long(args, names):
        try:
            leases.release(client, lease_id)
        except ApiError as error:  # of this lease: the others are released nevertheless
            refused.append(f"{lease_id}, {names[lease_id]}: {error}")
        else:
            print(f"released {lease_id}, {names[lease_id]}")
    if refused:
        raise ClientError(f"not released: {'; '.join(refused)}")
    return 0


def _without_job_for_long(args: SimpleNamespace, stale: Iterable[str]) -> list[str]:
    """Return those of the *stale* leases that were so in an earlier run, too, and since then. Raises `ClientError`."""
    grace = GRACE if args.grace is None else args.grace
    if grace <= 0:
        return list(stale)
    path, now = Path(args.state or STATE) / "sightings.json", time.time()
    since = sightings.update(sightings.read(path), stale, now)
    sightings.write(path, since)
    return sightings.due(since, grace, now)


def _check_user(config: str) -> None:
    """Raise `ClientError` unless Slurm shows all jobs to the user of this process."""
    name, uid = jobs.slurm_user_of(config)
    if os.geteuid() not in (0, uid):
        raise ClientError(
            f"reconcile runs as root or SlurmUser ({name}) only: Slurm may hide jobs from others, whose cGPUs would "
            "be released while they run"
        )


def _claim(
    client: Client,
    args: SimpleNamespace,
    job: jobs.Job,
    node: str,
    cgpus: dict[str, Any],
    submitted: str,
    claimed: list[str],
) -> None:
    """Claim *cgpus* for one node and wait until they can be used; add the lease's id to *claimed* as soon as it exists.

    The request is the same whenever it is made for this run of the job, so slurmctld may call its prolog again.
    Raises `ClientError`.
    """
    request: dict[str, Any] = {
        "name": job.lease_name(node),
        "cgpus": cgpus,
        "server": None,
        "consumer": {"host": node + (args.domain or ""), "uid": job.uid},
    }
    if args.wait is not None:
        request |= {"wait": args.wait, "attended": True}
    key = job.key(node, submitted)
    try:
        lease = client.launch(request, key)["lease"]
    except ApiError as error:
        if error.code != "gsaas.lease.end.missing":
            raise
        # Only then: a lease that has no end lasts as long as its job, also if the job's limit is raised.
        limit = jobs.time_limit(scheduler.time_limits(job.id), job.id)
        lease = client.launch(request | {"duration": limit + ENDING}, key)["lease"]
    claimed.append(lease["id"])
    if lease["status"] == "QUEUED":
        lease = queue.wait(client, lease)
    deadline = time.monotonic() + ACTIVATION_TIMEOUT
    lease = leases.wait_until(
        client, lease, lambda status: status != "CLAIMED" or time.monotonic() > deadline
    )
    if lease["status"] != "ACTIVE":
        fault = (lease.get("fault") or {}).get("message") or f"it is {lease['status']}"
        raise ClientError(f"lease {lease['id']} on {node} cannot be used: {fault}")


def _cancel(name: str, reason: str) -> NoReturn:
    """Cancel the job of that name, which can never run. Raises `ClientError`."""
    scheduler.note(name, reason)
    scheduler.cancel(name)
    raise ClientError(f"cancelled, because it can never run: {reason}")


def _release(client: Client, ids: list[str]) -> None:
    """Release leases as far as possible; `reconcile` finds the rest."""
    for lease_id in ids:
        try:
            leases.release(client, lease_id)
        except ClientError:
            continue
