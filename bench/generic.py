"""A generic request: one GPU, an empty script, the GPU back; beside Slurm, with 16 to 1,024 GPUs.

`gsaas run`, and Slurm's `srun` and `salloc`, each one process for each request: alone, in batches of concurrent
ones, and 256 that queue for 16 GPUs. Allocating and releasing over one connection without any process for it, as
Slurm's C API does. All take turns in every round, on services that run side by side; of each the median counts.
GSaaS is gsaas-standalone on SQLite, whose commits are synced. Slurm is Debian's, where it is installed.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from bench.generics import SPEAKS_TO_GSAAS, Tools, batch, cycles, service, slurm
from bench.report import machine, median

SIZES = (16, 256, 1024)
BATCHES = (1, 16, 64, 256, 1024)
QUEUED = 256
"""Requests that wait for the fewest GPUs."""
ROUNDS = 3
ALONE = 10
"""Requests one after the other, of each round of a batch of one."""
CYCLES = 200
IDLE = 30.0
"""Seconds for which an idle service is watched."""
SRUN = ("srun", "-Q", "-n1", "--gres=gpu:1", "--mpi=none")
SALLOC = ("salloc", "-Q", "-n1", "--gres=gpu:1")


def run() -> dict[str, Any]:
    """Milliseconds for each request; reaches against Slurm where it runs too."""
    if os.geteuid() != 0:
        raise SystemExit(
            "this benchmark makes network namespaces, and nodes for Slurm: run it as root"
        )
    absent = slurm.missing()
    with tempfile.TemporaryDirectory(prefix="gsaas-bench-", dir="/var/tmp") as folder:
        tools = Tools(Path(folder))
        rows, over_one = [], {}
        for size in SIZES:
            rows += measure(tools, size, absent is None, over_one)
        server = measure_server(tools)
    notes = [] if absent is None else [{"note": f"only GSaaS was measured: {absent}"}]
    cycle_rows = [
        {"over_one_connection": name, "gpus": size, "median_ms": taken * 1e3}
        for (name, size), taken in over_one.items()
    ]
    return {
        "bench": "generic",
        "machine": {**machine(), "load": round(os.getloadavg()[0], 1)},
        "rows": [*rows, *cycle_rows, *server, *notes],
        "reach": reaches(rows, over_one, server),
    }


def measure(
    tools: Tools, size: int, beside: bool, over_one: dict[tuple[str, int], float]
) -> list[dict[str, Any]]:
    """Rows for *size* GPUs; medians over one connection are added to *over_one*."""
    start, script = tools.build("batch"), str(tools.empty)
    taken: dict[tuple[str, int], list[float]] = {}
    failed: dict[tuple[str, int], int] = {}
    with ExitStack() as stack:
        ours = stack.enter_context(service.running(size))
        gsaas = str(Path(sys.executable).with_name("gsaas"))
        commands: dict[str, tuple[tuple[str, ...], dict[str, str]]] = {
            "gsaas run": ((gsaas, "run", "-ncgpus=1", "--", script), ours.environment())
        }
        theirs = None
        if beside:
            theirs = stack.enter_context(slurm.running(size))
            commands["salloc"] = ((*SALLOC, script), theirs)
            commands["srun"] = ((*SRUN, script), theirs)
        for turn in range(ROUNDS):
            for count in [n for n in BATCHES if n <= size] + (
                [QUEUED] if size == min(SIZES) else []
            ):
                for name, (command, environment) in _rotated(commands, turn):
                    words = command
                    if count > size and name == "gsaas run":
                        words = (*command[:3], "-wait", *command[3:])
                    repeats = ALONE if count == 1 else 1
                    for _ in range(repeats):
                        if theirs is not None:
                            slurm.settle(theirs)
                        result = batch(start, count, *words, env=environment)
                        taken.setdefault((name, count), []).append(result["seconds"] / count)
                        failed[name, count] = failed.get((name, count), 0) + result["failed"]
        over_one.update(measure_cycles(tools, ours, theirs if beside else None, size))
    return [
        {
            "request": name,
            "gpus": size,
            "at_once": count,
            "median_ms": median(seconds) * 1e3,
            "least_ms": min(seconds) * 1e3,
            "most_ms": max(seconds) * 1e3,
            "failed": failed[name, count],
        }
        for (name, count), seconds in sorted(
            taken.items(), key=lambda item: (item[0][1], item[0][0])
        )
    ]


def _rotated(commands: dict[str, Any], turn: int) -> list[tuple[str, Any]]:
    items = list(commands.items())
    turn %= len(items)
    return items[turn:] + items[:turn]


def measure_cycles(
    tools: Tools, ours: service.Service, theirs: dict[str, str] | None, size: int
) -> dict[tuple[str, int], float]:
    """Seconds of one allocation and release over one connection."""
    found: dict[str, list[float]] = {}
    ours_asks = tools.build("gsaas_cycle", *SPEAKS_TO_GSAAS)
    theirs_asks = tools.build("slurm_cycle", "-lslurm") if theirs is not None else None
    for _ in range(ROUNDS):
        found.setdefault("GSaaS", []).extend(cycles(ours_asks, CYCLES, ours.environment()))
        if theirs_asks is not None:
            slurm.settle(theirs)
            found.setdefault("Slurm's C API", []).extend(cycles(theirs_asks, CYCLES, theirs))
    return {(name, size): median(seconds) for name, seconds in found.items()}


def measure_server(tools: Tools) -> list[dict[str, Any]]:
    """The service alone: what a cycle costs it with few and with many GPUs, and what being there costs."""
    few, many = min(SIZES), max(SIZES)
    asks = tools.build("gsaas_cycle", *SPEAKS_TO_GSAAS)
    with service.running(few) as small, service.running(many) as large:
        services = {few: small, many: large}
        spent = dict.fromkeys(services, 0.0)
        taken: dict[int, list[float]] = {size: [] for size in services}
        for turn in range(2 * ROUNDS + 1):
            for size, one in services.items():
                before = one.cpu_seconds()
                seconds = cycles(asks, CYCLES, one.environment())
                if turn:  # the first round compiles statements and reads everything
                    taken[size] += seconds
                    spent[size] += one.cpu_seconds() - before
        rows = [
            {
                "server_with_gpus": size,
                "cycle_ms": median(taken[size]) * 1e3,
                "cpu_ms_per_cycle": spent[size] / len(taken[size]) * 1e3,
            }
            for size in services
        ]
        before = large.cpu_seconds()
        time.sleep(IDLE)
        busy = (large.cpu_seconds() - before) / IDLE
        return [
            *rows,
            {
                "idle_with_gpus": many,
                "cpu_percent_of_a_core": busy * 100,
                "own_memory_mb": large.memory_mb(),
            },
        ]


def reaches(
    rows: list[dict[str, Any]],
    over_one: dict[tuple[str, int], float],
    server: list[dict[str, Any]],
) -> list[dict[str, Any]]:
    """What we set out for."""
    medians = {(row["request"], row["gpus"], row["at_once"]): row["median_ms"] for row in rows}
    found = []
    for (name, size, count), taken in medians.items():
        ours = medians["gsaas run", size, count]
        where = f"{count} at once on {size} GPUs"
        if name != "gsaas run" and count > size:
            found.append((f"{name} against gsaas run, {where}", taken / ours, ">= 8"))
        elif name == "srun":
            found.append((f"srun against gsaas run, {where}", taken / ours, ">= 4"))
        elif name == "salloc":
            found.append((f"gsaas run against salloc, {where}", ours / taken, "<= 1"))
    for (name, size), taken in over_one.items():
        if name != "GSaaS":
            what = f"GSaaS against {name} over one connection, {size} GPUs"
            found.append((what, over_one["GSaaS", size] / taken, "<= 1"))
    cost = {row["server_with_gpus"]: row["cycle_ms"] for row in server if "server_with_gpus" in row}
    what = f"the server's part, {max(SIZES)} GPUs against {min(SIZES)}"
    found.append((what, cost[max(SIZES)] / cost[min(SIZES)], "<= 1.1"))
    return [{"what": what, "value": value, "bound": bound} for what, value, bound in found]


if __name__ == "__main__":
    print(json.dumps(run()))
