"""What a grant costs: signing it with the environment, verifying it, redeeming it in the database.

Signing is on the way of every lease that is told real addresses, so it is also measured there: a lease
without a VM taken and given back through the whole API (SQLite, the WSGI application called in this
process), with and without grants. Redemption is one transaction, on disk when it returns. All take turns in
every round; of each the median counts.
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

ROUNDS = 200
AT_ONCE = 20
"""Grants signed, and verified, one after the other: one alone says more of the disk that it comes after."""
KEY = "bench:" + "YmVu" * 11
ADDRESS = "192.0.2.1"


def run() -> dict[str, Any]:
    """Median times: microseconds for each part of a grant, milliseconds for a lease with and without."""
    ring = Keyring([KEY])
    now = timeutils.utcnow()
    grant = ring.sign("0" * 36, "f" * 32, now)
    taken: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory(prefix="gsaas-bench-") as folder:
        worlds = {
            "a lease without grants": _world(Path(folder, "without"), ""),
            "a lease with a grant": _world(Path(folder, "with"), f"[grants]\nkey = {KEY}\n"),
        }
        for turn in range(ROUNDS):
            _time(taken, "sign", lambda: ring.sign("0" * 36, "f" * 32, now), AT_ONCE)
            _time(taken, "verify", lambda: ring.verify(grant, now), AT_ONCE)
            for name, world in sorted(worlds.items(), reverse=turn % 2 == 0):  # in turns
                _time(taken, name, lambda world=world: _give_back(world, _take(world)))
            lease = _take(worlds["a lease with a grant"])
            shown = PresentedGrant(lease["environment"]["GSAAS_GRANT"], ADDRESS)
            database = worlds["a lease with a grant"].database
            _time(taken, "redeem", partial(redeem, database, ring, shown))
            _clean(worlds["a lease with a grant"], lease)
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


def _take(world: World) -> dict[str, Any]:
    body = {"cgpus": {"count": 1, "mode": "shared", "memory_mb": 64}, "server": None}
    answer = world.app.test_client().post(
        "/v1/leases",
        data=json.dumps({"lease": body}),
        content_type="application/json",
        headers={auth.HEADER: token("member")},
    )
    return answer.json


def _give_back(world: World, answer: dict[str, Any]) -> None:
    path = f"/v1/leases/{answer['lease']['id']}"
    world.app.test_client().delete(path, headers={auth.HEADER: token("member")})


def _clean(world: World, answer: dict[str, Any]) -> None:
    """What the engine would do: a redeemed lease is not over with its owner's word."""
    _give_back(world, answer)
    world.engine.settle()


def _time(
    taken: dict[str, list[float]], name: str, action: Callable[[], object], count: int = 1
) -> None:
    began = time.perf_counter()
    for _ in range(count):
        action()
    taken.setdefault(name, []).append((time.perf_counter() - began) / count)
