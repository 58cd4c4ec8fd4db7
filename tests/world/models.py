# SPDX-License-Identifier: Apache-2.0
"""What the API looks like to clients, as objects that do one thing at a time: for `tests.world.linearizability`.

Each model is a function of a state and an operation, and returns the states that may follow: none if that cannot be.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gsaas.objects.lifecycle import TRANSITIONS, Status
from tests.world.linearizability import After

OVER = (Status.RELEASING, Status.RELEASED)
SOME = "some lease"
"""What a key has made whose launch was not answered."""


def semaphore(limit: int) -> After:
    """One of which at most *limit* is held. `("take", who, size)` and `("drop", who)`; the state is who holds what."""

    def after(held: frozenset[tuple[str, int]], what: tuple[Any, ...]) -> Collection[Any]:
        if what[0] == "take":
            _, who, size = what
            fits = sum(each for _, each in held) + size <= limit
            return [held | {(who, size)}] if fits else []
        left = frozenset(each for each in held if each[0] != what[1])
        return [] if left == held else [left]

    return after


def queue(waiting: tuple[str, ...], what: tuple[str, str]) -> Collection[tuple[str, ...]]:
    """First in, first out.

    `join`; `serve`; `pass` of one that is served without having waited; `wait` is seen to wait; `give up` is seen so
    for the last time, and is never served.
    """
    act, who = what
    if act == "join":
        return [(*waiting, who)]
    if act == "pass":
        return [] if waiting else [()]
    if act == "serve":
        return [waiting[1:]] if waiting[:1] == (who,) else []
    if who not in waiting:
        return []
    return [waiting if act == "wait" else tuple(each for each in waiting if each != who)]


def register(made: str | None, what: tuple[str, Any]) -> Collection[str | None]:
    """An idempotency key, which is set once. `answers` with a lease; `refuses`; `unknown`: it may have made one."""
    act, lease_id = what
    if act == "refuses":
        return [None] if made is None else []
    if act == "unknown":
        return [made, SOME] if made is None else [made]
    return [lease_id] if made in (None, SOME, lease_id) else []


@functools.cache
def reachable(status: str) -> frozenset[str]:
    """Return what a lease may be later that is *status* now, which is one of them."""
    found = {str(status)}
    while more := {
        str(after)
        for (before, _), after in TRANSITIONS.items()
        if str(before) in found and str(after) not in found
    }:
        found |= more
    return frozenset(found)


def lease(status: str, what: tuple[str, str | None]) -> Collection[str]:
    """The status of a lease, which changes by itself.

    `is` shows it; `ends` ends it; `nothing` is a 404 for its owner.
    """
    act, seen = what
    if act == "nothing":
        return []
    if seen not in reachable(status) or (act == "ends" and seen not in OVER):
        return []
    return [str(seen)]


@dataclass(frozen=True)
class GpuState:
    """What a new lease could have of a GPU."""

    host: str
    memory_mb: int
    free_mb: int
    is_offered: bool
    silent_at: str
    """When its monitor counts as silent unless it reports before then; UTC, by the clock of the database."""


def has_room(gpus: Sequence[GpuState], cgpus: Mapping[str, Any], until: str) -> bool:
    """Return whether *gpus* have room for a request for *cgpus* on GPUs that are surely offered *until* then."""
    wanted = cgpus.get("memory_mb")
    on_host: Counter[str] = Counter()
    for gpu in gpus:
        if not gpu.is_offered or gpu.silent_at <= until:
            continue
        if wanted is None:
            on_host[gpu.host] += gpu.free_mb == gpu.memory_mb
        else:
            on_host[gpu.host] += gpu.free_mb // wanted
    most = {
        "any": on_host.total(),
        "one": max(on_host.values(), default=0),
        "spread": sum(1 for each in on_host.values() if each),
    }
    return most[cgpus.get("hosts", "any")] >= int(cgpus["count"])
