# SPDX-License-Identifier: Apache-2.0
"""Readings of a lease: what its cGPUs did in each interval of the last day, at a resolution that falls with time. Pure.

1. Each reading is added to the current interval of each of `RESOLUTIONS`. The intervals of a resolution take turns in a
   fixed number of slots, so that a cGPU never has more than `ROWS` rows, and a lease's path no more either.
2. `WHOLE` is one interval more, which never ends. It knows when the cGPU or the path was last busy, and what the cGPU
   did in all: it stays when the lease has ended, as the others do not.
3. Counters of the path grow from the moment of its binding. The difference of two intervals is what happened between
   them; a counter that has become smaller began anew, because the VM has moved to another host.
"""

from __future__ import annotations

import datetime
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple


class Resolution(NamedTuple):
    """Intervals of one length, of which the last few are kept."""

    seconds: int
    kept: int


WHOLE = 0
"""The resolution of the interval that never ends, instead of its seconds."""
RESOLUTIONS = (Resolution(60, 60), Resolution(600, 144))
"""Finest first: minutes of the last hour, and ten minutes of the last day."""
ROWS = 1 + sum(resolution.kept for resolution in RESOLUTIONS)
"""Rows that a cGPU, or the path of a lease, has at most."""

QUIET_BYTES = 4096
"""A path that carries no more than this between two reports is not in use: keepalives of TCP are less."""
IDLE_AFTER = datetime.timedelta(minutes=5)
"""A lease that was in use so lately is not idle."""
FRESH = datetime.timedelta(minutes=10)
"""After so long without a reading nobody knows whether a cGPU is in use."""
SHOWN_FOR = 3
"""The latest reading is shown until so many minutes are over; a report may be late."""
_LONGEST_GAP = 3
"""Intervals; over a longer gap, a rate would say little about its end."""

_EPOCH = datetime.datetime(1970, 1, 1)
"""UTC without a time zone, as all times of the database."""


class Slot(NamedTuple):
    """Where a reading is stored."""

    resolution: int
    """Seconds, or `WHOLE`."""
    slot: int
    number: int
    """Identifies the interval; another one with the same slot is over, and may be overwritten."""


def number_of(at: datetime.datetime, seconds: int) -> int:
    """Return the number of the interval of *seconds* that contains the moment *at* (UTC)."""
    return int((at - _EPOCH).total_seconds() // seconds)


def beginning_of(number: int, seconds: int) -> datetime.datetime:
    """Undo `number_of`: return the moment (UTC) at which that interval begins."""
    return _EPOCH + datetime.timedelta(seconds=number * seconds)


def slots_of(at: datetime.datetime) -> list[Slot]:
    """Return the slots of a reading that was taken *at* this moment (UTC)."""
    slots = [Slot(WHOLE, 0, 0)]
    for seconds, kept in RESOLUTIONS:
        number = number_of(at, seconds)
        slots.append(Slot(seconds, number % kept, number))
    return slots


@dataclass(frozen=True)
class CgpuInterval:
    """What one cGPU did in one interval, as it is stored."""

    position: int
    resolution: int
    number: int
    at: datetime.datetime
    """The last reading in it."""
    samples: int
    """Readings with a utilisation."""
    utilisation_sum: float
    """Their sum, percent."""
    used_mb: int | None
    """MiB, the most of all readings; None if none had it."""
    busy_at: datetime.datetime
    """The last reading that found the cGPU in use or did not know, in this interval or before."""
    utilisation_max: float | None = None
    """The highest of its readings, percent; None if there is none."""

    @property
    def utilisation(self) -> float | None:
        """The mean of its readings, percent; None if there is none."""
        return self.utilisation_sum / self.samples if self.samples else None


@dataclass(frozen=True)
class PathInterval:
    """The counters of a lease's masked path at the end of one interval, as they are stored."""

    resolution: int
    number: int
    at: datetime.datetime
    sent_bytes: int
    """From the VM to its cGPUs."""
    received_bytes: int
    connections: int
    dropped_packets: int
    busy_at: datetime.datetime
    """The last report after which more than `QUIET_BYTES` had been carried."""


@dataclass(frozen=True)
class CgpuPoint:
    """One cGPU in one interval. None: not known."""

    position: int
    utilisation: float | None
    """Percent."""
    used_mb: int | None
    """MiB."""


@dataclass(frozen=True)
class PathPoint:
    """The masked path of a lease in one interval. None: not known, because there is no interval before it."""

    sent_bytes_per_second: float | None
    received_bytes_per_second: float | None
    connections: int
    """Open ones, at the end."""
    dropped_packets: int | None


@dataclass(frozen=True)
class Point:
    """All that is known of a lease in one interval, which begins *at*."""

    at: datetime.datetime
    cgpus: tuple[CgpuPoint, ...] = ()
    path: PathPoint | None = None


@dataclass(frozen=True)
class Use:
    """What was made of a lease's cGPUs from its beginning on. None: not known."""

    mean_utilisation: float | None
    """Percent, the mean of all readings of all cGPUs."""
    peak_utilisation: float | None
    """Percent, the highest reading of any cGPU."""
    peak_memory_mb: int | None
    """MiB, the most that one cGPU used."""


def use_of(cgpus: Iterable[CgpuInterval]) -> Use:
    """Return what `WHOLE` of each of a lease's cGPUs says of its use; intervals of other resolutions are ignored."""
    lives = [cgpu for cgpu in cgpus if cgpu.resolution == WHOLE]
    samples = sum(life.samples for life in lives)
    return Use(
        sum(life.utilisation_sum for life in lives) / samples if samples else None,
        max(
            (life.utilisation_max for life in lives if life.utilisation_max is not None),
            default=None,
        ),
        max((life.used_mb for life in lives if life.used_mb is not None), default=None),
    )


def points(
    resolution: Resolution,
    cgpus: Iterable[CgpuInterval],
    paths: Iterable[PathInterval],
    now: datetime.datetime,
) -> list[Point]:
    """Return the intervals of *resolution* that have not passed out of it by *now*, oldest first, without empty ones.

    Intervals of other resolutions are ignored.
    """
    seconds, kept = resolution
    current = number_of(now, seconds)

    def is_shown(number: int) -> bool:
        return current - kept < number <= current

    by_number: dict[int, list[CgpuPoint]] = {}
    for cgpu in sorted(cgpus, key=lambda each: each.position):
        if cgpu.resolution == seconds and is_shown(cgpu.number):
            point = CgpuPoint(cgpu.position, cgpu.utilisation, cgpu.used_mb)
            by_number.setdefault(cgpu.number, []).append(point)
    path_points = _path_points([path for path in paths if path.resolution == seconds])
    shown = by_number.keys() | {number for number in path_points if is_shown(number)}
    return [
        Point(
            beginning_of(number, seconds),
            tuple(by_number.get(number, ())),
            path_points.get(number),
        )
        for number in sorted(shown)
    ]


def latest(found: Collection[Point], now: datetime.datetime) -> Point | None:
    """Return the newest of what *found*, which are minutes, has of each cGPU and of the path; None if all are old.

    Not all that is reported of one lease comes at the same moment, so the newest minute alone may lack some of it.
    """
    oldest = now - datetime.timedelta(minutes=SHOWN_FOR)
    young = [point for point in found if point.at >= oldest]
    if not young:
        return None
    cgpus = {cgpu.position: cgpu for point in young for cgpu in point.cgpus}
    path = next((point.path for point in reversed(young) if point.path), None)
    return Point(young[-1].at, tuple(cgpus[position] for position in sorted(cgpus)), path)


def idle_since(
    count: int,
    cgpus: Iterable[CgpuInterval],
    paths: Iterable[PathInterval],
    now: datetime.datetime,
) -> datetime.datetime | None:
    """Return since when a lease of *count* cGPUs has been idle; None if it is in use, or if that is not known.

    It is idle while no kernel runs on any of its cGPUs and next to nothing passes its path. A cGPU whose utilisation
    cannot be told counts as in use.
    """
    known = [cgpu for cgpu in cgpus if cgpu.resolution == WHOLE]
    if len(known) < count:
        return None
    seen = [(cgpu.at, cgpu.busy_at) for cgpu in known]
    seen += [(path.at, path.busy_at) for path in paths if path.resolution == WHOLE]
    if any(at < now - FRESH for at, _ in seen):
        return None
    last_busy = max(busy_at for _, busy_at in seen)
    return last_busy if last_busy <= now - IDLE_AFTER else None


def _path_points(paths: Collection[PathInterval]) -> Mapping[int, PathPoint]:
    """Return the points of *paths*, which have one resolution, by number of the interval."""
    in_order = sorted(paths, key=lambda each: each.number)
    found = {path.number: PathPoint(None, None, path.connections, None) for path in in_order[:1]}
    for before, path in pairwise(in_order):
        seconds = (path.at - before.at).total_seconds()
        if path.number - before.number > _LONGEST_GAP or seconds <= 0:
            found[path.number] = PathPoint(None, None, path.connections, None)
        else:
            found[path.number] = PathPoint(
                _growth(before.sent_bytes, path.sent_bytes) / seconds,
                _growth(before.received_bytes, path.received_bytes) / seconds,
                path.connections,
                _growth(before.dropped_packets, path.dropped_packets),
            )
    return found


def _growth(before: int, after: int) -> int:
    """Return by how much a counter grew; one that became smaller began again from 0."""
    return after - before if after >= before else after
