"""first-remote: pool order, with the GPUs of the consumer's own host last.

It keeps the local GPUs for those who cannot use remote ones, and takes load off the host that
computes. The price is the network, which carries all that a program exchanges with its GPU. Where
the consumer runs is known for leases without a VM that say so (consumer host); other requests go
in pool order. To keep a VM away from its GPUs, ask for locality remote.

Source: first remote of the Slurm extension for remote GPUs (S. Iserte, PhD thesis, Universitat
Jaume I, 2018, sections 4.1.1 and 4.1.4).
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain

from gsaas.gpgpums.candidates import Candidates
from gsaas.gpgpums.policies.base import Policy
from gsaas.objects.gpu import Gpu
from gsaas.objects.request import Request


class FirstRemote(Policy):
    name = "first-remote"
    source = "Slurm rGPU"

    def order(self, candidates: Candidates, request: Request) -> Iterable[Gpu]:
        own = request.consumer_host
        if own is None:
            return candidates.in_pool_order()
        elsewhere = (gpu for gpu in candidates.in_pool_order() if gpu.host != own)
        return chain(elsewhere, candidates.on_host(own).in_pool_order())
