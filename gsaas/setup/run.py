# SPDX-License-Identifier: Apache-2.0
"""Carries out the steps of a plan, in order, each only where it is not so already."""

from __future__ import annotations

import enum
import functools
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from oslo_config import cfg

from gsaas import conf
from gsaas.setup import machine, plan
from gsaas.setup.machine import LeftToDo, State
from gsaas.setup.plan import (
    BusAccount,
    DatabaseAccount,
    File,
    KeystoneEntries,
    Step,
    Tables,
    Unit,
)


class Outcome(enum.StrEnum):
    """What became of a step."""

    MADE = "made"
    CHANGED = "changed"
    UNCHANGED = "unchanged"
    WOULD_MAKE = "would make"
    WOULD_CHANGE = "would change"
    LEFT = "left to do"


@dataclass(frozen=True)
class Done:
    """A step and its outcome: a line of the command, or an object of its JSON."""

    step: str
    outcome: Outcome
    more: str | None = None
    """What else there is to say; why it is left to do."""
    commands: Sequence[str] = ()
    """What to type instead, here or elsewhere."""


def carry_out(steps: Sequence[Step], *, dry_run: bool) -> Iterator[Done]:
    """Yield each step once it is done, or once it is known what there would be to do.

    Units stay as they are while something before them is left to do. Raises `oslo_config.cfg.Error` if an option of the
    operator's own is not allowed.
    """
    others = _Services(steps)
    changed: set[str] = set()
    left = False
    for step in steps:
        state, make = others.of(step) or (
            functools.partial(machine.state, step, changed),
            functools.partial(machine.make, step),
        )
        try:
            found = state()
            if found is State.RIGHT:
                yield Done(step.said, Outcome.UNCHANGED)
                continue
            missing = found is State.MISSING
            if isinstance(step, File):
                changed.add(step.path)
            if dry_run:
                yield Done(step.said, Outcome.WOULD_MAKE if missing else Outcome.WOULD_CHANGE)
                continue
            if left and isinstance(step, Unit):
                raise LeftToDo("when what is above is done, run this command again")
            more = make()
            yield Done(step.said, Outcome.MADE if missing else Outcome.CHANGED, more)
        except LeftToDo as error:
            left = True
            yield Done(step.said, Outcome.LEFT, str(error), error.commands)


class _Services:
    """What other services keep, asked with the configuration that the plan writes."""

    def __init__(self, steps: Sequence[Step]) -> None:
        wanted = f"{plan.ETC}/gsaas.conf"
        self._text = next(
            (step.text for step in steps if isinstance(step, File) and step.path == wanted), ""
        )
        self._conf: cfg.ConfigOpts | None = None

    def of(self, step: Step) -> tuple[Callable[[], State], Callable[[], str | None]] | None:
        """Return what says how *step* is, and what makes it so; None if it concerns this machine."""
        if not isinstance(step, BusAccount | DatabaseAccount | Tables | KeystoneEntries):
            return None
        # Imported here: agents' hosts have no libraries of databases, and need none of this.
        from gsaas.setup import services

        settings = self._configuration()
        match step:
            case BusAccount():
                bus = services.Bus(settings)
                return bus.state, lambda: bus.make(step)
            case DatabaseAccount():
                sql = services.Sql(settings)
                return sql.state, lambda: sql.make(step)
            case Tables():
                sql = services.Sql(settings)
                return sql.state_of_tables, sql.make_tables
            case KeystoneEntries():
                keystone = services.Keystone(settings)
                return lambda: keystone.state(step), lambda: keystone.make(step)

    def _configuration(self) -> cfg.ConfigOpts:
        """Return the configuration that services here will have, with the operator's own options."""
        if self._conf is None:
            with tempfile.NamedTemporaryFile("w", suffix=".conf") as file:  # root's own
                file.write(self._text)
                file.flush()
                self._conf = conf.load(files=[file.name])
        return self._conf
