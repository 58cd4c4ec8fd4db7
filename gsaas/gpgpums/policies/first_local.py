# SPDX-License-Identifier: Apache-2.0
"""first-local: pool order, with the GPUs of the consumer's own host first.

A local GPU needs no network, so it is fast where the network is slow. The price: consumers and GPUs
in use concentrate on the same hosts while the GPUs of other hosts are idle. The host of the
consumer is known for leases without a VM that name it (consumer host). Nova chooses the host of a
VM later, so its request is placed in pool order. To have a VM on the host of its GPUs, ask for
locality local.

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
        local = candidates.on_host(request.consumer_host).in_pool_order()
        return chain(local, candidates.in_pool_order())
