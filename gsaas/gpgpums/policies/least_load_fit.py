# SPDX-License-Identifier: Apache-2.0
"""least-load-fit: the GPU with the most free memory first.

It spreads leases over the emptiest GPUs, so that tenants share a GPU only when they must: best
for speed. The price is that few GPUs stay idle for exclusive requests. In exclusive mode it
chooses the largest idle GPU.

Source: Algorithm 1 of GSaaS (S. Iserte, PhD thesis, Universitat Jaume I, 2018, section 5.2.1).
Its line 4 adds the *available* memory to the request, and line 5 compares the sum with the total;
that makes sense for the *used* memory only, and is done so here: sort by free memory, descending,
and take the first GPU that fits.
"""

from __future__ import annotations

from collections.abc import Iterable

from gsaas.gpgpums.candidates import Candidates
from gsaas.gpgpums.policies.base import Policy
from gsaas.objects.gpu import Gpu
from gsaas.objects.request import Request


class LeastLoadFit(Policy):
    name = "least-load-fit"
    source = "GSaaS"

    def order(self, candidates: Candidates, request: Request) -> Iterable[Gpu]:
        return candidates.most_free_first()
