"""What GPGPUMS decides about, as values: GPUs, requests, and the two answers a request can get.

Nothing here knows a database, a clock or a socket: `pool` decides, `claims` acts.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

SHARED = "shared"
EXCLUSIVE = "exclusive"

ANY = "any"
LOCAL = "local"
REMOTE = "remote"


class Withheld(enum.StrEnum):
    """Why a GPU is not offered, whatever is free on it."""

    DISABLED = "disabled"
    HOST_DISABLED = "host-disabled"
    HOST_SILENT = "host-silent"


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU and what is claimed of it. Memory is in MiB."""

    uuid: str
    host: str
    device_index: int
    memory_mb: int
    used_mb: int = 0
    exclusive: bool = False
    """One lease holds the whole GPU."""
    generation: int = 0
    """Grows with every change; a claim names the one that the choice was based on."""
    withheld: Withheld | None = None
    """None if it is offered."""

    def __post_init__(self) -> None:
        if not 0 <= self.used_mb <= self.memory_mb:
            raise ValueError(f"{self.used_mb} of {self.memory_mb} MiB of {self.uuid} in use")
        if self.exclusive and self.used_mb != self.memory_mb:
            raise ValueError(f"{self.uuid} is held exclusively, yet not whole")

    @property
    def free_mb(self) -> int:
        return self.memory_mb - self.used_mb

    def available(self, mode: str) -> int:
        """MiB that may be claimed now: what is free, or in exclusive mode all or nothing."""
        if self.withheld is not None:
            return 0
        if mode == EXCLUSIVE:
            return self.memory_mb if self.used_mb == 0 else 0
        return self.memory_mb - self.used_mb

    def claim(self, memory_mb: int, *, exclusive: bool, generation: int) -> Gpu:
        """Return this GPU with *memory_mb* more in use; `ValueError` if it has not that much."""
        if self.exclusive or (exclusive and self.used_mb):
            raise ValueError(f"{self.uuid} is in use already")
        return self._using(self.used_mb + memory_mb, exclusive, generation)

    def release(self, memory_mb: int, *, generation: int) -> Gpu:
        """Return this GPU with *memory_mb* less in use; `ValueError` if that was never claimed."""
        return self._using(self.used_mb - memory_mb, False, generation)

    def with_(self, **changes: Any) -> Gpu:
        return replace(self, **changes)

    def _using(self, used_mb: int, exclusive: bool, generation: int) -> Gpu:
        return Gpu(
            self.uuid,
            self.host,
            self.device_index,
            self.memory_mb,
            used_mb,
            exclusive,
            generation,
            self.withheld,
        )


@dataclass(frozen=True, slots=True)
class Request:
    """*count* cGPUs of equal size for one consumer; `ValueError` if it contradicts itself."""

    count: int
    mode: str = EXCLUSIVE
    memory_mb: int | None = None
    """MiB per cGPU in shared mode; None in exclusive mode, where a cGPU is a whole GPU."""
    locality: str = ANY

    def __post_init__(self) -> None:
        if self.count < 1:
            raise ValueError(f"{self.count} cGPUs cannot be asked for")
        if self.mode not in (SHARED, EXCLUSIVE):
            raise ValueError(f"there is no mode {self.mode!r}")
        if self.locality not in (ANY, LOCAL, REMOTE):
            raise ValueError(f"there is no locality {self.locality!r}")
        if (self.mode == SHARED) != (self.memory_mb is not None):
            raise ValueError("memory is named in shared mode, and only there")
        if self.memory_mb is not None and self.memory_mb < 1:
            raise ValueError(f"a cGPU cannot have {self.memory_mb} MiB")

    @property
    def exclusive(self) -> bool:
        return self.mode == EXCLUSIVE

    def size_on(self, gpu: Gpu) -> int:
        """MiB that one cGPU of this request takes on *gpu*."""
        return gpu.memory_mb if self.memory_mb is None else self.memory_mb

    def fits(self, gpu: Gpu) -> bool:
        """Could *gpu* hold one cGPU of this request now? Locality is not asked here."""
        return gpu.available(self.mode) >= (self.memory_mb or 1)

    def with_(self, **changes: Any) -> Request:
        return replace(self, **changes)

    def to_dict(self) -> dict[str, Any]:
        """Plain form, with the API's words."""
        return {
            "count": self.count,
            "mode": self.mode,
            "memory_mb": self.memory_mb,
            "locality": self.locality,
        }


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
    """The largest request like this one that would fit now: fewer cGPUs, or else smaller ones."""

    def to_dict(self) -> dict[str, Any]:
        """Plain form for the API's error document."""
        return {
            "impossible": self.impossible,
            "reason": self.reason,
            "filters": [{"filter": name, "gpus": gpus} for name, gpus in self.filters],
            "nearest": self.nearest.to_dict() if self.nearest else None,
        }
