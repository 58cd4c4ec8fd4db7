# SPDX-License-Identifier: Apache-2.0
"""The trace: nodes, tasks, and the results that its authors published; and files of the same format."""

from __future__ import annotations

import csv
import gzip
import io
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import TypeVar

WORKLOADS = ("default", "gpushare40", "multigpu20", "gpuspec33")
"""The trace, and three samples of it by its authors: with more tasks that share a GPU, with more multi-GPU tasks, and
with tasks that allow only some models of GPU."""
UNCONSTRAINED = WORKLOADS[:3]
"""Those whose tasks allow every model."""

WHOLE = 1000
"""The thousandths of one GPU."""
MOST_GPUS = 8
"""The most GPUs that a node may have."""
MORE = "\n"
"""Where the reader puts what has no column: no file has a column of this name."""
MOST = 10**12
"""The largest number in a file: no node has more memory, in whatever unit."""

T = TypeVar("T")


class TraceError(Exception):
    """A file of nodes or tasks cannot be read. The message says where in the file, and why."""


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
    models: tuple[str, ...] = ()
    """The models of GPU that it allows, sorted; empty: every model."""

    @property
    def total_milli(self) -> int:
        """The thousandths of all its GPUs together."""
        return self.gpus * self.milli

    def allows(self, model: str) -> bool:
        """Return whether the task may run on a node with GPUs of *model*."""
        return not self.models or model in self.models


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
    return _nodes("the trace", _packaged("openb_node_list_gpu_node"))


def tasks(workload: str) -> list[Task]:
    """Return the tasks of one of `WORKLOADS`, sorted by name."""
    return _tasks("the trace", _packaged(f"openb_pod_list_{workload}"))


def read_nodes(path: Path) -> list[OpenbNode]:
    """Return the machines in a CSV file, which gzip may have compressed, sorted by name. Raises `TraceError`."""
    nodes = _nodes(str(path), _lines(path))
    if not any(node.gpus for node in nodes):
        raise TraceError(f"{path} has no node with a GPU")
    return nodes


def read_tasks(path: Path) -> list[Task]:
    """Return the tasks in a CSV file, which gzip may have compressed, sorted by name. Raises `TraceError`.

    A file without the column gpu_spec has no task that allows only some models.
    """
    tasks = _tasks(str(path), _lines(path))
    if not any(task.gpus for task in tasks):
        raise TraceError(f"{path} has no task with a GPU")
    return tasks


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
        for row in csv.DictReader(_packaged("published_results"))
    ]


def _nodes(source: str, lines: Iterable[str]) -> list[OpenbNode]:
    return _parse(source, lines, "sn", ("cpu_milli", "memory_mib", "gpu", "model"), _node)


def _tasks(source: str, lines: Iterable[str]) -> list[Task]:
    columns = ("cpu_milli", "memory_mib", "num_gpu", "gpu_milli")
    return _parse(source, lines, "name", columns, _task)


def _node(row: Row) -> OpenbNode:
    gpus = row.number("gpu")
    if gpus > MOST_GPUS:
        raise row.error("gpu", f"is more than {MOST_GPUS}")
    return OpenbNode(
        row.text("sn"), row.number("cpu_milli"), row.number("memory_mib"), gpus, row.text("model")
    )


def _task(row: Row) -> Task:
    gpus = row.number("num_gpu")
    milli = min(row.number("gpu_milli"), WHOLE) if gpus else 0
    if gpus and not milli:
        raise row.error("gpu_milli", "is 0 for a task with a GPU")
    if gpus > 1 and milli < WHOLE:
        raise row.error("gpu_milli", f"is less than {WHOLE} for a task with {gpus} GPUs")
    models = {model for model in row.text("gpu_spec").split("|") if model} if gpus else set()
    return Task(
        row.number("cpu_milli"), row.number("memory_mib"), gpus, milli, tuple(sorted(models))
    )


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a CSV file, and where it is."""

    source: str
    line: int
    values: dict[str, str]

    def text(self, column: str) -> str:
        """Return what the line has in *column*; an empty text if the file or the line lacks it."""
        return self.values.get(column) or ""

    def number(self, column: str) -> int:
        """Return the number in *column*. Raises `TraceError` if there is none, or one below 0."""
        text = self.text(column).strip()
        digits = text.removesuffix(".0")  # as programs write whole numbers in a column with gaps
        if not digits.isdecimal():
            raise self.error(column, f"is not a whole number: {text!r}")
        if len(digits) > len(str(MOST)) or int(digits) > MOST:
            raise self.error(column, f"is more than {MOST:g}")
        return int(digits)

    def error(self, column: str, problem: str) -> TraceError:
        """Return the error that says what is wrong with one value."""
        return TraceError(f"{self.source}, line {self.line}, column {column}: {problem}")


def _parse(
    source: str,
    lines: Iterable[str],
    key: str,
    columns: Iterable[str],
    make: Callable[[Row], T],
) -> list[T]:
    """Return what *make* makes of each row, in the order of *key*. Raises `TraceError` without a column or a row."""
    reader = csv.DictReader(lines, restkey=MORE, strict=True)
    try:
        if missing := [name for name in (key, *columns) if name not in (reader.fieldnames or ())]:
            raise TraceError(f"{source} has no column {', '.join(missing)}")
        rows = [Row(source, reader.line_num, row) for row in reader]
    except csv.Error as error:
        # The reader counts the lines that it could read.
        raise TraceError(f"{source}, line {reader.line_num + 1}: {error}") from error
    for row in rows:
        if MORE in row.values:
            raise TraceError(f"{source}, line {row.line} has more columns than the first line")
    if not rows:
        raise TraceError(f"{source} has no line but the first")
    return [make(row) for row in sorted(rows, key=lambda row: row.text(key))]


def _packaged(name: str) -> Iterator[str]:
    compressed = resources.files(__package__).joinpath("traces", f"{name}.csv.gz").read_bytes()
    return iter(gzip.decompress(compressed).decode().splitlines())


def _lines(path: Path) -> Iterable[str]:
    try:
        content = path.read_bytes()
        if content.startswith(b"\x1f\x8b"):
            content = gzip.decompress(content)
        return io.StringIO(content.decode("utf-8-sig"), newline="")
    except OSError as error:
        raise TraceError(f"{path} cannot be read: {error.strerror or error}") from error
    except (EOFError, UnicodeDecodeError, zlib.error) as error:
        raise TraceError(f"{path} cannot be read: {error}") from error
