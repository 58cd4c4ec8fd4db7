"""first-local: pool order, with the GPUs of the consumer's own host first.

What is local needs no network, so it is fast where the network is slow. The price: work and GPUs
crowd on the same hosts, and their neighbours' GPUs wait. Where the consumer runs is known for
leases without a VM that say so (consumer host); a VM's host is chosen later, by Nova, so its
request goes in pool order. To have a VM beside its GPUs, ask for locality local.

Source: first local of the Slurm extension for remote GPUs (S. Iserte, PhD thesis, Universitat
Jaume I, 2018, section 4.1.4).
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain

from gsaas.gpgpums.candidates import Candidates
from gsaas.gpgpums.policies.base import Policy
from gsaas.objects.gpu import Gpu
from gsaas.objects.request import Request


class FirstLocal(Policy):
    name = "first-local"
    source = "Slurm rGPU"

    def order(self, candidates: Candidates, request: Request) -> Iterable[Gpu]:
        if request.consumer_host is None:
            return candidates.in_pool_order()
        here = candidates.on_host(request.consumer_host).in_pool_order()
        return chain(here, candidates.in_pool_order())
