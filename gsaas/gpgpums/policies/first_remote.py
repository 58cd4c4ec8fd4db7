# SPDX-License-Identifier: Apache-2.0
"""first-remote: pool order, with the GPUs of the consumer's own host last.

It keeps local GPUs for consumers that cannot use remote ones, and takes load off the host that
computes. The price is the network, which carries all data between a program and its GPU. The host
of the consumer is known for leases without a VM that name it (consumer host); other requests are
placed in pool order. To keep a VM off the host of its GPUs, ask for locality remote.

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
        host = request.consumer_host
        if host is None:
            return candidates.in_pool_order()
        remote = (gpu for gpu in candidates.in_pool_order() if gpu.host != host)
        return chain(remote, candidates.on_host(host).in_pool_order())
