# SPDX-License-Identifier: Apache-2.0
"""Clients of the API that launch a lease, wait until it is ACTIVE, release it, and wait until it has ended."""

from __future__ import annotations

import http.client
import json
import random
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from bench.fleets.rows import SHARE_MB
from bench.report import median

LONG_POLL = 30
"""Seconds that the API may wait for a lease to change before it answers, as for `gsaas run`."""
PATIENCE = 60.0


@dataclass
class Launched:
    """What the clients have done."""

    ready: list[float] = field(default_factory=list)
    """Seconds from each launch until the lease was ACTIVE."""
    failed: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def per_second(self) -> float:
        """Return the leases launched and released in a second."""
        return len(self.ready) / self.seconds

    @property
    def median_ms(self) -> float | None:
        """Return the milliseconds until a lease is ACTIVE; None if there was none."""
        return median(self.ready) * 1e3 if self.ready else None


def launch(port: int, token: str, hosts: Sequence[str], clients: int, seconds: float) -> Launched:
    """Launch and release leases of programs on *hosts*, with *clients* clients at once, for *seconds*."""
    done = Launched()
    begun = time.monotonic()
    lock = threading.Lock()

    def work(number: int) -> None:
        chance = random.Random(number)  # noqa: S311  (not a secret)
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
        while time.monotonic() < begun + seconds:
            try:
                took = _one(connection, token, chance.choice(hosts))
            except (OSError, http.client.HTTPException, RuntimeError) as error:
                connection.close()
                with lock:
                    done.failed.append(str(error))
            else:
                with lock:
                    done.ready.append(took)

    with ThreadPoolExecutor(clients) as pool:
        list(pool.map(work, range(clients)))
    done.seconds = time.monotonic() - begun
    return done


def _one(connection: http.client.HTTPConnection, token: str, host: str) -> float:
    """Launch and release a lease; return the seconds until it was ACTIVE."""

    def ask(method: str, path: str, body: Any = None) -> Any:
        headers = {"X-Auth-Token": token, "Content-Type": "application/json"}
        connection.request(method, path, body and json.dumps(body), headers)
        answer = connection.getresponse()
        text = answer.read()
        if answer.status >= 400:
            raise RuntimeError(f"{method} {path}: {answer.status} {text!r}")
        return json.loads(text) if text else None

    def until(status: str, now: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while now != status:
            if now == "ERROR" or time.monotonic() > deadline:
                raise RuntimeError(f"{lease['id']} is {now} instead of {status}")
            query = f"while_status={now}&timeout={LONG_POLL}"
            now = ask("GET", f"/v1/leases/{lease['id']}?{query}")["lease"]["status"]

    begun = time.monotonic()
    cgpus = {"count": 1, "mode": "shared", "memory_mb": SHARE_MB}
    wanted = {"lease": {"cgpus": cgpus, "server": None, "consumer": {"host": host}}}
    lease = ask("POST", "/v1/leases", wanted)["lease"]
    until("ACTIVE", lease["status"])
    took = time.monotonic() - begun
    until("RELEASED", ask("DELETE", f"/v1/leases/{lease['id']}")["lease"]["status"])
    return took
