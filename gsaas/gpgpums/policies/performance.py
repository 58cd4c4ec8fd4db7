"""performance: the GPU with fewest leases on it first; ties in pool order.

A lease that is alone on its GPU has all its cores, so fewest neighbours means most speed, whatever
memory they took. The price is the same as with every policy that spreads: whole GPUs are used up
soon. It counts neighbours, not what they do: an idle lease keeps others away as well as a busy
one; best-fit-utilisation knows the difference.

Source: PERF of NGS (Prades, Reano and Silla, Journal of Systems Architecture 151, 2024), which
counts processes; here it is leases, which are known without asking the GPU.
"""

from __future__ import annotations

from collections.abc import Iterable

from gsaas.gpgpums.candidates import Candidates
from gsaas.gpgpums.policies.base import Policy
from gsaas.objects.gpu import Gpu
from gsaas.objects.request import Request


def leases(gpu: Gpu) -> int:
    return gpu.leases


class Performance(Policy):
    name = "performance"
    source = "NGS, PERF"

    def order(self, candidates: Candidates, request: Request) -> Iterable[Gpu]:
        return candidates.by(leases)
