# SPDX-License-Identifier: Apache-2.0
"""performance: the GPU with the fewest leases first; ties in pool order.

A lease that is alone on its GPU has all its cores, so the fewest other leases mean the most speed,
whatever memory they have. The price is that of every policy that spreads leases: few GPUs stay
idle for exclusive requests. It counts leases, not what they do: an idle lease counts as much as a
busy one. best-fit-utilisation takes the difference into account.

Source: PERF of NGS (Prades, Reano and Silla, Journal of Systems Architecture 151, 2024), which
counts processes; here it is leases, which are known without a query to the GPU.
"""

from __future__ import annotations

from collections.abc import Iterable

from gsaas.gpgpums.candidates import Candidates
from gsaas.gpgpums.policies.base import Policy
from gsaas.objects.gpu import Gpu
from gsaas.objects.request import Request


def lease_count(gpu: Gpu) -> int:
    return gpu.leases


class Performance(Policy):
    name = "performance"
    source = "NGS, PERF"

    def order(self, candidates: Candidates, request: Request) -> Iterable[Gpu]:
        return candidates.by(lease_count)
