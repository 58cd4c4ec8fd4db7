"""In which order tasks arrive, and how many: the trace's, made as many as it takes to ask for more than there is."""

from __future__ import annotations

import random
from collections.abc import Sequence

from studies.openb.trace import Task


def arrivals(tasks: Sequence[Task], capacity: int, load: float, rng: random.Random) -> list[Task]:
    """Return *tasks* in random order, until together they ask for *load* times *capacity* GPU thousandths.

    Too few, and tasks drawn from among them follow, each as often as it is drawn; too many, and some drawn at random
    are left out. The draw ends with the first task whose share of one GPU would go beyond the load.
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
