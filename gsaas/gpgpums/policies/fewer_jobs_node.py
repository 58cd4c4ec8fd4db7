"""fewer-jobs-node: the GPU host with fewest leases first, and inside it another policy.

All GPUs of a host share its network interface, over which remote consumers reach them; so it is
the host's load that counts here, before the GPU's. The price: with few leases about, most hosts
have one GPU in use and none idle as a whole. A lease counts once for each GPU it holds some of.

Which policy chooses inside the host is [gpgpums]fewer_jobs_node_inside; worst-fit and first-remote
are those that were tried at its source.

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
        self._take(inside or WorstFit())

    def configure(self, conf: Any, known: Mapping[str, Policy]) -> None:
        name = conf.gpgpums.fewer_jobs_node_inside
        others = {other for other in known if other != self.name}
        if name not in others:
            raise ValueError(
                f"[gpgpums]fewer_jobs_node_inside is {name!r}, but may be one of "
                f"{', '.join(sorted(others))}"
            )
        self._take(known[name])

    def _take(self, inside: Policy) -> None:
        self._inside = inside
        self.looks_at_utilisation = inside.looks_at_utilisation
        self.looks_at_mix = inside.looks_at_mix

    def order(self, candidates: Candidates, request: Request) -> Iterable[Gpu]:
        for host in candidates.by_host_leases():
            yield from self._inside.order(host, request)
