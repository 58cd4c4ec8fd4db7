"""What a consumer asks for: so many cGPUs of one size, and what their GPUs must be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from gsaas.objects.gpu import (
    EXCLUSIVE,
    SHARED,
    Capability,
    Gpu,
    Kind,
    format_capability,
    parse_capability,
)

ANY = "any"
LOCAL = "local"
REMOTE = "remote"

ONE = "one"
"""All cGPUs on one GPU host."""
SPREAD = "spread"
"""Every cGPU on a GPU host of its own."""


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
            "compute_capability": format_capability(self.compute_capability),
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
            compute_capability=None if capability is None else parse_capability(capability),
            hosts=words.get("hosts", ANY),
            host=words.get("host"),
            consumer_host=consumer_host,
        )
