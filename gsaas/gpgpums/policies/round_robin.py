# SPDX-License-Identifier: Apache-2.0
"""round-robin: the GPU after the one that was claimed last, in pool order and around.

All GPUs are used in turn, whatever their sizes and loads, so wear and heat are even. It suits
clouds of equal GPUs and many small, short leases. The price: it considers neither free memory nor
load, so a GPU that just fits may get the next lease although another one is idle, and few GPUs
stay idle for exclusive requests.

The GPU that was claimed last is stored with the claim itself, so all API workers share one order,
and continue it after a restart.

Source: RR of NGS (Prades, Reano and Silla, Journal of Systems Architecture 151, 2024).
"""

from __future__ import annotations

from collections.abc import Iterable

from gsaas.gpgpums.candidates import Candidates
from gsaas.gpgpums.policies.base import Policy
from gsaas.objects.gpu import Gpu
from gsaas.objects.request import Request


class RoundRobin(Policy):
    name = "round-robin"
    source = "NGS, RR"

    def order(self, candidates: Candidates, request: Request) -> Iterable[Gpu]:
        return candidates.after_last_claimed()
