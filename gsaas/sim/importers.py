"""Histories from elsewhere: other formats in, `Demand`s out.

csv     our own (gsaas.sim.history)
swf     the Standard Workload Format of the Parallel Workloads Archive; a processor counts as a cGPU
openb   the tasks of Alibaba's GPU trace, a CSV as published
leases  what `gsaas list -all -status=RELEASED -f json` prints: a running GSaaS's own leases
"""

from __future__ import annotations

import csv
import datetime
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from gsaas.objects.gpu import EXCLUSIVE, SHARED
from gsaas.sim import history
from gsaas.sim.history import Demand, HistoryError

WHOLE_GPU_MB = 81_920
"""MiB of one GPU, for traces that tell shares of GPUs and no memory."""


def read(kind: str, path: Path, memory_mb: int = WHOLE_GPU_MB) -> list[Demand]:
    """Return the requests in a file of one of `FORMATS`, in the order of their arrival, the first at 0.

    *memory_mb* is what a whole GPU has, where the file tells shares only. Raises `HistoryError`.
    """
    try:
        demands = history.in_order(FORMATS[kind](path, memory_mb))
    except (OSError, UnicodeDecodeError) as error:
        raise HistoryError(f"{path} cannot be read: {error}") from error
    except (KeyError, TypeError, ValueError) as error:
        raise HistoryError(f"{path} is not what {kind} looks like: {error!r}") from error
    if not demands:
        raise HistoryError(f"{path} holds no request for a GPU")
    begin = demands[0].arrival
    return [
        Demand(
            one.id,
            one.arrival - begin,
            one.duration,
            one.count,
            one.mode,
            one.memory_mb,
            one.project,
        )
        for one in demands
    ]


def _csv(path: Path, _memory_mb: int) -> list[Demand]:
    return history.read(path)


def _swf(path: Path, _memory_mb: int) -> Iterator[Demand]:
    """Fields by number: 1 job, 2 submitted, 4 run time, 5 processors, 12 user; -1 is unknown, `;` begins a comment."""
    for line in path.read_text().splitlines():
        if not line.strip() or line.lstrip().startswith(";"):
            continue
        fields = line.split()
        number, submitted, duration, count = (float(fields[index]) for index in (0, 1, 3, 4))
        if duration > 0 and count > 0:
            yield Demand(int(number), submitted, duration, int(count), EXCLUSIVE, None, fields[11])


def _openb(path: Path, memory_mb: int) -> Iterator[Demand]:
    with path.open(newline="") as file:
        for number, row in enumerate(csv.DictReader(file)):
            count, milli = int(row["num_gpu"]), int(row["gpu_milli"])
            begin, end = float(row["creation_time"]), float(row["deletion_time"] or 0)
            if not count or end <= begin:
                continue
            shared = milli < 1000
            yield Demand(
                number,
                begin,
                end - begin,
                count,
                SHARED if shared else EXCLUSIVE,
                max(milli * memory_mb // 1000, 1) if shared else None,
                row.get("qos") or "",
            )


def _leases(path: Path, _memory_mb: int) -> Iterator[Demand]:
    listed = json.loads(path.read_text())
    rows = listed["leases"] if isinstance(listed, Mapping) else listed
    for number, lease in enumerate(rows):
        if lease["released_at"] is None:
            continue
        begin, end = _seconds(lease["created_at"]), _seconds(lease["released_at"])
        if end <= begin:
            continue
        cgpus: Mapping[str, Any] = lease["cgpus"]
        yield Demand(
            number,
            begin,
            end - begin,
            cgpus["count"],
            cgpus["mode"],
            cgpus["memory_mb"],
            lease["project_id"],
        )


def _seconds(text: str) -> float:
    return datetime.datetime.fromisoformat(text).timestamp()


FORMATS: Mapping[str, Callable[[Path, int], Any]] = {
    "csv": _csv,
    "swf": _swf,
    "openb": _openb,
    "leases": _leases,
}
