# SPDX-License-Identifier: Apache-2.0
"""What remote GPUs cost: a daemon on the lender's node, and the guest's time.

A daemon serves one cGPU of a consumer on another node and needs CPU and memory of its own node: a node without them
lends nothing. The network card of a node is shared by all cGPUs that its tasks use remotely and all that it lends,
each in proportion to its part of a GPU.

The guest's time follows the equations of the RQ papers (2014: equations 2 to 6; 2016: equations 1 and 2): a remote GPU
adds a latency to each CUDA call, and data moves at the bandwidth that is left for it. Per second on a whole local GPU a
guest makes `CALLS` calls and moves `BYTES`: the calls are those of the MRQ paper's Table 4 (a million in 1,000 s), the
bytes are an assumption, a tenth of what a GPU's bus moves.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from studies.batch.models import NODE_2016, RCUDA_5
from studies.openb.trace import WHOLE

CALLS = 1000.0
"""CUDA calls per second."""
BYTES = NODE_2016.gpu_bandwidth / 10
"""Bytes per second between host and GPU, for a whole GPU."""
DAEMON_MEMORY = 512
"""MiB of host memory of one daemon: an assumption, as much as a CUDA context takes."""


@dataclass(frozen=True)
class RemoteCosts:
    """The costs of a remote cGPU: *cpu* thousandths of a core and *memory* MiB of the node that lends the GPU."""

    cpu: int = 0
    memory: int = 0

    @property
    def name(self) -> str:
        """How tables call it."""
        if not self.cpu:
            return "no core"
        return f"{self.cpu / 1000:g} core"


FREE = RemoteCosts()
MODELS = (FREE, RemoteCosts(500, DAEMON_MEMORY), RemoteCosts(1000, DAEMON_MEMORY))
"""No core, half a core and a core for each daemon."""
NETWORKS = (25.0, 50.0, 100.0)
"""Gbit/s of a node's network card."""


class Use(NamedTuple):
    """The GPUs of one task: the node of the task, those of its cGPUs, and the thousandths of each."""

    node: str
    hosts: Sequence[str]
    milli: int


def slowdowns(uses: Iterable[Use], gbit: float) -> list[float]:
    """Return how many times as long each task takes as with local GPUs, with cards of *gbit* Gbit/s.

    A task is as slow as the slowest of its GPUs. All tasks run at the same time.
    """
    uses = list(uses)
    card = gbit * 1e9 / 8
    load: Counter[str] = Counter()  # thousandths of GPUs whose data cross the card of a node
    for use in uses:
        for host in use.hosts:
            if host != use.node:
                load[use.node] += use.milli
                load[host] += use.milli
    found = []
    for use in uses:
        part = use.milli / WHOLE
        local = CALLS * NODE_2016.gpu_latency + BYTES * part / NODE_2016.gpu_bandwidth
        slowest = local
        for host in use.hosts:
            if host != use.node:
                busiest = max(load[use.node], load[host]) / WHOLE
                remote = (
                    CALLS * (RCUDA_5.latency + NODE_2016.net_latency)
                    + BYTES * busiest / card * RCUDA_5.overhead
                )
                slowest = max(slowest, remote)
        found.append(1 - local + slowest)
    return found
