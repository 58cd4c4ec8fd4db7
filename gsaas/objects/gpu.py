"""A GPU as GPGPUMS sees it: what it is, how much of it is claimed, and whether it is offered."""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace
from typing import Any

SHARED = "shared"
EXCLUSIVE = "exclusive"

Capability = tuple[int, int]
"""CUDA compute capability, such as (9, 0)."""
Kind = tuple[str, Capability | None]
"""Model and compute capability of a GPU: what requests tell GPUs apart by."""


class WithheldReason(enum.StrEnum):
    """Why a GPU is not offered, whatever is free on it."""

    DISABLED = "disabled"
    WITHDRAWN = "withdrawn"
    HOST_DISABLED = "host-disabled"
    HOST_SILENT = "host-silent"
    RESERVED = "reserved"
    """Reserved for requests that are ahead in the queue, while the queue is searched for one that may be served."""


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
    withheld: WithheldReason | None = None
    """None if it is offered."""
    model: str = ""
    compute_capability: Capability | None = None
    """None if its monitor cannot tell."""
    leases: int = 0
    """Number of leases that hold some of it."""
    given: int = 0
    """The generation that the last claim gave it; larger is later, 0 never. Releases leave it."""
    utilisation: float | None = None
    """Percent of the time in which a kernel ran, over the monitors' window; None if not known."""

    def __post_init__(self) -> None:
        if not 0 <= self.used_mb <= self.memory_mb:
            raise ValueError(f"{self.used_mb} of {self.memory_mb} MiB of {self.uuid} in use")
        if self.exclusive and self.used_mb != self.memory_mb:
            raise ValueError(f"{self.uuid} is held exclusively, yet not whole")

    @property
    def kind(self) -> Kind:
        return (self.model, self.compute_capability)

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

    def claim(
        self, memory_mb: int, *, exclusive: bool, generation: int, again: bool = False
    ) -> Gpu:
        """Return this GPU with *memory_mb* more in use; `ValueError` if it has not that much.

        *again* says that the lease holds some of it already.
        """
        if self.exclusive or (exclusive and self.used_mb):
            raise ValueError(f"{self.uuid} is in use already")
        leases = self.leases if again else self.leases + 1
        return self._using(self.used_mb + memory_mb, exclusive, generation, leases, generation)

    def release(self, memory_mb: int, *, generation: int) -> Gpu:
        """Return this GPU as it is when a lease has given back its *memory_mb*, all it held of it.

        `ValueError` if that was never claimed.
        """
        used_mb = self.used_mb - memory_mb
        return self._using(used_mb, False, generation, self.leases - 1, self.given)

    def with_(self, **changes: Any) -> Gpu:
        return replace(self, **changes)

    def _using(
        self, used_mb: int, exclusive: bool, generation: int, leases: int, given: int
    ) -> Gpu:
        return Gpu(
            self.uuid,
            self.host,
            self.device_index,
            self.memory_mb,
            used_mb,
            exclusive,
            generation,
            self.withheld,
            self.model,
            self.compute_capability,
            leases,
            given,
            self.utilisation,
        )


def parse_capability(capability: str) -> Capability:
    """Return what `"9.0"` means; `ValueError` if it is no compute capability."""
    major, point, minor = capability.partition(".")
    if not (major.isdecimal() and (minor.isdecimal() if point else not minor)):
        raise ValueError(f"a compute capability is written like 8.0, not {capability!r}")
    return int(major), int(minor or 0)


def format_capability(capability: Capability | None) -> str | None:
    """Return a compute capability as people write it: `"9.0"`."""
    return None if capability is None else f"{capability[0]}.{capability[1]}"
