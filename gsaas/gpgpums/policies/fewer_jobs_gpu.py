# SPDX-License-Identifier: Apache-2.0
"""fewer-jobs-gpu: the GPU with the fewest leases first; ties by most free memory.

It is the rule of performance, but of several GPUs with equally many leases it chooses the one with
the most free memory, so GPUs of different sizes fill in proportion. The price is the same: few
GPUs stay idle for exclusive requests.

Source: fewer jobs GPU of the Slurm extension for remote GPUs (S. Iserte, PhD thesis, Universitat
Jaume I, 2018, section 4.1.4).
"""

from __future__ import annotations

from collections.abc import Iterable

from gsaas.gpgpums.candidates import Candidates
from gsaas.gpgpums.index import TieBreak
from gsaas.gpgpums.policies.base import Policy
from gsaas.objects.gpu import Gpu
from gsaas.objects.request import Request


def lease_count(gpu: Gpu) -> int:
    return gpu.leases


class FewerJobsGpu(Policy):
    name = "fewer-jobs-gpu"
    source = "Slurm rGPU"

    def order(self, candidates: Candidates, request: Request) -> Iterable[Gpu]:
        return candidates.by(lease_count, TieBreak.MOST_FREE)
