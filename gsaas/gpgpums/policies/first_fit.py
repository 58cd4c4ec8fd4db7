# SPDX-License-Identifier: Apache-2.0
"""first-fit: the first GPU in pool order (host, device index) with enough free memory.

It places leases on as few GPUs as possible, and so keeps whole GPUs free for exclusive requests
and the others idle. The price is speed: tenants share the GPUs at the front of the pool while
those at the back are idle.

Source: the first policy of GSaaS (S. Iserte, PhD thesis, Universitat Jaume I, 2018, section 5.2.1).
"""

from __future__ import annotations

from collections.abc import Iterable

from gsaas.gpgpums.candidates import Candidates
from gsaas.gpgpums.policies.base import Policy
from gsaas.objects.gpu import Gpu
from gsaas.objects.request import Request


class FirstFit(Policy):
    name = "first-fit"
    source = "GSaaS"

    def order(self, candidates: Candidates, request: Request) -> Iterable[Gpu]:
        return candidates.in_pool_order()
