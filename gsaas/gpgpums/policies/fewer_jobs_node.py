# SPDX-License-Identifier: Apache-2.0
"""fewer-jobs-node: the GPU host with the fewest leases first, and another policy within that host.

All GPUs of a host share its network interface, through which remote consumers reach them. So this
policy compares the load of hosts before that of GPUs. The price: even with few leases, most hosts
have a GPU in use, and few hosts are idle as a whole. A lease counts once for each GPU that it has
a share of.

[gpgpums]fewer_jobs_node_inside names the policy that chooses within the host; the source evaluates
worst-fit and first-remote.

Source: fewer jobs node of the Slurm extension for remote GPUs (S. Iserte, PhD thesis, Universitat
Jaume I, 2018, section 4.1.4).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from gsaas.gpgpums.candidates import Candidates
from gsaas.gpgpums.policies.base import Policy
from gsaas.gpgpums.policies.worst_fit import WorstFit
from gsaas.objects.gpu import Gpu
from gsaas.objects.request import Request


class FewerJobsNode(Policy):
    name = "fewer-jobs-node"
    source = "Slurm rGPU"

    def __init__(self, inside: Policy | None = None) -> None:
        self._use(inside or WorstFit())

    def configure(self, conf: Any, known: Mapping[str, Policy]) -> None:
        name = conf.gpgpums.fewer_jobs_node_inside
        allowed = known.keys() - {self.name}
        if name not in allowed:
            raise ValueError(
                f"[gpgpums]fewer_jobs_node_inside is {name!r}, but may be one of "
                f"{', '.join(sorted(allowed))}"
            )
        self._use(known[name])

    def _use(self, inside: Policy) -> None:
        self._inside = inside
        self.looks_at_utilisation = inside.looks_at_utilisation
        self.looks_at_mix = inside.looks_at_mix

    def order(self, candidates: Candidates, request: Request) -> Iterable[Gpu]:
        for host in candidates.by_host_leases():
            yield from self._inside.order(host, request)
