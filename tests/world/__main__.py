# SPDX-License-Identifier: Apache-2.0
"""`./dev world`: runs seeds, tells the story of one, or finds the fewest happenings that still break a rule."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Collection, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from typing import Any

HASHES = "0"
"""The order of sets of texts follows from this."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run what *argv* asks for; return 1 if a rule was broken."""
    parser = argparse.ArgumentParser(prog="./dev world", description=__doc__)
    parser.add_argument("--seeds", type=int, default=100, help="how many seeds to run")
    parser.add_argument("--first", type=int, default=1, help="the first of them")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seed", type=int, help="run this one only")
    parser.add_argument("--trace", action="store_true", help="tell its story")
    parser.add_argument("--shrink", type=int, metavar="SEED")
    parser.add_argument("--planted", metavar="BUG", help="plant a bug of tests.world.planted")
    parser.add_argument("--until-broken", action="store_true", help="end at the first broken rule")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(argv)
    if os.environ.get("PYTHONHASHSEED") != HASHES:
        os.environ["PYTHONHASHSEED"] = HASHES
        os.execv(sys.executable, [sys.executable, "-m", "tests.world", *(argv or sys.argv[1:])])
    if options.shrink is not None:
        return _shrink(options.shrink, options.planted)
    if options.seed is not None:
        return _one(options.seed, options.planted, tell=options.trace)
    return _many(options)


def _one(seed: int, plant: str | None, *, tell: bool) -> int:
    outcome = _run(seed, plant)
    if tell:
        print(*outcome["story"], sep="\n")
    print(f"seed {seed}: story {outcome['digest']}, {outcome['points']} points")
    print(*outcome["broken"], sep="\n")
    return 1 if outcome["broken"] else 0


def _many(options: argparse.Namespace) -> int:
    began = time.monotonic()
    seeds = range(options.first, options.first + options.seeds)
    counted: Counter[str] = Counter()
    broken: dict[int, list[str]] = {}
    points, fewest, done = 0, sys.maxsize, 0
    with ProcessPoolExecutor(options.jobs, initializer=_pin) as pool:
        running = [pool.submit(_run_alone, seed, options.planted) for seed in seeds]
        for each in as_completed(running):
            outcome = each.result()
            done += 1
            counted.update(outcome["counted"])
            points += outcome["points"]
            fewest = min(fewest, outcome["points"])
            if outcome["broken"]:
                broken[outcome["seed"]] = outcome["broken"]
                if not options.json:
                    print(f"seed {outcome['seed']}: {outcome['broken'][0]}", flush=True)
                if options.until_broken:
                    pool.shutdown(cancel_futures=True)
                    break
    took = time.monotonic() - began
    if options.json:
        found = {"counted": counted, "broken": broken, "fewest_points": fewest, "seeds": done}
        print(json.dumps(found))
    else:
        print(
            f"{done} seeds, {len(broken)} of them broke a rule; {points // done} points each; "
            f"{took:.0f} s"
        )
    return 1 if broken else 0


def _pin() -> None:
    """Keep this process, whose threads run one at a time, on one processor: they hand over faster there."""
    processors = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {processors[os.getpid() % len(processors)]})


def _run_alone(seed: int, plant: str | None) -> dict[str, Any]:
    return {**_run(seed, plant), "story": []}


def _run(seed: int, plant: str | None, kept: Collection[int] | None = None) -> dict[str, Any]:
    from tests.world import planted, world

    planted.plant(plant)
    return vars(world.run(seed, kept))


def _shrink(seed: int, plant: str | None) -> int:
    """Leave out as many happenings as can be left out, larger parts of them first."""
    outcome = _run(seed, plant)
    if not outcome["broken"]:
        print(f"seed {seed} breaks no rule")
        return 0
    rule = _rules(outcome)[0]
    kept = list(range(outcome["reached"]))
    size = len(kept)
    while size := size // 2:
        start = 0
        while start < len(kept):
            tried = kept[:start] + kept[start + size :]
            found = _run(seed, plant, tried)
            if rule in _rules(found):
                kept, outcome = [each for each in tried if each < found["reached"]], found
                print(f"{len(kept)} happenings break it, too", file=sys.stderr, flush=True)
            else:
                start += size
    print(*outcome["story"], sep="\n")
    print(f"seed {seed} needs {len(kept)} happenings")
    print(*outcome["broken"], sep="\n")
    return 1


def _rules(outcome: dict[str, Any]) -> list[str]:
    """Return which rules were broken, by the word with which their sentences begin."""
    return [each.partition(":")[0] for each in outcome["broken"]]


if __name__ == "__main__":
    sys.exit(main())
