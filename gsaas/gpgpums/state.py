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

ONE = "one"
"""All cGPUs on one GPU host."""
SPREAD = "spread"
"""Every cGPU on a GPU host of its own."""

Capability = tuple[int, int]
"""CUDA compute capability, such as (9, 0)."""
Kind = tuple[str, Capability | None]
"""Model and compute capability of a GPU: what requests tell GPUs apart by."""


class Withheld(enum.StrEnum):
    """Why a GPU is not offered, whatever is free on it."""

    DISABLED = "disabled"
    WITHDRAWN = "withdrawn"
    HOST_DISABLED = "host-disabled"
    HOST_SILENT = "host-silent"
    RESERVED = "reserved"
    """Kept for those who wait longer; only while it is asked who may go before them."""


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


@dataclass(frozen=True, slots=True)
class Request:
    """*count* cGPUs of equal size for one consumer; `ValueError` if it contradicts itself."""

    count: int
    mode: str = EXCLUSIVE
    memory_mb: int | None = None
    """MiB per cGPU in shared mode; None in exclusive mode, where a cGPU is a whole GPU."""
    locality: str = ANY
    gpu_model: str | None = None
    """What the model's name must contain, in any case."""
    compute_capability: Capability | None = None
    """The least that will do."""
    hosts: str = ANY
    """Over how many GPU hosts: `ANY`, `ONE` or `SPREAD`."""
    host: str | None = None
    """The GPU host that must own all of them."""
    consumer_host: str | None = None
    """Where the consumer is known to run: what `local` and `remote` are about, else a preference of some policies."""

    def __post_init__(self) -> None:
        if self.count < 1:
            raise ValueError(f"{self.count} cGPUs cannot be asked for")
        if self.mode not in (SHARED, EXCLUSIVE):
            raise ValueError(f"there is no mode {self.mode!r}")
        if self.locality not in (ANY, LOCAL, REMOTE):
            raise ValueError(f"there is no locality {self.locality!r}")
        if self.hosts not in (ANY, ONE, SPREAD):
            raise ValueError(f"hosts are any, one or spread, not {self.hosts!r}")
        if (self.mode == SHARED) != (self.memory_mb is not None):
            raise ValueError("memory is named in shared mode, and only there")
        if self.memory_mb is not None and self.memory_mb < 1:
            raise ValueError(f"a cGPU cannot have {self.memory_mb} MiB")
        if self.hosts == SPREAD and self.count > 1:
            if self.host is not None:
                raise ValueError(f"spread over hosts, {self.count} cGPUs cannot be on one host")
            if self.locality == LOCAL:
                raise ValueError(
                    f"spread over hosts, {self.count} cGPUs cannot all be local to one VM"
                )

    @property
    def exclusive(self) -> bool:
        return self.mode == EXCLUSIVE

    def size_on(self, gpu: Gpu) -> int:
        """MiB that one cGPU of this request takes on *gpu*."""
        return gpu.memory_mb if self.memory_mb is None else self.memory_mb

    def fits(self, gpu: Gpu) -> bool:
        """Could *gpu* hold one cGPU of this request now? Locality is not asked here."""
        return self.wants(gpu) and gpu.available(self.mode) >= (self.memory_mb or 1)

    def wants(self, gpu: Gpu) -> bool:
        """Is *gpu* of the kind, and on the host, that this request insists on?"""
        return (self.host is None or gpu.host == self.host) and self.wants_kind(gpu.kind)

    def wants_kind(self, kind: Kind) -> bool:
        """Would a GPU of this model and compute capability do?"""
        model, capability = kind
        return (self.gpu_model is None or self.gpu_model.casefold() in model.casefold()) and (
            self.compute_capability is None
            or (capability is not None and capability >= self.compute_capability)
        )

    def with_(self, **changes: Any) -> Request:
        return replace(self, **changes)

    def requirements(self) -> dict[str, Any]:
        """What it asks for beyond size and locality, in the API's words; nothing it leaves open."""
        words = {
            "gpu_model": self.gpu_model,
            "compute_capability": told(self.compute_capability),
            "hosts": None if self.hosts == ANY else self.hosts,
            "host": self.host,
        }
        return {word: value for word, value in words.items() if value is not None}

    def to_dict(self) -> dict[str, Any]:
        """Plain form, with the API's words; `from_dict` makes a request of it again."""
        return {
            "count": self.count,
            "mode": self.mode,
            "memory_mb": self.memory_mb,
            "locality": self.locality,
            **self.requirements(),
        }

    @classmethod
    def from_dict(cls, words: Mapping[str, Any], consumer_host: str | None = None) -> Request:
        """Return the request that the API's *words* ask for; words it does not know are left out.

        Raises `ValueError` if they contradict each other.
        """
        capability = words.get("compute_capability")
        return cls(
            count=words["count"],
            mode=words.get("mode", EXCLUSIVE),
            memory_mb=words.get("memory_mb"),
            locality=words.get("locality", ANY),
            gpu_model=words.get("gpu_model"),
            compute_capability=None if capability is None else understood(capability),
            hosts=words.get("hosts", ANY),
            host=words.get("host"),
            consumer_host=consumer_host,
        )


def understood(capability: str) -> Capability:
    """Return what `"9.0"` means; `ValueError` if it is no compute capability."""
    major, point, minor = capability.partition(".")
    if not (major.isdecimal() and (minor.isdecimal() if point else not minor)):
        raise ValueError(f"a compute capability is written like 8.0, not {capability!r}")
    return int(major), int(minor or 0)


def told(capability: Capability | None) -> str | None:
    """Return a compute capability as people write it: `"9.0"`."""
    return None if capability is None else f"{capability[0]}.{capability[1]}"


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
