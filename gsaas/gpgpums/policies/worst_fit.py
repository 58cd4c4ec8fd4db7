# SPDX-License-Identifier: Apache-2.0
"""worst-fit: the GPU with the most free memory that fits.

It is the rule of least-load-fit under the name that users of Slurm know: load is spread evenly,
tenants share only when they must, and few GPUs stay idle for exclusive requests.

Source: worst fit of the Slurm extension for remote GPUs (S. Iserte, PhD thesis, Universitat Jaume
I, 2018, section 4.1.4).
"""

from __future__ import annotations

from collections.abc import Iterable

from gsaas.gpgpums.candidates import Candidates
from gsaas.gpgpums.policies.base import Policy
from gsaas.objects.gpu import Gpu
from gsaas.objects.request import Request


class WorstFit(Policy):
    name = "worst-fit"
    source = "Slurm rGPU"

    def order(self, candidates: Candidates, request: Request) -> Iterable[Gpu]:
        return candidates.most_free_first()
