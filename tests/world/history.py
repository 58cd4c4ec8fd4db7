# SPDX-License-Identifier: Apache-2.0
"""The history of a world: each request with its answer, and what the database had after each commit. It is judged.

1. The GPUs are one semaphore of their memory, and the quota of a project is one of cGPUs: who was seen with cGPUs held
   them then. Every size divides the memory of a GPU by a power of two, so what fits into the sum fits into the GPUs.
2. Leases of a project that ask for the same are a queue: first in, first out, and nobody is served past it. Those that
   differ may pass each other, as `gsaas.gpgpums.queue` says, and are not compared.
3. An idempotency key is a register: what it was first set to, every later launch with it returns, and none is refused.
4. A lease is a register whose status changes by itself, but never back, and which is there for its owner.
5. A launch that was refused because nothing is free: there was a moment between its start and its end at which it was
   so, or at which others waited. What is free was noted at each commit. No other refusal is judged, and none of a
   launch in a reservation.

The first four are judged by what clients saw, whatever the database says. An answer that was lost may have been any.
"""

from __future__ import annotations

import json
import math
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gsaas.objects.lifecycle import Status
from tests.world import models
from tests.world.linearizability import After, Operation, TooManyOrdersError, impossible
from tests.world.models import GpuState

PROJECTS = {"member": "blue", "stranger": "red"}
BUSY, RELEASED, NOT_FOUND = "gsaas.capacity.busy", "gsaas.lease.released", "gsaas.not-found"
KEY_REUSED = "gsaas.idempotency-key.reused"


@dataclass(eq=False)
class Call:
    """A request. Points are those of the scheduler; status 0 is an answer that nobody knows."""

    caller: str
    method: str
    path: str
    body: Any
    key: str | None
    start: float
    end: float = math.inf
    ended_at: str = ""
    """By a clock that is right, UTC, as `began_at`."""
    status: int = 0
    answer: Any = None
    began_at: str = ""
    version: str = ""

    @property
    def lease_id(self) -> str | None:
        """Return the lease that its path names."""
        parts = self.path.partition("?")[0].split("/")
        return parts[3] if parts[1:3] == ["v1", "leases"] and len(parts) > 3 else None

    @property
    def is_launch(self) -> bool:
        return self.method == "POST" and self.path == "/v1/leases"

    @property
    def code(self) -> str:
        """Return the code of its error; empty without one."""
        errors = self.answer.get("errors") if isinstance(self.answer, dict) else None
        return str(errors[0]["code"]) if errors else ""

    def operation(self, *what: Any, said: str = "") -> Operation:
        key = f" with key {self.key}" if self.key else ""
        text = f"{self.caller}: {self.method} {self.path}{key}: {self.status or 'no answer'} {self.code or said}"
        return Operation(self.start, self.end, what, f"points {self.start} to {self.end}: {text}")


@dataclass(frozen=True)
class Sighting:
    """A lease in an answer."""

    call: Call
    lease_id: str
    project: str
    status: str
    waits: bool
    """It was in the queue, and its time to wait was not over at the end of the call."""
    sizes: tuple[int, ...]
    """MiB of each cGPU that it holds."""


@dataclass(frozen=True)
class Books:
    """What a new lease could have, from one point on."""

    point: float
    gpus: tuple[GpuState, ...]
    waiting: int
    """Leases in the queue."""


@dataclass
class History:
    """What happened; of a cloud with so much memory on all GPUs, and so many cGPUs for each project."""

    memory_mb: int
    quota: int
    calls: list[Call] = field(default_factory=list)
    """In the order in which they began."""
    books: list[Books] = field(default_factory=list)
    purged: Collection[str] = ()
    """Leases that were deleted some time after their end."""
    counted: Counter[str] = field(default_factory=Counter)
    """What was judged, and how often."""

    def note(self, point: float, gpus: tuple[GpuState, ...], waiting: int) -> None:
        """Note what a new lease could have after a commit."""
        self.books.append(Books(point, gpus, waiting))

    def judge(self) -> list[str]:
        """Return what cannot be, a sentence each."""
        seen = list(sightings(self.calls))
        by_lease: dict[str, list[Sighting]] = defaultdict(list)
        for each in seen:
            by_lease[each.lease_id].append(each)
        launches: dict[str, list[Call]] = defaultdict(list)
        for each in seen:
            if each.call.is_launch:
                launches[each.lease_id].append(each.call)
        return [
            *self._semaphores(by_lease, launches),
            *self._queues(by_lease, launches),
            *self._keys(),
            *self._leases(by_lease, launches),
            *self._refusals(),
        ]

    def _judge(
        self, kind: str, name: str, initial: Any, after: After, operations: Sequence[Operation]
    ) -> Iterator[str]:
        self.counted[f"history of a {kind}"] += 1
        try:
            text = impossible(initial, after, operations)
        except TooManyOrdersError:
            self.counted["history without a verdict"] += 1
            return
        if text is not None:
            yield f"history: no order explains all answers about {kind} {name}, such as {text}"

    def _began(self, launches: Sequence[Call]) -> float:
        """Return when a lease may have been launched first: maybe by a launch with its key whose answer was lost."""
        caller, key = launches[0].caller, launches[0].key
        return min(
            each.start
            for each in self.calls
            if each in launches or (key is not None and (each.caller, each.key) == (caller, key))
        )

    def _semaphores(
        self, by_lease: Mapping[str, Sequence[Sighting]], launches: Mapping[str, Sequence[Call]]
    ) -> Iterator[str]:
        memory: list[Operation] = []
        cgpus: dict[str, list[Operation]] = defaultdict(list)
        for lease_id, each in by_lease.items():
            holding = [one for one in each if one.sizes]
            if not holding:
                continue
            first = min(holding, key=lambda one: one.call.end)
            last = max(holding, key=lambda one: one.call.start).call
            began = self._began(launches[lease_id]) if lease_id in launches else 0.0
            drop = last.operation("drop", lease_id, said=f"{lease_id} has cGPUs")
            for operations, size in (
                (memory, sum(first.sizes)),
                (cgpus[first.project], len(first.sizes)),
            ):
                what = ("take", lease_id, size)
                operations += [Operation(began, first.call.end, what, drop.text), drop]
        yield from self._judge(
            "pool",
            f"of {self.memory_mb} MiB",
            frozenset(),
            models.semaphore(self.memory_mb),
            memory,
        )
        for project, operations in sorted(cgpus.items()):
            yield from self._judge(
                "quota", f"of {project}", frozenset(), models.semaphore(self.quota), operations
            )

    def _queues(
        self, by_lease: Mapping[str, Sequence[Sighting]], launches: Mapping[str, Sequence[Call]]
    ) -> Iterator[str]:
        changed = {each.lease_id for each in self.calls if each.method == "PATCH"}
        classes: dict[str, list[Operation]] = defaultdict(list)
        for lease_id, each in launches.items():
            asked = dict(each[0].body["lease"])
            if lease_id not in changed and not asked.get("attended"):
                for name in ("name", "wait"):
                    asked.pop(name, None)
                name = f"{each[0].caller} {json.dumps(asked, sort_keys=True)}"
                classes[name] += _waited(lease_id, self._began(each), by_lease[lease_id])
        for name, operations in sorted(classes.items()):
            if len(operations) > 2:
                yield from self._judge("queue", f"of {name}", (), models.queue, operations)

    def _keys(self) -> Iterator[str]:
        by_key: dict[tuple[str, str], list[Operation]] = defaultdict(list)
        for call in self.calls:
            if call.is_launch and call.key is not None:
                if call.status in range(200, 300):
                    lease_id = call.answer["lease"]["id"]
                    operation = call.operation("answers", lease_id, said=lease_id)
                elif call.status == 0 or call.status >= 500 or call.code == KEY_REUSED:
                    operation = Operation(call.start, math.inf, ("unknown", None))
                else:
                    operation = call.operation("refuses", None)
                by_key[call.caller, call.key].append(operation)
        for (caller, key), operations in by_key.items():
            if len(operations) > 1:
                yield from self._judge(
                    "key", f"{key} of {caller}", None, models.register, operations
                )

    def _leases(
        self, by_lease: Mapping[str, Sequence[Sighting]], launches: Mapping[str, Sequence[Call]]
    ) -> Iterator[str]:
        operations = {
            lease_id: [
                one.call.operation(
                    "ends" if one.call.method == "DELETE" else "is", one.status, said=one.status
                )
                for one in each
            ]
            for lease_id, each in by_lease.items()
        }
        for call in self.calls:
            lease_id = call.lease_id
            if call.status != 404 or lease_id not in launches:
                continue
            is_own = PROJECTS.get(call.caller) in (None, by_lease[lease_id][0].project)
            if is_own and call.start > min(each.end for each in launches[lease_id]):
                if call.code == RELEASED:
                    operations[lease_id].append(call.operation("is", Status.RELEASED))
                elif call.code == NOT_FOUND and lease_id not in self.purged:
                    operations[lease_id].append(call.operation("nothing", None))
        for lease_id, each in operations.items():
            yield from self._judge("lease", lease_id, Status.QUEUED, models.lease, each)

    def _refusals(self) -> Iterator[str]:
        points = [each.point for each in self.books]
        for call in self.calls:
            if not call.is_launch or call.code != BUSY or "reservation" in call.body["lease"]:
                continue
            self.counted["history of a refusal"] += 1
            first = max(0, bisect_right(points, call.start) - 1)
            asked = call.body["lease"]["cgpus"]
            if all(
                not each.waiting and models.has_room(each.gpus, asked, call.ended_at)
                for each in self.books[first : bisect_right(points, call.end)]
            ):
                text = call.operation(said=BUSY).text
                yield f"history: there was room all the time for {asked}: {text}: {call.answer['errors'][0]}"


def sightings(calls: Iterable[Call]) -> Iterator[Sighting]:
    """Return the leases that were seen in answers."""
    for call in calls:
        if call.status not in range(200, 300) or not isinstance(call.answer, dict):
            continue
        path = call.path.partition("?")[0]
        if path != "/v1/leases" and path != f"/v1/leases/{call.lease_id}":
            continue  # such as a move, which may tell what would be
        one = call.answer.get("lease")
        for each in [*([one] if one else []), *call.answer.get("leases", ())]:
            devices = () if each["status"] in (Status.QUEUED, Status.RELEASED) else each["devices"]
            until = (each.get("wait_until") or "9").replace("T", " ")
            yield Sighting(
                call,
                each["id"],
                each["project_id"],
                each["status"],
                each["status"] == Status.QUEUED and until > call.ended_at,
                tuple(device["memory_mb"] for device in devices),
            )


def _waited(lease_id: str, began: float, seen: Sequence[Sighting]) -> Iterator[Operation]:
    """Return what is known of a lease's time in the queue."""
    waiting = [each.call for each in seen if each.waits]
    holding = [each.call for each in seen if each.sizes]
    served = min(holding, key=lambda each: each.end, default=None)
    launch = min((each.call for each in seen if each.call.is_launch), key=lambda each: each.end)
    if not waiting:
        if launch in holding and launch.answer["lease"]["queued_at"] is None:
            text = launch.operation(said=f"{lease_id} did not wait").text
            yield Operation(began, launch.end, ("pass", lease_id), text)
        return
    last = max(waiting, key=lambda each: each.start)
    joined = min(waiting, key=lambda each: each.end)
    text = joined.operation(said=f"{lease_id} waits").text
    yield Operation(began, joined.end, ("join", lease_id), text)
    act = "give up" if served is None else "wait"
    yield last.operation(act, lease_id, said=f"{lease_id} still waits")
    if served is not None:
        text = served.operation(said=f"{lease_id} was served").text
        yield Operation(began, served.end, ("serve", lease_id), text)
