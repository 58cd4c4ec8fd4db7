# SPDX-License-Identifier: Apache-2.0
"""The models of GPUs that a cloud offers, and how much of each is free: what a tenant may know of its GPUs. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from gsaas.objects.device_kinds import KINDS
from gsaas.objects.gpu import EXCLUSIVE, SHARED, UNKNOWN, Capability, Gpu


@dataclass(frozen=True)
class GpuModel:
    """Equal GPUs that new leases may get: of one kind, model, memory and compute capability."""

    model: str
    kind: str
    """Of `gsaas.objects.device_kinds`."""
    compute_capability: Capability | None
    """None if their monitors do not know it."""
    memory_mb: int
    """MiB of each of them."""
    gpus: int
    """How many there are."""
    idle: int
    """How many of them a lease may have as a whole."""
    free_mb: int
    """MiB of all of them that leases may have shares of."""
    largest_share_mb: int
    """MiB of the largest share that one of them has room for."""


def models_of(gpus: Iterable[Gpu]) -> list[GpuModel]:
    """Return the models of *gpus* by kind, GPUs of NVIDIA first, and by name.

    GPUs that are withheld from new leases do not count, and what is kept for reservations is not free.
    """
    equal: dict[tuple[str, str, Capability, int], list[Gpu]] = defaultdict(list)
    for gpu in gpus:
        if gpu.withheld is None:
            equal[*gpu.traits, gpu.memory_mb].append(gpu)
    found = []
    for (kind, model, capability, memory_mb), alike in equal.items():
        shares = [gpu.available(SHARED) for gpu in alike]
        found.append(
            GpuModel(
                model=model,
                kind=kind,
                compute_capability=None if capability == UNKNOWN else capability,
                memory_mb=memory_mb,
                gpus=len(alike),
                idle=sum(gpu.available(EXCLUSIVE) > 0 for gpu in alike),
                free_mb=sum(shares),
                largest_share_mb=max(shares),
            )
        )
    return sorted(found, key=_order)


def _order(model: GpuModel) -> tuple[int, str, int, Capability]:
    capability = model.compute_capability or UNKNOWN
    return KINDS.index(model.kind), model.model, model.memory_mb, capability
