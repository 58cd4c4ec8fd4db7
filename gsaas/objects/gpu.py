# SPDX-License-Identifier: Apache-2.0
"""A GPU as GPGPUMS sees it: its properties, how much of it is claimed, and whether new leases may get it."""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace
from typing import Any

from gsaas.objects.device_kinds import kind_of

SHARED = "shared"
EXCLUSIVE = "exclusive"

Capability = tuple[int, int]
"""CUDA compute capability, such as (9, 0)."""
MIG_INSTANCE = "MIG-"
"""What the UUIDs of parts of GPUs begin with that the GPU itself keeps apart (multi-instance GPU)."""
UNKNOWN: Capability = (0, 0)
"""Stands for a compute capability that is not known; no GPU has a lower one."""
Traits = tuple[str, str, Capability]
"""Kind (`gsaas.objects.device_kinds`), model and compute capability of a GPU: what a request may require of it."""


class WithheldReason(enum.StrEnum):
    """Why a GPU is not available to new leases, even if it has free memory."""

    DISABLED = "disabled"
    WITHDRAWN = "withdrawn"
    HOST_DISABLED = "host-disabled"
    HOST_SILENT = "host-silent"
    BARRED = "barred"
    """Not for this choice: a request further ahead in the queue waits for it, or another transaction has it locked."""


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU and what is claimed of it; immutable. Memory is in MiB.

    Raises `ValueError` if more memory is in use and reserved than there is, or an exclusive one is not entirely in use.
    """

    uuid: str
    host: str
    device_index: int
    memory_mb: int
    used_mb: int = 0
    exclusive: bool = False
    """One lease has the whole GPU."""
    generation: int = 0
    """Grows with every change. A claim succeeds only if it is still the generation that the choice was based on."""
    withheld: WithheldReason | None = None
    """None if new leases may get it."""
    model: str = ""
    compute_capability: Capability | None = None
    """None if its monitor does not know it."""
    leases: int = 0
    """The number of leases that have a part of it."""
    given: int = 0
    """The generation that the last claim set, so that GPUs can be ordered by their last claim; 0 without any claim.
    Releases do not change it."""
    utilisation: float | None = None
    """Percent of the time during which a CUDA kernel ran, over the monitors' window; None if unknown."""
    reserved_mb: int = 0
    """Kept for reservations, and claimed by none of their leases yet."""

    def __post_init__(self) -> None:
        if not 0 <= self.used_mb <= self.memory_mb:
            raise ValueError(f"{self.used_mb} of {self.memory_mb} MiB of {self.uuid} in use")
        if not 0 <= self.reserved_mb <= self.memory_mb - self.used_mb:
            raise ValueError(
                f"{self.reserved_mb} MiB of {self.uuid} reserved beside {self.used_mb} of {self.memory_mb} MiB in use"
            )
        if self.exclusive and self.used_mb != self.memory_mb:
            raise ValueError(
                f"{self.uuid} is claimed exclusively, but not all of its memory is in use"
            )

    @property
    def kind(self) -> str:
        """Return its kind, of `gsaas.objects.device_kinds`."""
        return kind_of(self.uuid)

    @property
    def traits(self) -> Traits:
        """Return what a request may require of it, besides its host and its memory."""
        return (kind_of(self.uuid), self.model, self.compute_capability or UNKNOWN)

    @property
    def is_mig_instance(self) -> bool:
        """Return whether it is a part of a GPU that the GPU itself keeps apart."""
        return self.uuid.startswith(MIG_INSTANCE)

    @property
    def free_mb(self) -> int:
        """MiB that no lease has claimed and no reservation keeps, whether or not the GPU is withheld."""
        return self.memory_mb - self.used_mb - self.reserved_mb

    def available(self, mode: str) -> int:
        """Return the MiB that a new lease may claim now: the free memory; in exclusive mode all of the GPU or 0."""
        if self.withheld is not None:
            return 0
        if mode == EXCLUSIVE:
            return self.memory_mb if self.used_mb == 0 and self.reserved_mb == 0 else 0
        return self.memory_mb - self.used_mb - self.reserved_mb

    def claim(
        self, memory_mb: int, *, exclusive: bool, generation: int, same_lease: bool = False
    ) -> Gpu:
        """Return this GPU with *memory_mb* more in use and *generation*; raises `ValueError` if it has less free.

        *same_lease* is True if the lease has a part of the GPU already, so that it is not counted twice.
        """
        if self.exclusive or (exclusive and (self.used_mb or self.reserved_mb)):
            raise ValueError(f"{self.uuid} is in use already")
        leases = self.leases if same_lease else self.leases + 1
        return self._using(self.used_mb + memory_mb, exclusive, generation, leases, generation)

    def release(self, memory_mb: int, *, generation: int, leases: int = 1) -> Gpu:
        """Return this GPU after so many *leases* have released *memory_mb*, all that they had of the GPU.

        Raises `ValueError` if less than that was claimed.
        """
        used_mb = self.used_mb - memory_mb
        return self._using(used_mb, False, generation, self.leases - leases, self.given)

    def reserve(self, memory_mb: int, *, generation: int) -> Gpu:
        """Return this GPU with *memory_mb* more kept for a reservation, or less of it if that is below 0.

        Raises `ValueError` if it has less free, or less was kept.
        """
        return self.with_(reserved_mb=self.reserved_mb + memory_mb, generation=generation)

    def with_(self, **changes: Any) -> Gpu:
        """Return a copy with other values of the named attributes."""
        return replace(self, **changes)

    def _using(
        self, used_mb: int, exclusive: bool, generation: int, leases: int, given: int
    ) -> Gpu:
        # Written out, because `dataclasses.replace` takes several times as long, and every claim comes here.
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
            self.reserved_mb,
        )


def parse_capability(capability: str) -> Capability:
    """Return the compute capability in a text such as `"9.0"` or `"9"`; raises `ValueError` if it is none."""
    major, point, minor = capability.partition(".")
    if not (major.isdecimal() and (minor.isdecimal() if point else not minor)):
        raise ValueError(f"{capability!r} is not a compute capability; write it like 8.0")
    return int(major), int(minor or 0)


def format_capability(capability: Capability | None) -> str | None:
    """Return a compute capability as text, such as `"9.0"`; None for None."""
    return None if capability is None else f"{capability[0]}.{capability[1]}"
