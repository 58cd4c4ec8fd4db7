# SPDX-License-Identifier: Apache-2.0
"""local-gradient: a GPU of the consumer's own host, unless a remote one fragments much less memory.

A remote GPU is not free: its daemon needs CPU and memory of the lender, and every call crosses the
network. So for each cGPU this policy compares the consumer's own GPUs with all others as
fragmentation-gradient does, by the growth of the memory that no recent request can use, and adds a
price to each remote one. It takes a local GPU where that costs nothing later, and a remote one
where that saves more than the price, or where no local GPU fits. The price of the policy itself is
that of fragmentation-gradient: tenants share GPUs, and a choice takes longer.

[gpgpums]remote_price is the price, in percent of the cGPU's memory: 1 by default. At 0, local GPUs
only win ties, which are frequent; at 100 a remote GPU has to save as much memory as the cGPU takes.

The host of the consumer is known for leases without a VM that name it (consumer host). Nova
chooses the host of a VM later, so its request is placed as by fragmentation-gradient; to have a VM
on the host of its GPUs, ask for locality local, and for locality any when that is refused.

Source: the comparison of GPUs is that of fragmentation-gradient (Weng et al., Beware of
Fragmentation, USENIX ATC 2023); the price is GSaaS's own. studies/openb/README.md shows what it gains.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from typing import Any

from gsaas.gpgpums.candidates import Candidates
from gsaas.gpgpums.policies.base import Policy
from gsaas.gpgpums.policies.fragmentation_gradient import State, growth, state
from gsaas.objects.gpu import Gpu
from gsaas.objects.request import Request

Rank = tuple[float, bool, State]
"""What is paid for a GPU in MiB, whether it is remote, and its state: the smallest first."""


class LocalGradient(Policy):
    name = "local-gradient"
    source = "GSaaS"
    looks_at_mix = True

    def __init__(self, remote_price: float = 1.0) -> None:
        self._remote_price = remote_price

    def configure(self, conf: Any, known: Mapping[str, Policy]) -> None:
        self._remote_price = conf.gpgpums.remote_price

    def order(self, candidates: Candidates, request: Request) -> Iterable[Gpu]:
        mix = candidates.mix or ((request, 1.0),)
        host = request.consumer_host
        grown = cache(lambda one: growth(one, request, mix))
        ranked = self._ranked(candidates, request, grown, is_remote=host is not None)
        if host is not None:
            # The local ones are among *ranked*, too: there they come again, and later.
            local = self._ranked(candidates.on_host(host), request, grown, is_remote=False)
            ranked = heapq.merge(local, ranked, key=lambda group: group[0])
        for _, gpus in ranked:
            yield from gpus

    def _ranked(
        self,
        candidates: Candidates,
        request: Request,
        grown: Callable[[State], float],
        *,
        is_remote: bool,
    ) -> Iterator[tuple[Rank, Iterator[Gpu]]]:
        """Yield the states of GPUs, cheapest first, each with its rank and its GPUs.

        *grown* returns by how much the fragmentation of a GPU in a state grows, in MiB.
        """
        price = self._remote_price / 100 if is_remote else 0.0
        groups = [
            ((grown(one) + price * (request.memory_mb or one[1]), is_remote, one), gpus)
            for one, gpus in candidates.groups(state)
        ]
        groups.sort(key=lambda group: group[0])
        return iter(groups)
