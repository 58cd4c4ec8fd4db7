# SPDX-License-Identifier: Apache-2.0
"""A generic request: one GPU, an empty script, the GPU back; beside Slurm, with 16 to 1,024 GPUs.

`gsaas run`, and Slurm's `srun` and `salloc`, start one process per request: one request alone, batches of concurrent
ones, and 256 that queue for 16 GPUs. Besides, GPUs are allocated and released over one connection without a process per
request, as Slurm's C API does. All take turns in every round, on services that run side by side; medians are compared.
GSaaS is gsaas-standalone on SQLite, whose commits are synced to disk. Slurm is Debian's, where it is installed.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.generics import Programs, batch, cycles, gsaas_client, service, slurm
from bench.report import machine, median

SRUN = ("srun", "-Q", "-n1", "--gres=gpu:1", "--mpi=none")
SALLOC = ("salloc", "-Q", "-n1", "--gres=gpu:1")
CROWD = 1000
"""So many at once, and more, have a bound of their own."""


@dataclass(frozen=True)
class Size:
    """How much is measured, and how often."""

    gpus: tuple[int, ...] = (16, 256, 1024)
    batches: tuple[int, ...] = (1, 16, 64, 256, 1024)
    queued: int = 256
    """Concurrent requests for the smallest number of GPUs: most of them wait in the queue."""
    rounds: int = 3
    alone: int = 10
    """Requests one after the other in each round of a batch of one."""
    cycles: int = 200
    idle: float = 30.0
    """Seconds for which the CPU time of an idle service is measured."""


QUICK = Size(gpus=(16, 64), batches=(1, 16), queued=32, rounds=1, alone=1, cycles=5, idle=1.0)


def run(quick: bool = False) -> dict[str, Any]:
    """Return milliseconds for each request, and the bounds; those against Slurm only where it is installed.

    *quick* has few GPUs.
    """
    size = QUICK if quick else Size()
    if os.geteuid() != 0:
        raise SystemExit(
            "this benchmark makes network namespaces, and nodes for Slurm: run it as root"
        )
    absent = slurm.missing()
    with tempfile.TemporaryDirectory(prefix="gsaas-bench-", dir="/var/tmp") as folder:
        programs = Programs(Path(folder))
        rows: list[dict[str, Any]] = []
        over_one: dict[tuple[str, int], float] = {}
        for gpus in size.gpus:
            rows += measure(programs, gpus, size, absent is None, over_one)
        server = measure_server(programs, size)
    notes = [] if absent is None else [{"note": f"only GSaaS was measured: {absent}"}]
    cycle_rows = [
        {"over_one_connection": name, "gpus": gpus, "median_ms": taken * 1e3}
        for (name, gpus), taken in over_one.items()
    ]
    return {
        "bench": "generic",
        "machine": {**machine(), "load": round(os.getloadavg()[0], 1)},
        "rows": [*rows, *cycle_rows, *server, *notes],
        "reach": bounds(rows, server),
    }


def measure(
    programs: Programs, gpus: int, size: Size, beside: bool, over_one: dict[tuple[str, int], float]
) -> list[dict[str, Any]]:
    """Return the rows for *gpus* GPUs; add the medians over one connection to *over_one*.

    *beside* says whether Slurm is measured too.
    """
    start_batch, script = programs.build("batch"), str(programs.empty_script)
    taken: dict[tuple[str, int], list[float]] = {}
    failed: dict[tuple[str, int], int] = {}
    with ExitStack() as stack:
        gsaas_service = stack.enter_context(service.running(gpus))
        gsaas = str(Path(sys.executable).with_name("gsaas"))
        commands: dict[str, tuple[tuple[str, ...], dict[str, str]]] = {
            "gsaas run": ((gsaas, "run", "-ncgpus=1", "--", script), gsaas_service.environment())
        }
        slurm_environment = None
        if beside:
            slurm_environment = stack.enter_context(slurm.running(gpus))
            commands["salloc"] = ((*SALLOC, script), slurm_environment)
            commands["srun"] = ((*SRUN, script), slurm_environment)
        for turn in range(size.rounds):
            for count in [n for n in size.batches if n <= gpus] + (
                [size.queued] if gpus == min(size.gpus) else []
            ):
                for name, (command, environment) in _rotated(commands, turn):
                    words = command
                    if (
                        count > gpus and name == "gsaas run"
                    ):  # Slurm's programs wait without being told
                        words = (*command[:3], "-wait", *command[3:])
                    repeats = size.alone if count == 1 else 1
                    for _ in range(repeats):
                        if slurm_environment is not None:
                            slurm.wait_until_idle(slurm_environment)
                        result = batch(start_batch, count, *words, environment=environment)
                        taken.setdefault((name, count), []).append(result["seconds"] / count)
                        failed[name, count] = failed.get((name, count), 0) + result["failed"]
        over_one.update(measure_cycles(programs, gsaas_service, slurm_environment, gpus, size))
    return [
        {
            "request": name,
            "gpus": gpus,
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
    programs: Programs,
    gsaas_service: service.RunningService,
    slurm_environment: dict[str, str] | None,
    gpus: int,
    size: Size,
) -> dict[tuple[str, int], float]:
    """Return the median seconds of one allocation and release over one connection, by system and number of GPUs."""
    found: dict[str, list[float]] = {}
    client = programs.build("gsaas_cycle", *gsaas_client())
    slurm_client = None
    if slurm_environment is not None:
        slurm_client = programs.build("slurm_cycle", "-lslurm")
    for _ in range(size.rounds):
        found.setdefault("GSaaS", []).extend(
            cycles(client, size.cycles, gsaas_service.environment())
        )
        if slurm_client is not None and slurm_environment is not None:
            slurm.wait_until_idle(slurm_environment)
            found.setdefault("Slurm's C API", []).extend(
                cycles(slurm_client, size.cycles, slurm_environment)
            )
    return {(name, gpus): median(seconds) for name, seconds in found.items()}


def measure_server(programs: Programs, size: Size) -> list[dict[str, Any]]:
    """Measure the service alone: a cycle with few and with many GPUs, and CPU and memory when it is idle."""
    few, many = min(size.gpus), max(size.gpus)
    client = programs.build("gsaas_cycle", *gsaas_client())
    with service.running(few) as small, service.running(many) as large:
        services = {few: small, many: large}
        spent = dict.fromkeys(services, 0.0)
        taken: dict[int, list[float]] = {gpus: [] for gpus in services}
        for turn in range(2 * size.rounds + 1):
            for gpus, running in services.items():
                before = running.cpu_seconds()
                seconds = cycles(client, size.cycles, running.environment())
                if turn:  # the first round compiles statements and reads everything
                    taken[gpus] += seconds
                    spent[gpus] += running.cpu_seconds() - before
        rows = [
            {
                "server_with_gpus": gpus,
                "cycle_ms": median(taken[gpus]) * 1e3,
                "cpu_ms_per_cycle": spent[gpus] / len(taken[gpus]) * 1e3,
            }
            for gpus in services
        ]
        before = large.cpu_seconds()
        time.sleep(size.idle)
        busy = (large.cpu_seconds() - before) / size.idle
        return [
            *rows,
            {
                "idle_with_gpus": many,
                "cpu_percent_of_a_core": busy * 100,
                "own_memory_mb": large.memory_mb(),
            },
        ]


def bounds(rows: list[dict[str, Any]], server: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the bounds that GSaaS is meant to keep, against Slurm and for its own cost."""
    medians = {(row["request"], row["gpus"], row["at_once"]): row["median_ms"] for row in rows}
    found = []
    for (name, size, count), taken in medians.items():
        if name == "srun":
            what = f"srun against gsaas run, {count} at once on {size} GPUs"
            ours = medians["gsaas run", size, count]
            found.append((what, taken / ours, least(count, size)))
    cost = {row["server_with_gpus"]: row["cycle_ms"] for row in server if "server_with_gpus" in row}
    few, many = min(cost), max(cost)
    what = f"the server's part, {many} GPUs against {few}"
    found.append((what, cost[many] / cost[few], "<= 1.1"))
    return [{"what": what, "value": value, "bound": bound} for what, value, bound in found]


def least(count: int, size: int) -> str:
    """Return how many times longer `srun` has to take with *count* at once on *size* GPUs.

    Those that wait have twice as many transactions as others; and gsaas-standalone's server looks at each connection
    that is open whenever one of them has something to say, so that 1,024 at once take three times as long as 256.
    """
    if count > size:
        return ">= 2"
    return ">= 2.5" if count < CROWD else ">= 1.2"


if __name__ == "__main__":
    print(json.dumps(run()))
