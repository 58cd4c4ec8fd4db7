"""What could be allocated if every task could be moved at any time: no placement of whole shares does much better.

GPUs alone count here, not CPU and memory. Whenever a task finds no room, all shares are packed anew, largest first into
the tightest GPU that has room (best fit decreasing, which needs at most 11/9 of the fewest GPUs, and one here and
there in practice), and the task is tried once more.
"""

from __future__ import annotations

import random
from bisect import bisect_left, insort
from collections.abc import Iterable, Sequence

from studies.openb.arrivals import arrivals
from studies.openb.local import LOAD, Curve
from studies.openb.trace import WHOLE, Node, Task


def run(nodes: Sequence[Node], tasks: Sequence[Task], seed: int) -> Curve:
    """Let the *tasks* arrive as `local.run` does with the same *seed*."""
    gpus = sum(node.gpus for node in nodes)
    coming = arrivals(tasks, gpus * WHOLE, LOAD, random.Random(seed))
    asked, allocated = [], []
    shares: list[int] = []
    whole = shared = 0  # GPUs taken whole, and GPUs with shares on them
    total = used = turned_away = 0
    for task in coming:
        total += task.total_milli
        more = [task.milli] if 0 < task.milli < WHOLE else []
        taken = whole + (0 if more else task.gpus)
        room = gpus - taken
        needed = shared + len(more)
        if needed > room:
            needed = bins([*shares, *more])
        if needed > room:
            turned_away += 1
        else:
            shares += more
            whole, shared = taken, needed
            used += task.total_milli
        asked.append(total / gpus / WHOLE * 100)
        allocated.append(used / gpus / WHOLE * 100)
    return Curve(asked, allocated, turned_away)


def bins(shares: Iterable[int]) -> int:
    """GPUs that *shares* need, packed best fit decreasing."""
    free: list[int] = []
    count = 0
    for share in sorted(shares, reverse=True):
        place = bisect_left(free, share)
        if place == len(free):
            count += 1
            insort(free, WHOLE - share)
        else:
            insort(free, free.pop(place) - share)
    return count
