"""The two answers to a request: a placement, or a refusal with its reason."""

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
    """Yes: share *i* is to be cGPU *i* of the lease. Nothing is claimed yet."""

    shares: tuple[Share, ...]
    host: str | None = None
    """The compute host that the VM must run on (locality local)."""
    avoid: tuple[str, ...] = ()
    """Hosts that it must not run on (locality remote)."""

    def memory_by_gpu(self) -> Mapping[str, int]:
        """MiB wanted of each GPU, in the order of their UUIDs."""
        totals: Counter[str] = Counter()
        for share in self.shares:
            totals[share.gpu_uuid] += share.memory_mb
        return dict(sorted(totals.items()))


@dataclass(frozen=True, slots=True)
class Refusal:
    """No, and why."""

    impossible: bool
    """The cloud does not own what was asked for: waiting would not help."""
    reason: str
    """One sentence for the caller."""
    filters: tuple[tuple[str, int], ...] = ()
    """(filter, number of GPUs it dropped); a GPU counts once, for the first that drops it."""
    nearest: Request | None = None
    """The largest request like this one that would fit now: fewer cGPUs, or else smaller ones.

    If there is none of its kind, one that gives up a single requirement.
    """
    relaxed: str | None = None
    """The requirement that `nearest` gives up, in the API's word."""

    def to_dict(self) -> dict[str, Any]:
        """Plain form for the API's error document."""
        return {
            "impossible": self.impossible,
            "reason": self.reason,
            "filters": [{"filter": name, "gpus": gpus} for name, gpus in self.filters],
            "nearest": self.nearest.to_dict() if self.nearest else None,
            "relaxed": self.relaxed,
        }
