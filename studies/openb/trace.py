# SPDX-License-Identifier: Apache-2.0
"""The trace: nodes, tasks, and the results that its authors published."""

from __future__ import annotations

import csv
import gzip
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import resources

WORKLOADS = ("default", "gpushare40", "multigpu20")
"""The trace, and two samples of it by its authors: with more tasks that share a GPU, and with more multi-GPU tasks."""

WHOLE = 1000
"""The thousandths of one GPU."""


@dataclass(frozen=True, slots=True)
class OpenbNode:
    """One machine. *cpu* is in thousandths of a core, *memory* in MiB, *gpus* a number of GPUs."""

    name: str
    cpu: int
    memory: int
    gpus: int
    model: str


@dataclass(frozen=True, slots=True)
class Task:
    """The request of one task: CPU and memory in the units of nodes, and *milli* thousandths of each of *gpus* GPUs."""

    cpu: int
    memory: int
    gpus: int
    milli: int

    @property
    def total_milli(self) -> int:
        """The thousandths of all its GPUs together."""
        return self.gpus * self.milli


@dataclass(frozen=True, slots=True)
class PublishedRun:
    """A published run: percent of all GPU thousandths allocated when the arrivals reached 100 % and 130 % of them."""

    workload: str
    scheduler: str
    seed: int
    at_100: float
    at_130: float


def nodes() -> list[OpenbNode]:
    """Return the machines of the trace, sorted by name."""
    return [
        OpenbNode(
            row["sn"], int(row["cpu_milli"]), int(row["memory_mib"]), int(row["gpu"]), row["model"]
        )
        for row in sorted(_rows("openb_node_list_gpu_node"), key=lambda row: row["sn"])
    ]


def tasks(workload: str) -> list[Task]:
    """Return the tasks of one of `WORKLOADS`, sorted by name."""
    rows = sorted(_rows(f"openb_pod_list_{workload}"), key=lambda row: row["name"])
    return [_task(row) for row in rows]


def published() -> list[PublishedRun]:
    """Return the results of the trace's authors, one value for each run."""
    return [
        PublishedRun(
            row["workload"].removeprefix("openb_pod_list_"),
            row["policy"].partition("-")[2],
            int(row["seed"]),
            float(row["alloc_pct_at_100"]),
            float(row["alloc_pct_at_130"]),
        )
        for row in _rows("published_results")
    ]


def _task(row: dict[str, str]) -> Task:
    gpus = int(row["num_gpu"])
    milli = min(int(row["gpu_milli"]), WHOLE) if gpus else 0
    return Task(int(row["cpu_milli"]), int(row["memory_mib"]), gpus, milli)


def _rows(name: str) -> Iterator[dict[str, str]]:
    compressed = resources.files(__package__).joinpath("traces", f"{name}.csv.gz").read_bytes()
    return csv.DictReader(gzip.decompress(compressed).decode().splitlines())
