# SPDX-License-Identifier: Apache-2.0
"""What processes use: CPU time and memory of a process and all that it has started, messages, and rows."""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import sqlalchemy

TICKS = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")

WRITTEN = ("Handler_write", "Handler_update", "Handler_delete")
"""MariaDB's counters of rows that were written."""
READ = ("Handler_read_first", "Handler_read_key", "Handler_read_next", "Handler_read_prev")
"""MariaDB's counters of rows that were looked at."""


def processes(roots: Iterable[int]) -> list[tuple[str, str]]:
    """Return `stat` and `statm` of the processes *roots*, and of all that they have started."""
    children: dict[int, list[int]] = defaultdict(list)
    found: dict[int, tuple[str, str]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            stat, statm = (folder / "stat").read_text(), (folder / "statm").read_text()
        except (FileNotFoundError, ProcessLookupError):
            continue
        fields = stat.rpartition(") ")[2]
        found[int(folder.name)] = fields, statm
        children[int(fields.split()[1])].append(int(folder.name))
    todo, chosen = list(roots), []
    while todo:
        pid = todo.pop()
        if pid in found:
            chosen.append(found[pid])
        todo += children[pid]
    return chosen


def cpu_seconds(*roots: int) -> float:
    """Return the CPU time of *roots* and of all that they have started, what has ended included."""
    ticks = sum(sum(map(int, stat.split()[11:15])) for stat, _ in processes(roots))
    return ticks / TICKS


def resident_mib(*roots: int) -> float:
    """Return the resident memory of *roots* and of all that they have started."""
    return sum(int(statm.split()[1]) for _, statm in processes(roots)) * PAGE / 2**20


def connections(port: int) -> int:
    """Return how many connections a server on loopback has at its *port*."""
    local, established = f"0100007F:{port:04X}", "01"
    lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
    return sum(line.split()[1:4:2] == [local, established] for line in lines)


def messages(overview: str) -> dict[str, int]:
    """Return RabbitMQ's global counters, from what `rabbit_global_counters:overview()` prints, added up by name."""
    counted: dict[str, int] = defaultdict(int)
    for name, number in re.findall(r"(\w+_total)\s*=>\s*(\d+)", overview):
        counted[name] += int(number)
    return dict(counted)


def database_counters(engine: sqlalchemy.Engine) -> dict[str, int]:
    """Return MariaDB's counters of rows written and read, of statements and of commits."""
    with engine.connect() as connection:
        shown = connection.exec_driver_sql("SHOW GLOBAL STATUS")
        status: dict[str, Any] = dict(shown.tuples().all())
    return {
        "rows_written": sum(int(status[name]) for name in WRITTEN),
        "rows_read": sum(int(status[name]) for name in READ),
        "statements": int(status["Questions"]),
        "commits": int(status["Com_commit"]),
    }
