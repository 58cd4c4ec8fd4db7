# SPDX-License-Identifier: Apache-2.0
"""An upper bound: how much could be allocated if all tasks could be moved at any time.

Only GPUs are considered, not CPU and memory. Whenever a task does not fit, all shares are packed anew, largest first
into the fullest GPU with room (best fit decreasing, which needs at most 11/9 of the fewest possible GPUs, and hardly
more than those in practice), and the task is tried again.
"""

from __future__ import annotations

import random
from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Mapping, Sequence

from studies.openb.arrivals import draw_arrivals
from studies.openb.local import LOAD, AllocationCurve
from studies.openb.trace import WHOLE, OpenbNode, Task


def run(nodes: Sequence[OpenbNode], tasks: Sequence[Task], seed: int) -> AllocationCurve:
    """Let the *tasks* arrive in the order of `local.run` with the same *seed*; return what is allocated."""
    gpus = sum(node.gpus for node in nodes)
    coming = draw_arrivals(tasks, gpus * WHOLE, LOAD, random.Random(seed))
    asked, allocated = [], []
    shares: Counter[int] = Counter()
    whole = shared = 0  # GPUs allocated as a whole, and GPUs with shares on them
    total = used = rejected = 0
    for task in coming:
        total += task.total_milli
        more = Counter([task.milli] if 0 < task.milli < WHOLE else ())
        taken = whole + (0 if more else task.gpus)
        room = gpus - taken
        needed = shared + more.total()
        if needed > room:
            needed = gpus_needed(shares + more)
        if needed > room:
            rejected += 1
        else:
            shares += more
            whole, shared = taken, needed
            used += task.total_milli
        asked.append(total / gpus / WHOLE * 100)
        allocated.append(used / gpus / WHOLE * 100)
    return AllocationCurve(asked, allocated, rejected)


def gpus_needed(shares: Mapping[int, int]) -> int:
    """Return the number of GPUs that *shares* fill when packed best fit decreasing.

    *shares* has the number of shares of each size in thousandths. Shares of one size, and GPUs on which equally much is
    free, are packed together: the result is that of packing one share after the other.
    """
    gpus: Counter[int] = Counter()  # thousandths free -> number of GPUs in use
    sizes: list[int] = []  # the keys of *gpus*, sorted
    count = 0
    for size in sorted(shares, reverse=True):
        left = shares[size]
        while left:
            place = bisect_left(sizes, size)
            if place == len(sizes):
                free, available = WHOLE, left  # idle GPUs: as many as it takes
            else:
                free = sizes[place]
                available = gpus[free]
            # Of GPUs on which equally much is free, one is filled before the next: then it has the least free.
            on_each = free // size
            filled = min(available, left // on_each)
            rest = left - filled * on_each if filled < available else 0
            for number, each in ((filled, on_each), (1 if rest else 0, rest)):
                if not number:
                    continue
                if free == WHOLE:
                    count += number
                else:
                    gpus[free] -= number
                    if not gpus[free]:
                        del gpus[free]
                        sizes.remove(free)
                after = free - each * size
                if after not in gpus:
                    insort(sizes, after)
                gpus[after] += number
                left -= number * each
    return count
