# SPDX-License-Identifier: Apache-2.0
"""Arrivals: the tasks of the trace in random order, as many as it takes to exceed the capacity."""

from __future__ import annotations

import random
from collections.abc import Sequence

from studies.openb.trace import Task


def draw_arrivals(
    tasks: Sequence[Task], capacity: int, load: float, rng: random.Random
) -> list[Task]:
    """Return *tasks* in random order, such that together they ask for *load* times *capacity* GPU thousandths.

    If they ask for less, tasks drawn from among them, with repetition, follow; if they ask for more, some drawn at
    random are left out. Drawing ends with the first task whose thousandths of one GPU would exceed the load.
    """
    wanted = load * capacity
    order = list(tasks)
    rng.shuffle(order)
    asked = sum(task.total_milli for task in order)
    while asked > wanted:
        asked -= order.pop(rng.randrange(len(order))).total_milli
    while True:
        task = tasks[rng.randrange(len(tasks))]
        if asked + task.milli > wanted:
            return order
        order.append(task)
        asked += task.total_milli
