# SPDX-License-Identifier: Apache-2.0
"""The parts of the bed and the order they come in: what needs what, and nothing else about them.

A unit is ready when it has prepared, its daemons run, and it has finished. Every function of a unit
looks before it acts, so bringing up what is up already changes nothing.
"""

from __future__ import annotations

import graphlib
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass

from tests.openstack.bed import processes
from tests.openstack.bed.errors import BedError

SIDE_BY_SIDE = 6
"""Units in work at once. More than the cores of a small machine: they mostly wait."""


def nothing() -> None:
    """What a unit does that has nothing to do."""


@dataclass(frozen=True)
class Unit:
    """One part of the cloud; *needs* names the units that must be ready before it."""

    name: str
    needs: tuple[str, ...] = ()
    prepare: Callable[[], None] = nothing
    daemons: tuple[processes.Daemon, ...] = ()
    finish: Callable[[], None] = nothing

    def bring_up(self) -> None:
        self.prepare()
        with ThreadPoolExecutor(max_workers=max(1, len(self.daemons))) as pool:
            list(pool.map(processes.ensure, self.daemons))
        self.finish()


def bring_up(units: Sequence[Unit], report: Callable[[str, float], None]) -> None:
    """Make every unit ready; tell *report* the name of each and the seconds it took.

    The first `BedError` ends it, once the units in work at that moment are done.
    """
    by_name = {unit.name: unit for unit in units}
    order = graphlib.TopologicalSorter({unit.name: unit.needs for unit in units})
    order.prepare()
    working: dict[Future[float], str] = {}
    with ThreadPoolExecutor(max_workers=SIDE_BY_SIDE) as pool:
        while order.is_active():
            for name in order.get_ready():
                working[pool.submit(_timed, by_name[name])] = name
            done, _ = wait(working, return_when=FIRST_COMPLETED)
            for future in done:
                name = working.pop(future)
                try:
                    report(name, future.result())
                except BedError as error:
                    raise BedError(f"{name}: {error}") from error
                order.done(name)


def _timed(unit: Unit) -> float:
    began = time.monotonic()
    unit.bring_up()
    return time.monotonic() - began
