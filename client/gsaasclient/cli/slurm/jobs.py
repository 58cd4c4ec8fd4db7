# SPDX-License-Identifier: Apache-2.0
"""What Slurm says of its jobs, and the leases that follow from it. Pure: values in, values out.

A job has one lease on each of its nodes, because masked addresses, grants and native access belong to one host. The
lease's name says which run of which job it is for, and on which node. Every program finds it by that name, so no record
is kept beside GSaaS's own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from types import SimpleNamespace

from gsaasclient.cli import cgpus
from gsaasclient.cli.parser import one_of, whole_number
from gsaasclient.quantities import memory_mb

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Lease = dict[str, Any]

OPTIONS: dict[str, tuple[str, str, Callable[[str], Any]]] = {
    "ncgpus": ("SPANK_GSAAS_CGPUS", "--cgpus", whole_number),
    "poolmem": ("SPANK_GSAAS_POOLMEM", "--poolmem", memory_mb),
    "mode": ("SPANK_GSAAS_MODE", "--cgpu-mode", one_of("exclusive", "shared")),
    "kind": ("SPANK_GSAAS_KIND", "--cgpu-kind", one_of("cuda", "cpu")),
}
"""The options of `gsaas alloc` that a job can have: the variable that the plug-in sets, the job's option, its type."""
DEFAULTS = {"mode": None, "locality": "any", "hosts": "any"}
HOLDING = frozenset(
    ("CONFIGURING", "RUNNING", "SUSPENDED", "STOPPED", "SIGNALING", "STAGE_OUT", "RESIZING")
    + ("COMPLETING",)
)
"""The states in which a job has its nodes. A job that is COMPLETING has them until their epilogs have ended."""


_LIMIT = re.compile(r"(?:(?:(\d+)-)?(\d+):)?(\d+):(\d+)")


class JobError(Exception):
    """What Slurm says of the job is not usable. The message is one sentence."""


class EndlessJobError(JobError):
    """The job has no time limit, and its lease has to have an end."""


class Job:
    """One run of one job: its cluster, its id, how often it was requeued before, and its owner's uid."""

    def __init__(self, cluster: str, id: str, restarts: int, uid: int) -> None:
        self.cluster = cluster
        self.id = id
        self.restarts = restarts
        self.uid = uid

    def lease_name(self, node: str) -> str:
        """Return the name of the job's lease on *node*."""
        return f"{prefix(self.cluster)}{self.id}.{self.restarts}/{node}"

    @property
    def file_name(self) -> str:
        """Return the beginning of the names of the job's files on a node.

        The owner is part of it, because ids begin again when a controller loses its state: what a job has left is never
        the environment of another user's job.
        """
        return f"{self.id}.{self.uid}"

    def earlier_run(self) -> Job | None:
        """Return the run of the job before this one, if there was one."""
        if self.restarts == 0:
            return None
        return Job(self.cluster, self.id, self.restarts - 1, self.uid)

    def key(self, node: str, submitted: str) -> str:
        """Return the Idempotency-Key of that lease, the same whenever this run of the job is prepared.

        *submitted* is when the job was last put into Slurm's queue: ids begin again when a controller loses its state.
        """
        return f"slurm-{self.cluster}-{self.id}-{self.restarts}-{submitted}-{node}"


def prefix(cluster: str) -> str:
    """Return the beginning of the names of all leases of a cluster."""
    return f"slurm/{cluster}/"


def job_of(environment: Mapping[str, str]) -> Job:
    """Return the job that a prolog or epilog is called for. Raises `JobError` if Slurm did not call it."""
    names = ("SLURM_CLUSTER_NAME", "SLURM_JOB_ID", "SLURM_JOB_UID")
    missing = [name for name in names if not environment.get(name)]
    if missing:
        raise JobError(f"{' and '.join(missing)} not set: Slurm calls this program, for a job")
    return Job(
        environment["SLURM_CLUSTER_NAME"],
        environment["SLURM_JOB_ID"],
        int(environment.get("SLURM_JOB_RESTART_COUNT", "0")),
        int(environment["SLURM_JOB_UID"]),
    )


def cgpus_of(environment: Mapping[str, str]) -> dict[str, Any] | None:
    """Return the API's `cgpus` for the options of the job, for each of its nodes; None if it asked for none.

    Raises `JobError` for values that are not valid: a user can pass what the plug-in has not checked.
    """
    values: dict[str, Any] = dict.fromkeys(cgpus.FIELDS) | DEFAULTS | {"poolmem": None}
    if "SPANK_GSAAS_CGPUS" not in environment:
        return None
    for name, (variable, option, convert) in OPTIONS.items():
        if variable in environment:
            try:
                values[name] = convert(environment[variable])
            except ValueError as error:
                raise JobError(printable(f"{option} {error}")) from None
    values["mode"] = values["mode"] or ("exclusive" if values["poolmem"] is None else "shared")
    if (values["mode"] == "shared") != (values["poolmem"] is not None):
        raise JobError("--cgpu-mode=shared needs --poolmem, and --cgpu-mode=exclusive has none")
    return cgpus.from_options(SimpleNamespace(**values))


def printable(text: str) -> str:
    """Return *text* with escapes for what would end a line of a log, or cannot be written to it."""
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text)


def cluster_of(config: str) -> str:
    """Return the name of the cluster, from what `scontrol show config` prints. Raises `JobError`."""
    return _setting(config, "ClusterName")


def slurm_user_of(config: str) -> tuple[str, int]:
    """Return the name and the uid of SlurmUser, from what `scontrol show config` prints. Raises `JobError`."""
    name, _, rest = _setting(config, "SlurmUser").partition("(")
    uid = rest.rstrip(")")
    if not (name and uid.isdecimal()):
        raise JobError("scontrol show config does not say which user SlurmUser is")
    return name, int(uid)


def name_of(listed: str, job: str) -> str:
    """Return the name that means *job* alone, from lines of `squeue -o '%A|%i|%V'`: 17, or 16_3 of an array.

    One task of an array has the id of the array, and Slurm takes that id for all of its tasks.
    """
    names = [name for id, name, _ in _rows(listed, 3) if id == job]
    # The parts of a heterogeneous job, 16+1, are requeued and cancelled together, by their ids.
    return names[0] if names and "+" not in names[0] else job


def submitted(listed: str, job: str) -> str:
    """Return when *job* was submitted, from the same lines; empty if unknown. Raises `JobError`."""
    return next((time for id, _, time in _rows(listed, 3) if id == job), "")


def time_limit(listed: str, job: str) -> int:
    """Return the seconds that *job* may run, from lines of `squeue -o '%A|%l'`, such as `17|1-12:00:00`.

    Raises `EndlessJobError` for a job without a limit.
    """
    for id, limit in _rows(listed, 2):
        if id == job and (match := _LIMIT.fullmatch(limit)):
            days, hours, minutes, seconds = (int(number or 0) for number in match.groups())
            return ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    raise EndlessJobError(
        "leases have to end here, and the job has no time limit: submit it with --time"
    )


def holders(listed: str) -> dict[str, tuple[int, str]]:
    """Return the owner's uid and the nodes, as Slurm abbreviates them, of each job that has nodes.

    *listed* are lines of `squeue -o '%A|%T|%U|%N'`. Raises `JobError` for any other line: then nothing is known.
    """
    return {
        job: (int(uid), nodes)
        for job, state, uid, nodes in _rows(listed, 4)
        if state in HOLDING and nodes
    }


def ends(listed: str, job: str) -> bool:
    """Return whether *job* has ended or is ending, from the same lines. Raises `JobError`."""
    states = {job: state for job, state, _, _ in _rows(listed, 4)}
    return states.get(job) not in HOLDING - {"COMPLETING"}


def stale(
    leases: Iterable[Lease], cluster: str, nodes: Mapping[tuple[str, int], Collection[str]]
) -> list[Lease]:
    """Return those leases of a cluster's jobs that no job has any more.

    *nodes* are the names of the nodes that each job has now, by its id and its owner's uid: ids begin again when a
    controller loses its state. A lease is stale if its job does not have its node, or has a later lease there.
    """
    runs: dict[tuple[str, int, str], list[tuple[int, Lease]]] = {}
    for lease in leases:
        run = _run(lease, cluster)
        if run is not None and lease["status"] not in ("RELEASING", "RELEASED"):
            job, restarts, node = run
            runs.setdefault((job, _owner(lease), node), []).append((restarts, lease))
    found = []
    for (job, owner, node), of_job in runs.items():
        of_job.sort(key=lambda run: (run[0], run[1]["created_at"]))
        held = 1 if node in nodes.get((job, owner), ()) else 0
        found += [lease for _, lease in of_job[: len(of_job) - held]]
    return found


def lease_of(leases: Iterable[Lease], job: Job) -> Lease | None:
    """Return the lease that *job* may use, of those with its name; None if there is none.

    There are several when Slurm has forgotten a job and given its id to this one; its own is the last.
    """
    usable = [lease for lease in leases if lease["status"] == "ACTIVE"]
    own = [lease for lease in usable if _owner(lease) == job.uid]
    return max(own, key=lambda lease: str(lease["created_at"]), default=None)


def _owner(lease: Lease) -> int:
    """Return the uid of the user whose job a lease is for; -1 for a lease that no job has claimed."""
    uid = (lease.get("consumer") or {}).get("uid")
    return -1 if uid is None else int(uid)


def job_named(lease: Lease, cluster: str) -> str | None:
    """Return the id of the job that is in a lease's name; None for a name that is not a job's."""
    run = _run(lease, cluster)
    return run and run[0]


def _run(lease: Lease, cluster: str) -> tuple[str, int, str] | None:
    """Return the job, the run and the node that are in a lease's name; None for a name that is not a job's."""
    name = lease.get("name") or ""
    run, slash, node = name.removeprefix(prefix(cluster)).partition("/")
    job, _, restarts = run.partition(".")
    if not (
        name.startswith(prefix(cluster)) and slash and job.isdecimal() and restarts.isdecimal()
    ):
        return None
    return job, int(restarts), node


def _setting(config: str, wanted: str) -> str:
    for line in config.splitlines():
        name, equals, value = line.partition("=")
        if equals and name.strip() == wanted:
            return value.strip()
    raise JobError(f"scontrol show config does not print {wanted}")


def _rows(listed: str, columns: int) -> list[list[str]]:
    """Return what squeue has *listed* as rows; the first of their *columns* is a job's id. Raises `JobError`."""
    rows = [line.split("|") for line in listed.splitlines()]
    for row in rows:
        if len(row) != columns or not row[0].isdecimal():
            raise JobError(f"squeue printed an unexpected line: {'|'.join(row)!r}")
    return rows
