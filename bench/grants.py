# SPDX-License-Identifier: Apache-2.0
"""What a grant costs: signing it with the environment, verifying it, redeeming it in the database.

A grant is signed for every lease that is given real addresses, so the cost is also measured there: a lease without a VM
is created and released through the whole API (SQLite, the WSGI application called in this process), with and without
grants. Redemption is one transaction, on disk when it returns. All take turns in every round, and medians are compared.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from oslo_utils import timeutils

from bench.report import machine, median
from gsaas.api import auth
from gsaas.grants.keyring import Keyring
from gsaas.grants.redemption import PresentedGrant, redeem
from tests.api.world import World, token

ROUNDS, QUICK_ROUNDS = 200, 2
REPEATS = 20
"""Grants are signed and verified so often in a row: a single one would be slowed down by the disk access before it."""
KEY = "bench:" + "YmVu" * 11
ADDRESS = "192.0.2.1"


def run(quick: bool = False) -> dict[str, Any]:
    """Return median times: microseconds for each part of a grant, milliseconds for a lease with and without it."""
    ring = Keyring([KEY])
    now = timeutils.utcnow()
    grant = ring.sign("0" * 36, "f" * 32, now)
    taken: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory(prefix="gsaas-bench-") as folder:
        worlds = {
            "a lease without grants": _world(Path(folder, "without"), ""),
            "a lease with a grant": _world(Path(folder, "with"), f"[grants]\nkey = {KEY}\n"),
        }
        for turn in range(QUICK_ROUNDS if quick else ROUNDS):
            _time(taken, "sign", lambda: ring.sign("0" * 36, "f" * 32, now), REPEATS)
            _time(taken, "verify", lambda: ring.verify(grant, now), REPEATS)
            for name, world in sorted(worlds.items(), reverse=turn % 2 == 0):  # in turns
                _time(taken, name, partial(_create_and_release, world))
            lease = _create_lease(worlds["a lease with a grant"])
            presented = PresentedGrant(lease["environment"]["GSAAS_GRANT"], ADDRESS)
            database = worlds["a lease with a grant"].database
            _time(taken, "redeem", partial(redeem, database, ring, presented))
            _release_and_run_engine(worlds["a lease with a grant"], lease)
        for world in worlds.values():
            world.database.close()
    found = {name: median(times) for name, times in taken.items()}
    rows = [
        {"grant": name, "median_us": found[name] * 1e6} for name in ("sign", "verify", "redeem")
    ]
    rows += [{"API": name, "median_ms": found[name] * 1e3} for name in worlds]
    added = found["a lease with a grant"] / found["a lease without grants"]
    reach = [
        {"what": "API: a lease with a grant against one without", "value": added, "bound": "<= 1.1"}
    ]
    return {"bench": "grants", "machine": machine(), "rows": rows, "reach": reach}


def _world(folder: Path, settings: str) -> World:
    folder.mkdir()
    return World.build(folder, settings=settings)


def _create_lease(world: World) -> dict[str, Any]:
    body = {"cgpus": {"count": 1, "mode": "shared", "memory_mb": 64}, "server": None}
    answer = world.app.test_client().post(
        "/v1/leases",
        data=json.dumps({"lease": body}),
        content_type="application/json",
        headers={auth.HEADER: token("member")},
    )
    created: dict[str, Any] = answer.get_json()
    return created


def _release_lease(world: World, answer: dict[str, Any]) -> None:
    path = f"/v1/leases/{answer['lease']['id']}"
    world.app.test_client().delete(path, headers={auth.HEADER: token("member")})


def _create_and_release(world: World) -> None:
    _release_lease(world, _create_lease(world))


def _release_and_run_engine(world: World, answer: dict[str, Any]) -> None:
    """Release a lease whose grant was redeemed: the engine has to close the fence before it is over."""
    _release_lease(world, answer)
    world.engine.settle()


def _time(
    taken: dict[str, list[float]], name: str, action: Callable[[], object], count: int = 1
) -> None:
    began = time.perf_counter()
    for _ in range(count):
        action()
    taken.setdefault(name, []).append((time.perf_counter() - began) / count)
