# SPDX-License-Identifier: Apache-2.0
"""Prints what clients ask in worlds, as JSON, so that others can ask real services the same: `SEEDS OPERATIONS`.

For each seed, from 1 on, its first operations are carried out, one a second and without faults: the requests that were
answered, in the order of their answers, each with the moment of its start and the id of what it made.
"""

from __future__ import annotations

import json
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.world import baton, facade, operations, world
from tests.world.history import Call

FIRST = 10.0
"""When GPUs have been reported, in seconds."""
MADE = {"/v1/leases": "lease", "/v1/reservations": "reservation"}
"""Path -> what a POST there makes."""


def recorded(seed: int, number: int) -> list[dict[str, Any]]:
    """Return what was asked in one world."""
    facade.install()
    with tempfile.TemporaryDirectory(dir=world.FOLDER) as folder:
        made = world.World(seed, Path(folder))
        wanted = [each for each in made.plan() if hasattr(operations, each.name)][:number]
        wanted = [replace(each, at=FIRST + place) for place, each in enumerate(wanted)]
        made.plan = lambda: wanted  # type: ignore[method-assign]
        made.settle = lambda: None  # type: ignore[method-assign]  # all was asked by then
        try:
            with suppress(baton.Stuck):
                made.run()
        finally:
            calls = made.history.calls
            made.end()
            baton.scheduler = None
    answered = sorted((each for each in calls if each.status), key=lambda each: each.end)
    return [_described(each) for each in answered]


def _described(call: Call) -> dict[str, Any]:
    noun = MADE.get(call.path) if call.method == "POST" else None
    made = call.answer.get(noun, {}).get("id") if noun and isinstance(call.answer, dict) else None
    return {
        "caller": call.caller,
        "method": call.method,
        "path": call.path,
        "body": call.body,
        "key": call.key,
        "version": call.version,
        "began_at": call.began_at,
        "made": made,
    }


if __name__ == "__main__":
    seeds, number = map(int, sys.argv[1:])
    with ProcessPoolExecutor() as pool:
        found = pool.map(recorded, range(1, seeds + 1), [number] * seeds)
        json.dump(list(found), sys.stdout)
