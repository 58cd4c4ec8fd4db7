# SPDX-License-Identifier: Apache-2.0
"""Claims of several processes at once: CPU time, throughput, attempts and full reads, on MariaDB and PostgreSQL.

Each process has eight threads that claim a GPU and release it, as fast as they can, and nothing is scarce. The
processes are on one half of the cores, the database server on the other. The servers do not wait for the disk, so that
CPU time is what limits them. After each run the books of the GPUs are compared with the claims, and again when all is
released. Every size is measured in rounds, in which each number of processes has its turn. A ratio is the median of the
ratios of the rounds, because the speed of a virtual machine changes more between rounds than within one.

As a control, as many processes have a database each: they share the cores and the server, and nothing of GSaaS. What
they need more than one process alone is the machine's, and none of it is that of claims in one database.

At last, one process with 100,000 GPUs on 12,500 hosts: its memory, the time until it answers, and the cost of a claim.
"""

from __future__ import annotations

import itertools
import multiprocessing
import os
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from oslo_utils import timeutils, uuidutils
from sqlalchemy import func, insert, select

from bench.report import machine, median, progress
from gsaas.db import migration, models
from gsaas.db.database import Database
from gsaas.gpgpums.claims import Claims, Tuning
from gsaas.gpgpums.rules import MaskedAddresses, Rules
from gsaas.metrics import counted
from gsaas.objects.lease import Lease
from gsaas.objects.lifecycle import Status
from gsaas.objects.request import Request
from tests.support.databases import Daemon, MariaDB, PostgreSQL

SERVERS: dict[str, type[Daemon]] = {"MariaDB": MariaDB, "PostgreSQL": PostgreSQL}
SIZES = (64, 1024, 8000)
PROCESSES = (1, 2, 4)
THREADS = 8
SECONDS = 4.0
WARM_UP = 1.0
"""Seconds for which a process works before it is measured: it compiles each statement when it first needs it."""
ROUNDS = 3
GPUS_PER_HOST = 8
MEMORY_MB = 8192
REQUEST = Request(1, "shared", 1024)
HUGE = 100_000
HUGE_CLAIMS = 200
COUNTERS = ("gsaas_claim_attempts_total", "gsaas_pool_full_reads_total")
PATIENCE = 120
"""Seconds until all processes have started."""

FORKSERVER = multiprocessing.get_context("forkserver")
FORKSERVER.set_forkserver_preload(
    ["gsaas.gpgpums.claims", "gsaas.gpgpums.policies.least_load_fit", "pymysql", "psycopg"]
)


def run(quick: bool = False) -> dict[str, Any]:
    """Return what was measured for each server, number of GPUs and number of processes.

    *quick* measures for a moment, with few GPUs and two processes.
    """
    sizes: tuple[int, ...] = SIZES
    processes: tuple[int, ...] = PROCESSES
    rounds, seconds = ROUNDS, SECONDS
    if quick:
        sizes, processes, rounds, seconds = ((64,), (1, 2), 1, 0.5)
    measured: list[dict[str, Any]] = []
    controls: list[dict[str, Any]] = []
    huge: list[dict[str, Any]] = []
    for name, kind in SERVERS.items():
        progress(f"{name}: its databases")
        with kind() as server, halves(server) as cores:
            urls = {size: new_database(server, f"gpus_{size}", size) for size in sizes}
            apart = [
                new_database(server, f"apart_{number}", sizes[-1])
                for number in range(processes[-1])
            ]
            for turn in range(rounds):
                progress(f"{name}: round {turn + 1} of {rounds}")
                for size, number in itertools.product(sizes, processes):
                    found = measure(server, [urls[size]] * number, seconds, cores)
                    where = {"database": name, "gpus": size, "processes": number}
                    measured.append({**where, "round": turn, **found})
                found = measure(server, apart, seconds, cores)
                where = {"database": name, "gpus": sizes[-1], "processes": processes[-1]}
                controls.append({**where, "round": turn, **found})
            if not quick:
                progress(f"{name}: {HUGE:,} GPUs")
                url = new_database(server, "huge", HUGE)
                huge.append({"database": name, "gpus": HUGE, **measure_huge(url)})
    rows = [*summary(measured), *control(measured, controls, sizes, processes), *huge]
    reach = bounds(measured, sizes, processes)
    return {"bench": "scale-out", "machine": machine(), "rows": rows, "reach": reach}


def summary(measured: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return a row for each database, number of GPUs and number of processes, over all rounds.

    Times, throughput and attempts are medians; the worst claim is that of all rounds, and so are full reads and errors.
    """
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in measured:
        groups.setdefault((row["database"], row["gpus"], row["processes"]), []).append(row)
    return [
        {
            "database": database,
            "gpus": gpus,
            "processes": processes,
            **{
                column: median([row[column] for row in rows])
                for column in ("per_second", "cpu_ms", "database_cpu_ms", "attempts")
            },
            **{
                column: max(row[column] for row in rows)
                for column in ("worst_ms", "full_reads", "wrong")
            },
        }
        for (database, gpus, processes), rows in groups.items()
    ]


def control(
    measured: list[dict[str, Any]],
    controls: list[dict[str, Any]],
    sizes: tuple[int, ...],
    processes: tuple[int, ...],
) -> list[dict[str, Any]]:
    """Return a row for each server: processes with a database each, and two of the ratios of `bounds` for them."""
    rows = []
    for name in SERVERS:
        own = [row for row in controls if row["database"] == name]
        alone = [
            row for row in measured if row["database"] == name and row["processes"] == processes[0]
        ]
        both = [*alone, *own]
        most = (sizes[-1], processes[-1])
        rows.append(
            {
                **summary(own)[0],
                "databases": processes[-1],
                "cpu_ratio": ratio(both, "cpu_ms", most, (sizes[0], processes[0])),
                "throughput_ratio": ratio(both, "per_second", most, (sizes[-1], processes[0])),
            }
        )
    return rows


def bounds(
    measured: list[dict[str, Any]], sizes: tuple[int, ...], processes: tuple[int, ...]
) -> list[dict[str, Any]]:
    """Return what is to be reached, and what was measured; a ratio is the median of those of the rounds."""
    few, many = processes[0], processes[-1]
    reach = []
    for name in SERVERS:
        own = [row for row in measured if row["database"] == name]
        value = ratio(own, "cpu_ms", (sizes[-1], many), (sizes[0], few))
        what = (
            f"CPU time of a claim and release, {many} processes and {sizes[-1]} GPUs against "
            f"{few} and {sizes[0]}"
        )
        reach.append({"what": f"{name}: {what}", "value": value, "bound": "<= 1.4"})
        for size in sizes:
            value = ratio(own, "per_second", (size, many), (size, few))
            what = f"{size} GPUs: throughput, {many} processes against {few}"
            reach.append({"what": f"{name}, {what}", "value": value, "bound": ">= 1"})
        for what, column, bound in (
            ("full reads for each claim", "full_reads", "< 0.01"),
            ("attempts at a claim", "attempts", "<= 1.1"),
            ("the worst claim, ms", "worst_ms", "<= 1000"),
            ("errors, and books that are wrong", "wrong", "<= 0"),
        ):
            worst = max(row[column] for row in own)
            reach.append({"what": f"{name}: {what}", "value": float(worst), "bound": bound})
    return reach


def ratio(
    measured: list[dict[str, Any]], column: str, one: tuple[int, int], other: tuple[int, int]
) -> float:
    """Return how many times *column* of *one* is that of *other*: the median of the ratios of the rounds.

    Both are pairs of a number of GPUs and a number of processes.
    """
    found = {(row["round"], row["gpus"], row["processes"]): row[column] for row in measured}
    rounds = {row["round"] for row in measured}
    return median([found[turn, *one] / found[turn, *other] for turn in rounds])


def measure(server: Daemon, urls: Sequence[str], seconds: float, cores: set[int]) -> dict[str, Any]:
    """Return what processes that claim and release for *seconds* take for each claim and release.

    Each uses the database at one of *urls*; they may be the same.
    """
    processes = len(urls)
    with FORKSERVER.Manager() as manager:
        start, end = manager.Barrier(processes + 1), manager.Barrier(processes + 1)
        with ProcessPoolExecutor(processes, mp_context=FORKSERVER) as executor:
            workers = [
                executor.submit(claim_and_release, url, seconds, cores, start, end) for url in urls
            ]
            start.wait(PATIENCE)
            used, begun = cpu_of(server), time.monotonic()
            end.wait(PATIENCE + seconds)
            took, used = time.monotonic() - begun, cpu_of(server) - used
            users = Counter(urls)
            with_claims = sum(wrong_books(url, held=users[url] * THREADS) for url in users)
            end.wait(PATIENCE)
            found = [worker.result() for worker in workers]
    cycles = sum(one["cycles"] for one in found)
    return {
        "per_second": cycles / took,
        "cpu_ms": sum(one["cpu"] for one in found) / cycles * 1e3,
        "database_cpu_ms": used / cycles * 1e3,
        "worst_ms": max(one["worst"] for one in found) * 1e3,
        "full_reads": sum(one["full_reads"] for one in found) / cycles,
        "attempts": sum(one["attempts"] for one in found) / cycles,
        "wrong": sum(one["errors"] for one in found)
        + with_claims
        + sum(wrong_books(url, held=0) for url in users),
    }


def claim_and_release(
    url: str, seconds: float, cores: set[int], start: threading.Barrier, end: threading.Barrier
) -> dict[str, float]:
    """Claim and release in `THREADS` threads for *seconds*; return the number of cycles and what they took.

    Before, the threads work for `WARM_UP` seconds and until *start* is passed. Each thread keeps its last lease until
    *end* was passed twice.
    """
    os.sched_setaffinity(0, cores)
    database = Database.open(url)
    claims = open_claims(database)
    claims.release(claims.claim(new_lease(), REQUEST).id)  # compiles the statements
    claimed: list[tuple[float, float]] = []
    """When each claim began, and how long it took."""
    errors: list[Exception] = []
    stop = threading.Event()

    def work() -> str | None:
        lease_id = None
        try:
            while not stop.is_set():
                if lease_id is not None:
                    claims.release(lease_id)
                begun = time.monotonic()
                lease_id = claims.claim(new_lease(), REQUEST).id
                claimed.append((begun, time.monotonic() - begun))
        except Exception as error:  # noqa: BLE001 - it is counted
            errors.append(error)
        return lease_id

    def counts() -> list[float]:
        return [
            time.process_time(),
            *(counted.REGISTRY.get_sample_value(name) or 0.0 for name in COUNTERS),
        ]

    with ThreadPoolExecutor(THREADS) as threads:
        working = [threads.submit(work) for _ in range(THREADS)]
        time.sleep(WARM_UP)
        start.wait(PATIENCE)
        before, warm = counts(), time.monotonic()
        time.sleep(seconds)
        stop.set()
        kept = [lease_id for thread in working if (lease_id := thread.result())]
    cpu, attempts, full_reads = (now - then for now, then in zip(counts(), before, strict=True))
    measured = [took for begun, took in claimed if begun >= warm]
    end.wait(PATIENCE)
    end.wait(PATIENCE)
    for lease_id in kept:
        claims.release(lease_id)
    database.close()
    return {
        "cycles": len(measured),
        "cpu": cpu,
        "worst": max(measured),
        "attempts": attempts,
        "full_reads": full_reads,
        "errors": len(errors),
    }


def measure_huge(url: str) -> dict[str, Any]:
    """Return what one process needs for very many GPUs."""
    with ProcessPoolExecutor(1, mp_context=FORKSERVER) as executor:
        return executor.submit(start_and_claim, url).result()


def start_and_claim(url: str) -> dict[str, Any]:
    """Open the database at *url*, claim and release; return the memory and the times."""
    database = Database.open(url)
    begun, empty = time.monotonic(), resident_mib()
    claims = open_claims(database)
    claims.release(claims.claim(new_lease(), REQUEST).id)
    answered = time.monotonic() - begun
    taken = []
    cpu = time.process_time()
    for _ in range(HUGE_CLAIMS):
        begun = time.monotonic()
        lease_id = claims.claim(new_lease(), REQUEST).id
        taken.append(time.monotonic() - begun)
        claims.release(lease_id)
    cpu = time.process_time() - cpu
    database.close()
    return {
        "seconds_to_first_answer": answered,
        "mib": resident_mib(),
        "mib_without_gpus": empty,
        "claim_ms": median(taken) * 1e3,
        "cpu_ms": cpu / HUGE_CLAIMS * 1e3,
        "worst_ms": max(taken) * 1e3,
    }


def open_claims(database: Database) -> Claims:
    """Return the claims of a process, as it has them by default."""
    masked = MaskedAddresses("169.254.71.0/24", 8308)
    tuning = Tuning(heartbeat_timeout=24 * 3600, subset_size=1024)
    return Claims(database, Rules(masked), tuning)


def new_lease() -> Lease:
    """Return a lease to claim GPUs for."""
    return Lease(
        status=Status.QUEUED,
        id=uuidutils.generate_uuid(),
        project_id="project-1",
        user_id="user-1",
        name="bench",
        remoting="rcuda",
        **REQUEST.to_dict(),
    )


def new_database(server: Daemon, name: str, size: int) -> str:
    """Make a database with *size* GPUs; return its URL."""
    url = server.create(name)
    migration.upgrade(url)
    database = Database.open(url)
    hosts = [f"gpu{number:05}" for number in range(-(-size // GPUS_PER_HOST))]
    gpus = [
        {
            "uuid": f"GPU-{number:06}",
            "host_name": hosts[number // GPUS_PER_HOST],
            "device_index": number % GPUS_PER_HOST,
            "model": "NVIDIA L4",
            "memory_mb": MEMORY_MB,
            "daemon_port": 8308,
        }
        for number in range(size)
    ]
    now = timeutils.utcnow()
    with database.writing() as connection:
        connection.execute(
            insert(models.HostRow), [{"name": name, "monitor_seen_at": now} for name in hosts]
        )
        connection.execute(insert(models.EndpointRow), [{"host_name": name} for name in hosts])
        for first in range(0, size, 10_000):
            connection.execute(insert(models.GpuRow), gpus[first : first + 10_000])
    with database.engine.execution_options(isolation_level="AUTOCOMMIT").connect() as connection:
        if connection.dialect.name == "postgresql":
            connection.exec_driver_sql("VACUUM ANALYZE")  # as its autovacuum does in time
    database.close()
    return url


def wrong_books(url: str, held: int) -> int:
    """Return the number of GPUs whose books do not match their claims, plus the leases by which *held* is not right."""
    gpu, claim = models.GpuRow, models.ClaimRow
    claimed = (
        select(claim.gpu_uuid, func.sum(claim.memory_mb).label("mib"), func.count().label("leases"))
        .group_by(claim.gpu_uuid)
        .subquery()
    )
    query = select(gpu.memory_mb, gpu.used_mb, gpu.leases, claimed.c.mib, claimed.c.leases)
    database = Database.open(url)
    with database.reading() as connection:
        rows = connection.execute(
            query.select_from(gpu).outerjoin(claimed, claimed.c.gpu_uuid == gpu.uuid)
        ).all()
        active = connection.scalar(
            select(func.count())
            .select_from(models.LeaseRow)
            .where(models.LeaseRow.released_at.is_(None))
        )
    database.close()
    wrong = sum(
        not (int(mib or 0) == used_mb <= memory_mb and leases == (claims or 0))
        for memory_mb, used_mb, leases, mib, claims in rows
    )
    return wrong + abs(int(active or 0) - held)


@contextmanager
def halves(server: Daemon) -> Iterator[set[int]]:
    """Put *server* on one half of the cores; yield the others, for the processes that use it."""
    cores = sorted(os.sched_getaffinity(0))
    half = max(1, len(cores) // 2)
    for task in Path(f"/proc/{server.pid}/task").iterdir():
        os.sched_setaffinity(int(task.name), set(cores[half:]) or set(cores))
    yield set(cores[:half])


def cpu_of(server: Daemon) -> float:
    """Return the seconds of CPU time that the processes of *server* have used, those included that have ended."""
    ticks = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            pid, _, rest = stat.read_text().partition(" (")
        except (FileNotFoundError, ProcessLookupError):
            continue
        fields = rest.rpartition(") ")[2].split()
        if int(pid) == server.pid:
            ticks += sum(map(int, fields[11:15]))
        elif int(fields[1]) == server.pid:
            ticks += sum(map(int, fields[11:13]))
    return ticks / os.sysconf("SC_CLK_TCK")


def resident_mib() -> float:
    """Return the resident memory of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20
