# SPDX-License-Identifier: Apache-2.0
"""best-fit-utilisation: the GPU with the lowest recent utilisation first.

It compares what GPUs do instead of what was claimed of them: the mean utilisation that the
monitors report over their window ([monitor]utilisation_window, 300 s). It prefers a GPU full of
idle leases to a GPU with one lease that computes all the time. Utilisation is compared in whole
percents; ties go to the GPU with fewer leases, then to the one with more free memory. A GPU
without a reading within the window comes last.

The price: leases that have just begun do not show yet, so many requests at once find the same GPU
idle again and again. The ties reduce that only where GPUs are idle. Use a shorter window where
leases are short.

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
"""Percent; more than any reading."""


def utilisation_and_leases(gpu: Gpu) -> tuple[int, int]:
    return (UNKNOWN if gpu.utilisation is None else round(gpu.utilisation), gpu.leases)


class BestFitUtilisation(Policy):
    name = "best-fit-utilisation"
    source = "NGS, BF (active)"
    looks_at_utilisation = True

    def order(self, candidates: Candidates, request: Request) -> Iterable[Gpu]:
        return candidates.by(utilisation_and_leases, TieBreak.MOST_FREE)
