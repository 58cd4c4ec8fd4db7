# SPDX-License-Identifier: Apache-2.0
"""GSaaS in a real cloud with Keystone and TLS, beside the same cloud's Placement and beside Slurm.

The cloud is the OpenStack test bed: Keystone, MariaDB, RabbitMQ, engines, and GSaaS's API under uWSGI with two
processes, all behind HAProxy, which ends TLS. A tenant has Keystone's credentials alone. All systems take turns, and
medians are compared. Root, Debian 12; it takes about ten minutes, and longer if the bed is not up.
"""

from __future__ import annotations

import http.client
import json
import os
import ssl
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from bench.generic import SALLOC, SRUN
from bench.generics import Programs, batch, slurm
from bench.productions import cloud, proxy
from bench.report import machine, median

GPUS = 256
BATCHES = (1, 64)
ROUNDS = 5
QUICK_ROUNDS = 1
ALONE = 10
"""Requests one after the other in each round of a batch of one."""
CYCLES = 100
LISTS = 10
LEASE = {"lease": {"cgpus": {"count": 1}, "server": None}}

Cycle = Callable[[], None]


def run(quick: bool = False) -> dict[str, Any]:
    """Return milliseconds for each request, and the bounds; those against Slurm only where it is installed."""
    if os.geteuid() != 0:
        raise SystemExit("this benchmark brings up a cloud: run it as root")
    if proxy.program() is None:
        raise SystemExit(f"this benchmark needs a proxy that ends TLS: install {proxy.PACKAGE}")
    absent = slurm.missing()
    rounds = QUICK_ROUNDS if quick else ROUNDS
    with tempfile.TemporaryDirectory(prefix="gsaas-bench-", dir="/var/tmp") as folder:
        programs = Programs(Path(folder))
        with cloud.running(GPUS) as production:
            first = seconds_of(production.environment, "list")
            lists = [seconds_of(production.environment, "list") for _ in range(LISTS * rounds)]
            cycles = measure_cycles(production, rounds)
            seconds_of(production.trusting_all, "list")  # caches a token
            requests = measure_requests(programs, production, rounds, absent is None)
    rows = request_rows(requests)
    cycle_rows = [
        {
            "over_one_connection": name,
            "median_ms": median(taken) * 1e3,
            "least_ms": min(taken) * 1e3,
        }
        for name, taken in cycles.items()
    ]
    commands = [
        {"command": "gsaas list, the token is cached", "seconds": median(lists)},
        {"command": "gsaas list, the first one", "seconds": first},
    ]
    notes = [] if absent is None else [{"note": f"Slurm was not measured: {absent}"}]
    return {
        "bench": "production",
        "machine": {**machine(), "load": round(os.getloadavg()[0], 1)},
        "rows": [*rows, *cycle_rows, *commands, *notes],
        "reach": bounds(rows, cycle_rows, median(lists)),
    }


def bounds(
    requests: list[dict[str, Any]], cycles: list[dict[str, Any]], list_seconds: float
) -> list[dict[str, Any]]:
    """Return what is to be reached, and what was measured."""
    medians = {(row["request"], row["at_once"]): row["median_ms"] for row in requests}
    found = []
    for count, bound in zip(BATCHES, ("<= 1.0", "<= 0.7"), strict=True):
        if ("srun", count) in medians:
            value = medians["gsaas run", count] / medians["srun", count]
            found.append((f"gsaas run against srun, {count} at once", value, bound))
    over_one = {row["over_one_connection"]: row["median_ms"] for row in cycles}
    what = "allocate and release over one connection, against Placement"
    found.append((what, over_one["GSaaS"] / over_one["Placement"], "<= 0.45"))
    found.append(("gsaas list, seconds", list_seconds, "<= 0.2"))
    return [{"what": what, "value": value, "bound": bound} for what, value, bound in found]


def request_rows(
    taken: Mapping[tuple[str, int], tuple[list[float], int]],
) -> list[dict[str, Any]]:
    """Return the rows of the requests with a process each."""
    return [
        {
            "request": name,
            "at_once": count,
            "median_ms": median(seconds) * 1e3,
            "least_ms": min(seconds) * 1e3,
            "most_ms": max(seconds) * 1e3,
            "failed": failed,
        }
        for (name, count), (seconds, failed) in sorted(
            taken.items(), key=lambda item: (item[0][1], item[0][0])
        )
    ]


def measure_requests(
    programs: Programs, production: cloud.Production, rounds: int, beside: bool
) -> dict[tuple[str, int], tuple[list[float], int]]:
    """Return the seconds of each request and how many failed, by command and number at once.

    *beside* says whether Slurm is measured too.
    """
    gsaas = str(Path(sys.executable).with_name("gsaas"))
    script = str(programs.empty_script)
    taken: dict[tuple[str, int], tuple[list[float], int]] = {}
    with _slurm(beside) as slurm_environment:
        commands: dict[str, tuple[tuple[str, ...], dict[str, str]]] = {
            name: ((gsaas, "run", "-ncgpus=1", "--", script), environment)
            for name, environment in (
                ("gsaas run", production.environment),
                ("gsaas run, all public authorities trusted", production.trusting_all),
            )
        }
        if slurm_environment is not None:
            commands["salloc"] = ((*SALLOC, script), slurm_environment)
            commands["srun"] = ((*SRUN, script), slurm_environment)
        start_batch = programs.build("batch")
        for turn in range(rounds):
            for count in BATCHES:
                names = list(commands)
                for name in names[turn % len(names) :] + names[: turn % len(names)]:
                    words, environment = commands[name]
                    seconds, failed = taken.get((name, count), ([], 0))
                    for _ in range(ALONE if count == 1 else 1):
                        if slurm_environment is not None:
                            slurm.wait_until_idle(slurm_environment)
                        result = batch(start_batch, count, *words, environment=environment)
                        seconds.append(result["seconds"] / count)
                        failed += result["failed"]
                    taken[name, count] = (seconds, failed)
    return taken


@contextmanager
def _slurm(wanted: bool) -> Iterator[dict[str, str] | None]:
    if not wanted:
        yield None
        return
    with slurm.running(GPUS) as environment:
        yield environment


def measure_cycles(production: cloud.Production, rounds: int) -> dict[str, list[float]]:
    """Return the seconds of allocations with their release over one connection, by service."""
    token, project, user = production.tenant()
    services = {
        "GSaaS": gsaas_cycle(Connection(production.gsaas, production.authorities, token)),
        "Placement": placement_cycle(
            Connection(
                production.placement,
                production.authorities,
                cloud.admin_token(),
                {"OpenStack-API-Version": cloud.PLACEMENT_VERSION},
            ),
            production.provider,
            {"project_id": project, "user_id": user},
        ),
    }
    taken: dict[str, list[float]] = {name: [] for name in services}
    for _ in range(rounds):
        for name, cycle in services.items():
            cycle()  # opens the connection, if it was closed meanwhile
            for _ in range(CYCLES):
                begun = time.perf_counter()
                cycle()
                taken[name].append(time.perf_counter() - begun)
    return taken


class Connection:
    """One connection over TLS, with a token: the same client for both services."""

    def __init__(
        self, url: str, authorities: str, token: str, headers: Mapping[str, str] | None = None
    ) -> None:
        parts = urlsplit(url)
        self._headers = {
            "X-Auth-Token": token,
            "Content-Type": "application/json",
            **(headers or {}),
        }
        self._connection = http.client.HTTPSConnection(
            parts.hostname or "",
            parts.port,
            timeout=60,
            context=ssl.create_default_context(cafile=authorities),
        )

    def ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        """Send a request; return the decoded answer, or None. Raises `SystemExit` for an error."""
        content = None if body is None else json.dumps(body)
        self._connection.request(method, path, content, self._headers)
        response = self._connection.getresponse()
        answer = response.read()
        if response.status >= 300:
            raise SystemExit(f"{method} {path}: {response.status} {answer.decode()}")
        return json.loads(answer) if answer else None


def gsaas_cycle(connection: Connection) -> Cycle:
    """Return a function that takes a GPU and gives it back."""

    def cycle() -> None:
        lease = connection.ask("POST", "/v1/leases", LEASE)["lease"]
        connection.ask("DELETE", f"/v1/leases/{lease['id']}")

    return cycle


def placement_cycle(connection: Connection, provider: str, owner: Mapping[str, str]) -> Cycle:
    """Return a function that writes an allocation of one VGPU and deletes it."""

    def cycle() -> None:
        path = f"/allocations/{uuid.uuid4()}"
        allocation = {"resources": {cloud.RESOURCE: 1}}
        body = {
            "allocations": {provider: allocation},
            **owner,
            "consumer_generation": None,
        }
        connection.ask("PUT", path, body)
        connection.ask("DELETE", path)

    return cycle


def seconds_of(environment: Mapping[str, str], *words: str) -> float:
    """Return how long a command of `gsaas` takes."""
    gsaas = str(Path(sys.executable).with_name("gsaas"))
    begun = time.perf_counter()
    subprocess.run([gsaas, *words], env=environment, stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - begun


if __name__ == "__main__":
    print(json.dumps(run()))
