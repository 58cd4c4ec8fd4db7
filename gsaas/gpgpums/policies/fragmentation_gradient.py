"""fragmentation-gradient: where the memory that nobody can use grows least.

What is left free on a GPU is worth something only to those who can use it. For each kind of
request that came lately, the free memory of a GPU that cannot hold it is a fragment; weighted by
how often each kind comes, that is the GPU's expected fragmentation. A request goes where placing
it makes this grow least, or shrink most; ties go to the GPU with least free memory. So it learns
from the requests which gaps are worth keeping, and it fills GPUs of a kind that few ask for first.

The price: it packs, so tenants share. It looks at every *different* state of a GPU (free memory,
size, model, compute capability) for each choice: few in a cloud where requests have usual sizes,
at most one for each GPU. The mix is what this API worker or engine has seen itself:
[gpgpums]request_mix requests, none of them after a start.

Source: fragmentation gradient descent (Weng et al., Beware of Fragmentation, USENIX ATC 2023) for
tasks that share GPUs. There the node is what fragments, for a task must run on one; remote GPUs
can come from everywhere, so here it is the GPU.
"""

from __future__ import annotations

from collections.abc import Iterable

from gsaas.gpgpums.candidates import Candidates
from gsaas.gpgpums.indexed_gpus import Mix
from gsaas.gpgpums.policies.base import Policy
from gsaas.objects.gpu import Capability, Gpu
from gsaas.objects.request import Request

State = tuple[int, int, str, Capability]
"""Free memory and size in MiB, model, compute capability (0, 0 if not known)."""

UNKNOWN = (0, 0)


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
    return (gpu.free_mb, gpu.memory_mb, gpu.model, gpu.compute_capability or UNKNOWN)


def growth(before: State, request: Request, mix: Mix) -> float:
    """By how much the expected fragmentation of a GPU grows if it gets one cGPU of *request*."""
    free, memory, model, capability = before
    after = (free - (request.memory_mb or memory), memory, model, capability)
    # Sums of whole numbers, divided last: what is equal compares as equal.
    return (_fragments(after, mix) - _fragments(before, mix)) / _weight(mix)


def fragmentation(gpu: State, mix: Mix) -> float:
    """MiB of *gpu* that are free and of no use, as expected for a request out of *mix*."""
    return _fragments(gpu, mix) / _weight(mix)


def _fragments(gpu: State, mix: Mix) -> float:
    return gpu[0] * sum(often for wanted, often in mix if not _usable(gpu, wanted))


def _weight(mix: Mix) -> float:
    return sum(often for _, often in mix)


def _usable(gpu: State, wanted: Request) -> bool:
    free, memory, model, capability = gpu
    if not wanted.wants_kind((model, None if capability == UNKNOWN else capability)):
        return False
    return free == memory if wanted.memory_mb is None else free >= wanted.memory_mb
