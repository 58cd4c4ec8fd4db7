# SPDX-License-Identifier: Apache-2.0
"""Import of histories from other formats: each importer returns `Demand`s, and counts the rows that it leaves out.

csv     the simulator's own format (gsaas.sim.history)
swf     the Standard Workload Format of the Parallel Workloads Archive; each processor counts as one cGPU
openb   the tasks of Alibaba's cluster-trace-gpu-v2023, a CSV file as published
leases  the leases of a running GSaaS, as printed by `gsaas list -all -status=RELEASED -f json`; `from_leases` takes
        them as the API lists them
"""

from __future__ import annotations

import csv
import datetime
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from gsaas.objects.device_kinds import CUDA
from gsaas.objects.gpu import EXCLUSIVE, SHARED
from gsaas.objects.request import ANY
from gsaas.sim import history
from gsaas.sim.history import Demand, HistoryError

WHOLE_GPU_MB = 81_920
"""MiB of one GPU, for traces that give shares of a GPU and no memory."""


class Imported(NamedTuple):
    """The requests of a file, sorted by arrival, the first at 0, and how many rows were left out, by reason."""

    demands: list[Demand]
    left_out: Counter[str]

    def what_is_missing(self) -> str:
        """Return how many rows were left out, and why; nothing if none was."""
        if not self.left_out:
            return ""
        count = self.left_out.total()
        reasons = "; ".join(f"{reason}: {number:,}" for reason, number in self.left_out.items())
        return f"{count:,} of {count + len(self.demands):,} rows are left out ({reasons})"


def read(format_name: str, path: Path, memory_mb: int = WHOLE_GPU_MB) -> Imported:
    """Return the requests in a file of one of `FORMATS`.

    *memory_mb* is the MiB of a whole GPU, for formats that give shares of a GPU only. Raises `HistoryError` if the file
    cannot be read, is of another format, or contains no request for a GPU.
    """
    left_out = Counter[str]()
    return _imported(
        FORMATS[format_name](path, memory_mb, left_out), left_out, str(path), format_name
    )


def from_leases(leases: Iterable[Mapping[str, Any]], source: str) -> Imported:
    """Return the requests that *leases*, as the API lists them, were for; otherwise as `read`.

    *source* is where they come from, for messages.
    """
    left_out = Counter[str]()
    return _imported(_demands_of(leases, source, left_out), left_out, source, "leases")


def _imported(
    demands: Iterable[Demand], left_out: Counter[str], source: str, format_name: str
) -> Imported:
    """Return the requests of *source*, whose ids are their lines, or their places among the leases."""
    row = "lease" if format_name == "leases" else "line"
    found = []
    try:
        for demand in demands:
            history.check(demand, f"{source}, {row} {demand.id}")
            found.append(demand)
    except KeyError as error:
        raise HistoryError(
            f"{source} is not in the format {format_name}: it has no {error.args[0]}"
        ) from error
    except (AttributeError, TypeError, ValueError, csv.Error) as error:
        raise HistoryError(f"{source} is not in the format {format_name}: {error}") from error
    if not found:
        missing = Imported([], left_out).what_is_missing()
        raise HistoryError(f"{source} contains no request for a GPU" + (missing and f": {missing}"))
    begin = min(demand.arrival for demand in found)
    moved = (replace(demand, arrival=demand.arrival - begin) for demand in found)
    return Imported(history.sort_by_arrival(moved), left_out)


def _csv(path: Path, _memory_mb: int, _left_out: Counter[str]) -> list[Demand]:
    return history.read(path)


PARTIAL = (2, 3, 4)
"""Status of a part of a checkpointed job: it is to be continued, it was the last and completed, or failed."""


def _swf(path: Path, _memory_mb: int, left_out: Counter[str]) -> Iterator[Demand]:
    """The fields are, by number: 1 job, 2 submit time, 4 run time, 5 processors that it got, 8 those that it asked for,
    11 status, 12 user; -1 means unknown.

    A job that was checkpointed has a line for the whole of it, and one for each of its parts. A line that begins with
    `;` is a comment. See https://www.cs.huji.ac.il/labs/parallel/workload/swf.html.
    """
    rows = []
    for number, line in enumerate(history.lines(path), 1):
        if not line.strip() or line.lstrip().startswith(";"):
            continue
        fields = line.split()
        where = f"{path} is not in the format swf: line {number}"
        if len(fields) < 12:
            raise HistoryError(f"{where} has {len(fields)} columns and not at least 12")
        submitted, duration = (
            history.seconds(fields[index], f"{where}, column {index + 1}") for index in (1, 3)
        )
        count, wanted, status = (
            history.whole_number(fields[index], f"{where}, column {index + 1}")
            for index in (4, 7, 10)
        )
        job, user = (fields[index].removesuffix(".0") for index in (0, 11))  # of any size, or text
        project = "" if user == "-1" else user
        count = wanted if count == -1 else count
        demand = Demand(number, submitted, duration, count, EXCLUSIVE, None, project)
        rows.append((job, status, demand))
    whole = {job for job, status, demand in rows if status not in PARTIAL and demand.duration > 0}
    for job, status, demand in rows:
        if status in PARTIAL and job in whole:
            left_out["parts of a checkpointed job, which counts as a whole"] += 1
        elif demand.duration <= 0:
            left_out["no run time"] += 1
        elif demand.count <= 0:
            left_out["no number of processors"] += 1
        else:
            yield demand


def _openb(path: Path, memory_mb: int, left_out: Counter[str]) -> Iterator[Demand]:
    """A task arrives when it is created and has its GPUs from when it is scheduled until it is deleted.

    A task that allows one model asks for it. No request of GSaaS can say that any of several models will do: such a
    task asks for none.
    """
    reader = csv.DictReader(history.utf8_lines(path))
    for row in reader:
        number = reader.line_num
        where = f"{path} is not in the format openb: line {number}, column"
        count, milli = (
            history.whole_number(row[name], f"{where} {name}") for name in ("num_gpu", "gpu_milli")
        )
        arrival, end, begin = (
            history.seconds(row.get(name) or instead, f"{where} {name}")
            for name, instead in (
                ("creation_time", None),
                ("deletion_time", 0),
                ("scheduled_time", row["creation_time"]),
            )
        )
        models = {model for model in (row.get("gpu_spec") or "").split("|") if model}
        if not count:
            left_out["no GPU"] += 1
            continue
        if end <= begin:
            left_out["it never ended, or at once"] += 1
            continue
        shared = milli < 1000
        yield Demand(
            number,
            arrival,
            end - begin,
            count,
            SHARED if shared else EXCLUSIVE,
            max(milli * memory_mb // 1000, 1) if shared else None,
            row.get("qos") or "",
            model=models.pop() if len(models) == 1 else "",
        )


def _leases(path: Path, _memory_mb: int, left_out: Counter[str]) -> Iterator[Demand]:
    listed = json.loads("".join(history.utf8_lines(path)))
    found = listed["leases"] if isinstance(listed, Mapping) else listed
    yield from _demands_of(found, str(path), left_out)


def _demands_of(
    leases: Iterable[Mapping[str, Any]], source: str, left_out: Counter[str]
) -> Iterator[Demand]:
    """A lease arrives when it is created, and has its GPUs once it has waited in the queue until it is released."""
    for number, lease in enumerate(leases, 1):
        where = f"{source} is not in the format leases: lease {number}"
        if not isinstance(lease, Mapping):
            raise HistoryError(f"{where} is no object")
        if lease["released_at"] is None:
            left_out["it has not ended"] += 1
            continue
        arrival, end = (
            _timestamp(lease[name], f"{where}, {name}") for name in ("created_at", "released_at")
        )
        waited = (lease.get("timings") or {}).get("queue")
        if lease.get("queued_at") is not None and waited is None:
            left_out["it left the queue without GPUs"] += 1
            continue
        duration = end - arrival - history.seconds(waited or 0.0, f"{where}, timings.queue")
        if duration <= 0:
            left_out["it ended at once"] += 1
            continue
        cgpus: Mapping[str, Any] = lease["cgpus"]
        consumer = lease.get("consumer") or {}
        memory = cgpus["memory_mb"]
        if cgpus.get("kind", CUDA) != CUDA:  # a simulated cloud has GPUs only
            left_out["its devices are no GPUs"] += 1
            continue
        requirements = {
            "model": cgpus.get("gpu_model"),
            "capability": cgpus.get("compute_capability"),
            "locality": _unless_any(cgpus.get("locality")),
            "hosts": _unless_any(cgpus.get("hosts")),
            "host": cgpus.get("host"),
            "consumer_host": consumer.get("host"),
        }
        yield Demand(
            number,
            arrival,
            duration,
            history.whole_number(cgpus["count"], f"{where}, cgpus.count"),
            cgpus["mode"],
            None if memory is None else history.whole_number(memory, f"{where}, cgpus.memory_mb"),
            str(lease["project_id"]),
            **{name: str(value or "") for name, value in requirements.items()},
        )


def _unless_any(value: str | None) -> str:
    """Return what a lease requires, as a history has it: nothing if anything will do."""
    return "" if value in (None, ANY) else value


def _timestamp(text: Any, where: str) -> float:
    """Return the seconds since 1970 of a time in ISO 8601. Raises `HistoryError`, which begins with *where*."""
    try:
        return datetime.datetime.fromisoformat(text).timestamp()
    except (TypeError, ValueError, OverflowError):
        raise HistoryError(f"{where}: {text!r} is not a time") from None


FORMATS: Mapping[str, Callable[[Path, int, Counter[str]], Iterable[Demand]]] = {
    "csv": _csv,
    "swf": _swf,
    "openb": _openb,
    "leases": _leases,
}
