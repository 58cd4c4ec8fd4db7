# SPDX-License-Identifier: Apache-2.0
"""energy: fill one GPU completely before the next one is used.

GPUs in use come first, the fullest of them before the others; an idle GPU is used only when none
in use has room, and then the smallest that has. Idle GPUs need little power, so a half-empty
cloud saves much of it. The price is speed: tenants share GPUs wherever they can.

Source: ECO of NGS (Prades, Reano and Silla, Journal of Systems Architecture 151, 2024).
"""

from __future__ import annotations

from collections.abc import Iterable

from gsaas.gpgpums.candidates import Candidates
from gsaas.gpgpums.index import TieBreak
from gsaas.gpgpums.policies.base import Policy
from gsaas.objects.gpu import Gpu
from gsaas.objects.request import Request


def is_idle(gpu: Gpu) -> bool:
    return gpu.used_mb == 0


class Energy(Policy):
    name = "energy"
    source = "NGS, ECO"

    def order(self, candidates: Candidates, request: Request) -> Iterable[Gpu]:
        return candidates.by(is_idle, TieBreak.LEAST_FREE)
