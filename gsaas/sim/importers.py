# SPDX-License-Identifier: Apache-2.0
"""Import of histories from other formats: each importer returns `Demand`s.

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
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from gsaas.objects.gpu import EXCLUSIVE, SHARED
from gsaas.objects.request import ANY
from gsaas.sim import history
from gsaas.sim.history import Demand, HistoryError

WHOLE_GPU_MB = 81_920
"""MiB of one GPU, for traces that give shares of a GPU and no memory."""


def read(format_name: str, path: Path, memory_mb: int = WHOLE_GPU_MB) -> list[Demand]:
    """Return the requests in a file of one of `FORMATS`, sorted by arrival; the first arrives at 0.

    *memory_mb* is the MiB of a whole GPU, for formats that give shares of a GPU only. Raises `HistoryError` if the file
    cannot be read, is of another format, or contains no request for a GPU.
    """
    return _imported(lambda: FORMATS[format_name](path, memory_mb), str(path), format_name)


def from_leases(leases: Iterable[Mapping[str, Any]], source: str) -> list[Demand]:
    """Return the requests that *leases*, as the API lists them, were for; otherwise as `read`.

    *source* is where they come from, for messages.
    """
    return _imported(lambda: _demands_of(leases, source), source, "leases")


def _imported(
    demands_of: Callable[[], Iterable[Demand]], source: str, format_name: str
) -> list[Demand]:
    """Return the requests of *source*, sorted by arrival; the first arrives at 0. Raises `HistoryError`."""
    try:
        demands = history.sort_by_arrival(demands_of())
    except (OSError, UnicodeDecodeError) as error:
        raise HistoryError(f"{source} cannot be read: {error}") from error
    except KeyError as error:
        raise HistoryError(
            f"{source} is not in the format {format_name}: it has no {error.args[0]}"
        ) from error
    except (AttributeError, TypeError, ValueError) as error:
        raise HistoryError(f"{source} is not in the format {format_name}: {error}") from error
    if not demands:
        raise HistoryError(f"{source} contains no request for a GPU")
    for demand in demands:
        history.check(demand, f"{source}, request {demand.id + 1}")
    begin = demands[0].arrival
    return [replace(demand, arrival=demand.arrival - begin) for demand in demands]


def _csv(path: Path, _memory_mb: int) -> list[Demand]:
    return history.read(path)


def _swf(path: Path, _memory_mb: int) -> Iterator[Demand]:
    """The fields are, by number: 1 job, 2 submit time, 4 run time, 5 processors, 12 user; -1 means unknown.

    A line that begins with `;` is a comment. See https://www.cs.huji.ac.il/labs/parallel/workload/swf.html.
    """
    for number, line in enumerate(path.read_text("utf-8-sig").splitlines(), 1):
        if not line.strip() or line.lstrip().startswith(";"):
            continue
        fields = line.split()
        where = f"{path} is not in the format swf: line {number}"
        if len(fields) < 12:
            raise HistoryError(f"{where} has {len(fields)} columns and not at least 12")
        submitted, duration = (
            history.seconds(fields[index], f"{where}, column {index + 1}") for index in (1, 3)
        )
        count = history.whole_number(fields[4], f"{where}, column 5")
        if duration > 0 and count > 0:
            yield Demand(number, submitted, duration, count, EXCLUSIVE, None, fields[11])


def _openb(path: Path, memory_mb: int) -> Iterator[Demand]:
    """A task arrives when it is created and has its GPUs from when it is scheduled until it is deleted.

    A task that allows one model asks for it. No request of GSaaS can say that any of several models will do: such a
    task asks for none.
    """
    with path.open(newline="", encoding="utf-8-sig") as file:
        reader = csv.DictReader(file)
        for row in reader:
            number = reader.line_num
            where = f"{path} is not in the format openb: line {number}, column"
            count, milli = (
                history.whole_number(row[name], f"{where} {name}")
                for name in ("num_gpu", "gpu_milli")
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
            if not count or end <= begin:  # tasks without a GPU, and tasks that never ended
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


def _leases(path: Path, _memory_mb: int) -> Iterator[Demand]:
    listed = json.loads(path.read_text("utf-8-sig"))
    found = listed["leases"] if isinstance(listed, Mapping) else listed
    return _demands_of(found, str(path))


def _demands_of(leases: Iterable[Mapping[str, Any]], source: str) -> Iterator[Demand]:
    """A lease arrives when it is created, and has its GPUs once it has waited in the queue until it is released."""
    for number, lease in enumerate(leases, 1):
        where = f"{source} is not in the format leases: lease {number}"
        if not isinstance(lease, Mapping):
            raise HistoryError(f"{where} is no object")
        if lease["released_at"] is None:  # it has not ended, so its duration is unknown
            continue
        arrival, end = (
            _timestamp(lease[name], f"{where}, {name}") for name in ("created_at", "released_at")
        )
        waited = (lease.get("timings") or {}).get("queue")
        if lease.get("queued_at") is not None and waited is None:  # it left the queue without GPUs
            continue
        duration = end - arrival - history.seconds(waited or 0.0, f"{where}, timings.queue")
        if duration <= 0:
            continue
        cgpus: Mapping[str, Any] = lease["cgpus"]
        consumer = lease.get("consumer") or {}
        memory = cgpus["memory_mb"]
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


FORMATS: Mapping[str, Callable[[Path, int], Iterable[Demand]]] = {
    "csv": _csv,
    "swf": _swf,
    "openb": _openb,
    "leases": _leases,
}
