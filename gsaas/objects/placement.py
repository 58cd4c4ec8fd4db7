# SPDX-License-Identifier: Apache-2.0
"""The two possible answers to a request for GPUs: a placement, or a refusal with its reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gsaas.objects.request import Request


@dataclass(frozen=True, slots=True)
class Share:
    """One cGPU: *memory_mb* MiB of one GPU."""

    gpu_uuid: str
    memory_mb: int


@dataclass(frozen=True, slots=True)
class Placement:
    """The GPUs proposed for a request: share *i* becomes cGPU *i* of the lease. Nothing is claimed yet."""

    shares: tuple[Share, ...]
    host: str | None = None
    """The compute host on which the VM must run (locality local); None: no such constraint."""
    avoid: tuple[str, ...] = ()
    """Hosts on which the VM must not run (locality remote)."""

    def memory_by_gpu(self) -> Mapping[str, int]:
        """Return the MiB to claim of each GPU, in the order of their UUIDs."""
        totals: Counter[str] = Counter()
        for share in self.shares:
            totals[share.gpu_uuid] += share.memory_mb
        return dict(sorted(totals.items()))


@dataclass(frozen=True, slots=True)
class Refusal:
    """The answer to a request that does not fit, with the reason and what would fit."""

    impossible: bool
    """True if the request would not even fit with all GPUs free, so that waiting does not help."""
    reason: str
    """One sentence for the caller."""
    filters: tuple[tuple[str, int], ...] = ()
    """(filter, number of GPUs that it excluded); a GPU counts once, for the first filter that excludes it."""
    nearest: Request | None = None
    """The largest similar request that would fit now: with fewer cGPUs, or else with smaller ones.

    If there is none with all the requirements, one that drops a single requirement.
    """
    relaxed: str | None = None
    """The requirement that `nearest` drops, by its name in the API."""

    def to_dict(self) -> dict[str, Any]:
        """Return the refusal in the form of the API's error document."""
        return {
            "impossible": self.impossible,
            "reason": self.reason,
            "filters": [{"filter": name, "gpus": gpus} for name, gpus in self.filters],
            "nearest": self.nearest.to_dict() | {"kind": self.nearest.kind}
            if self.nearest
            else None,
            "relaxed": self.relaxed,
        }
