"""best-fit-utilisation: the GPU that was least busy lately first.

It looks at what GPUs do instead of what was promised: the mean utilisation that the monitors
report over their window ([monitor]utilisation_window, 300 s). A GPU full of idle leases is a good
place, one with a single hard-working lease is not. Whole percents are compared; ties go to the
GPU with fewer leases, then to that with more free memory. A GPU without a reading no older than
the window comes last.

The price: the past is not the future. Leases that just began do not show yet, so a burst of
requests finds the same GPU quiet again and again; the ties soften that only where GPUs are idle.
Shorten the window where leases are short.

Source: BF of NGS (Prades, Reano and Silla, Journal of Systems Architecture 151, 2024).
"""

from __future__ import annotations

from collections.abc import Iterable

from gsaas.gpgpums.candidates import Candidates
from gsaas.gpgpums.index import TieBreak
from gsaas.gpgpums.policies.base import Policy
from gsaas.objects.gpu import Gpu
from gsaas.objects.request import Request

UNKNOWN = 101
"""Busier than anything."""


def busy(gpu: Gpu) -> tuple[int, int]:
    return (UNKNOWN if gpu.utilisation is None else round(gpu.utilisation), gpu.leases)


class BestFitUtilisation(Policy):
    name = "best-fit-utilisation"
    source = "NGS, BF (active)"
    looks_at_utilisation = True

    def order(self, candidates: Candidates, request: Request) -> Iterable[Gpu]:
        return candidates.by(busy, TieBreak.MOST_FREE)
