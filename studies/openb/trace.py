"""The trace as values: nodes, tasks, and what others measured on them."""

from __future__ import annotations

import csv
import gzip
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import resources

WORKLOADS = ("default", "gpushare40", "multigpu20")
"""The trace itself, and two that its authors sampled from it: more tasks that share a GPU, more that take several."""

WHOLE = 1000
"""Thousandths in one GPU."""


@dataclass(frozen=True, slots=True)
class Node:
    """One machine. CPU is in thousandths of a core, memory in MiB."""

    name: str
    cpu: int
    memory: int
    gpus: int
    model: str


@dataclass(frozen=True, slots=True)
class Task:
    """What one task asks for: CPU and memory as for nodes, and *milli* thousandths of each of *gpus* GPUs."""

    cpu: int
    memory: int
    gpus: int
    milli: int

    @property
    def total_milli(self) -> int:
        return self.gpus * self.milli


@dataclass(frozen=True, slots=True)
class Published:
    """Percent of all GPU thousandths allocated when the arrivals reached 100 and 130 % of them."""

    workload: str
    scheduler: str
    seed: int
    at_100: float
    at_130: float


def nodes() -> list[Node]:
    """The machines, in the order of their names."""
    return [
        Node(
            row["sn"], int(row["cpu_milli"]), int(row["memory_mib"]), int(row["gpu"]), row["model"]
        )
        for row in sorted(_rows("openb_node_list_gpu_node"), key=lambda row: row["sn"])
    ]


def tasks(workload: str) -> list[Task]:
    """The tasks of one of `WORKLOADS`, in the order of their names."""
    rows = sorted(_rows(f"openb_pod_list_{workload}"), key=lambda row: row["name"])
    return [_task(row) for row in rows]


def published() -> list[Published]:
    """The results of the trace's authors, run by run."""
    return [
        Published(
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
    packed = resources.files(__package__).joinpath("traces", f"{name}.csv.gz").read_bytes()
    return csv.DictReader(gzip.decompress(packed).decode().splitlines())
