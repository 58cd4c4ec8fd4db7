# SPDX-License-Identifier: Apache-2.0
"""Carries out the steps of a plan, in order, each only where it is not so already."""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gsaas.setup.machine import LeftToDo, State, Step, Unit


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
    left = False
    for step in steps:
        try:
            found = step.state()
            missing = found is State.MISSING
            if found is State.RIGHT:
                yield Done(str(step), Outcome.UNCHANGED)
            elif dry_run:
                yield Done(str(step), Outcome.WOULD_MAKE if missing else Outcome.WOULD_CHANGE)
            elif left and isinstance(step, Unit):
                raise LeftToDo("when what is above is done, run this command again")
            else:
                more = step.make()
                yield Done(str(step), Outcome.MADE if missing else Outcome.CHANGED, more)
        except LeftToDo as error:
            left = True
            yield Done(str(step), Outcome.LEFT, str(error), error.commands)
