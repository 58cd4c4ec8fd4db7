# SPDX-License-Identifier: Apache-2.0
"""An upper bound: how much could be allocated if all tasks could be moved at any time.

Only GPUs are considered, not CPU and memory. Whenever a task does not fit, all shares are packed anew, largest first
into the fullest GPU with room (best fit decreasing, which needs at most 11/9 of the fewest possible GPUs, and hardly
more than those in practice), and the task is tried again.
"""

from __future__ import annotations

import random
from bisect import bisect_left, insort
from collections.abc import Iterable, Sequence

from studies.openb.arrivals import draw_arrivals
from studies.openb.local import LOAD, AllocationCurve
from studies.openb.trace import WHOLE, OpenbNode, Task


def run(nodes: Sequence[OpenbNode], tasks: Sequence[Task], seed: int) -> AllocationCurve:
    """Let the *tasks* arrive in the order of `local.run` with the same *seed*; return what is allocated."""
    gpus = sum(node.gpus for node in nodes)
    coming = draw_arrivals(tasks, gpus * WHOLE, LOAD, random.Random(seed))
    asked, allocated = [], []
    shares: list[int] = []
    whole = shared = 0  # GPUs allocated as a whole, and GPUs with shares on them
    total = used = rejected = 0
    for task in coming:
        total += task.total_milli
        more = [task.milli] if 0 < task.milli < WHOLE else []
        taken = whole + (0 if more else task.gpus)
        room = gpus - taken
        needed = shared + len(more)
        if needed > room:
            needed = gpus_needed([*shares, *more])
        if needed > room:
            rejected += 1
        else:
            shares += more
            whole, shared = taken, needed
            used += task.total_milli
        asked.append(total / gpus / WHOLE * 100)
        allocated.append(used / gpus / WHOLE * 100)
    return AllocationCurve(asked, allocated, rejected)


def gpus_needed(shares: Iterable[int]) -> int:
    """Return the number of GPUs that *shares*, in thousandths, fill when packed best fit decreasing."""
    free: list[int] = []  # thousandths free on each GPU in use, sorted
    count = 0
    for share in sorted(shares, reverse=True):
        place = bisect_left(free, share)
        if place == len(free):
            count += 1
            insort(free, WHOLE - share)
        else:
            insort(free, free.pop(place) - share)
    return count
