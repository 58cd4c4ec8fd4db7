# SPDX-License-Identifier: Apache-2.0
"""Ends units that have the name of a daemon's, and a description that this release cannot read.

They may be of another release, whose monitor started them for leases that this one cannot know. They are asked to stop,
and killed after a while, until nothing is left of them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from gsaas.gpu_host.daemons import unit
from gsaas.gpu_host.daemons.plan import kill_pause
from gsaas.gpu_host.daemons.runner import DaemonRunner
from gsaas.gpu_host.daemons.unit import UnitState

LOG = logging.getLogger(__name__)


@dataclass
class _Stranger:
    unit: str
    seen_at: float
    attempts: int = 0
    """How many times it was to end."""
    retry_at: float = 0.0


class Strangers:
    """The strangers of one host; *stop_timeout* is the time from asking one to end until it is killed, in seconds."""

    def __init__(
        self, runner: DaemonRunner, stop_timeout: float, clock: Callable[[], float]
    ) -> None:
        self._runner = runner
        self._stop_timeout = stop_timeout
        self._clock = clock
        self._strangers: dict[str, _Stranger] = {}

    @property
    def keys(self) -> Collection[str]:
        """The keys of daemons that cannot start because a unit of that name exists already."""
        return self._strangers.keys()

    def end(self, units: Mapping[str, UnitState], known: Collection[str]) -> None:
        """Do what is due about the strangers among *units*, by key; those in *known* are daemons.

        Raises `gsaas.gpu_host.daemons.systemd.SystemdUnavailable`.
        """
        now = self._clock()
        for key, state in units.items():
            if key in known or key in self._strangers or state.ended:
                continue
            try:
                unit.parse(state.description)
            except ValueError as error:
                LOG.warning("ending unit %s, whose daemon is not known: %s", state.name, error)
                self._strangers[key] = _Stranger(state.name, now)
        for key, stranger in list(self._strangers.items()):
            if not self._runner.has_processes(units.get(key)):
                self._runner.forget(key)
                del self._strangers[key]
            elif now >= stranger.retry_at:
                late = now >= stranger.seen_at + self._stop_timeout
                (self._runner.kill if late else self._runner.stop)(key)
                stranger.attempts += 1
                stranger.retry_at = now + kill_pause(stranger.attempts)

    def due(self) -> float | None:
        """Return the seconds until `end` has to be called; None: there is no stranger."""
        moments = [stranger.retry_at for stranger in self._strangers.values()]
        return min(moments) - self._clock() if moments else None

    def problem(self, key: str) -> str | None:
        """Return what an operator is told of the stranger with this key, a sentence; None if there is none."""
        stranger = self._strangers.get(key)
        if stranger is None:
            return None
        return (
            f"unit {stranger.unit} is named like a daemon's, but this release cannot read its description; it is "
            "being ended"
        )

    def problems(self) -> list[str]:
        """Return all of these."""
        return [problem for key in self._strangers if (problem := self.problem(key))]
