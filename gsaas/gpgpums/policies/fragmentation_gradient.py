# SPDX-License-Identifier: Apache-2.0
"""fragmentation-gradient: the GPU where the free memory that no request can use grows least.

Free memory of a GPU is useful only to requests that can use it. For each kind of recent request,
the free memory of a GPU that has no room for it is a fragment; weighted by how often each kind
comes, that is the GPU's expected fragmentation. A request is placed where this grows least or
shrinks most; ties go to the GPU with the least free memory. So the policy learns from the requests
which sizes are worth keeping free, and first fills GPUs of a kind that few requests ask for.

The price: tenants share GPUs. For each choice it looks at every *different* state of a GPU (free
memory, size, model, compute capability): there are few of them in a cloud where requests have
usual sizes, and at most one for each GPU. The recent requests are the last
[gpgpums]request_mix ones that this API worker or engine has had, none of them after a start.

Source: fragmentation gradient descent (Weng et al., Beware of Fragmentation, USENIX ATC 2023) for
tasks that share GPUs. There fragmentation is that of a node, because a task must run on one;
remote GPUs can come from every host, so here it is that of a GPU.
"""

from __future__ import annotations

from collections.abc import Iterable

from gsaas.gpgpums.candidates import Candidates
from gsaas.gpgpums.indexed_gpus import Mix
from gsaas.gpgpums.policies.base import Policy
from gsaas.objects.gpu import Gpu, Traits
from gsaas.objects.request import Request

State = tuple[int, int, Traits]
"""Free memory and size in MiB, and traits."""


class FragmentationGradient(Policy):
    name = "fragmentation-gradient"
    source = "FGD, ATC'23"
    looks_at_mix = True

    def order(self, candidates: Candidates, request: Request) -> Iterable[Gpu]:
        mix = candidates.mix or ((request, 1.0),)
        groups = list(candidates.groups(state))
        groups.sort(key=lambda group: (growth(group[0], request, mix), group[0]))
        for _, gpus in groups:
            yield from gpus


def state(gpu: Gpu) -> State:
    """Return what of *gpu* determines its fragmentation."""
    return (gpu.free_mb, gpu.memory_mb, gpu.traits)


def growth(before: State, request: Request, mix: Mix) -> float:
    """Return by how much the expected fragmentation of a GPU grows with one cGPU of *request*, in MiB."""
    free, memory, traits = before
    after = (free - (request.memory_mb or memory), memory, traits)
    # Sums of whole numbers, divided last, so that equal values compare as equal.
    return (_fragments(after, mix) - _fragments(before, mix)) / _weight(mix)


def fragmentation(gpu: State, mix: Mix) -> float:
    """Return the MiB of *gpu* that are free and that an average request of *mix* cannot use."""
    return _fragments(gpu, mix) / _weight(mix)


def _fragments(gpu: State, mix: Mix) -> float:
    return gpu[0] * sum(often for request, often in mix if not _has_room(gpu, request))


def _weight(mix: Mix) -> float:
    return sum(often for _, often in mix)


def _has_room(gpu: State, request: Request) -> bool:
    free, memory, traits = gpu
    if not request.wants_traits(traits):
        return False
    return free == memory if request.memory_mb is None else free >= request.memory_mb
