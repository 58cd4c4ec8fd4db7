# SPDX-License-Identifier: Apache-2.0
"""best-fit: the GPU with the least free memory that fits.

It keeps large free areas for large requests, and so refuses the fewest of them; in exclusive mode
it chooses the smallest GPU. The price is speed: the fullest GPU gets the next lease, too. Unlike
energy, it may choose a small idle GPU although a larger one in use has room.

Source: best fit of the Slurm extension for remote GPUs (S. Iserte, PhD thesis, Universitat Jaume
I, 2018, section 4.1.4).
"""

from __future__ import annotations

from collections.abc import Iterable

from gsaas.gpgpums.candidates import Candidates
from gsaas.gpgpums.policies.base import Policy
from gsaas.objects.gpu import Gpu
from gsaas.objects.request import Request


class BestFit(Policy):
    name = "best-fit"
    source = "Slurm rGPU"

    def order(self, candidates: Candidates, request: Request) -> Iterable[Gpu]:
        return candidates.least_free_first()
