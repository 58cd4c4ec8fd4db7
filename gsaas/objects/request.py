# SPDX-License-Identifier: Apache-2.0
"""A request for GPUs: a number of cGPUs of equal size, and what their GPUs must have in common."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from gsaas.objects.device_kinds import CUDA, KINDS
from gsaas.objects.gpu import (
    EXCLUSIVE,
    SHARED,
    Capability,
    Gpu,
    Traits,
    format_capability,
    parse_capability,
)

ANY = "any"
LOCAL = "local"
REMOTE = "remote"

ONE = "one"
"""All cGPUs on one GPU host."""
SPREAD = "spread"
"""Every cGPU on a different GPU host."""


@dataclass(frozen=True, slots=True)
class Request:
    """A request for *count* cGPUs of equal size for one consumer; immutable.

    Raises `ValueError` if its attributes contradict each other.
    """

    count: int
    mode: str = EXCLUSIVE
    memory_mb: int | None = None
    """MiB per cGPU in shared mode; None in exclusive mode, where a cGPU is a whole GPU."""
    locality: str = ANY
    gpu_model: str | None = None
    """A text that the GPU's model must contain, whatever its case; None: any model."""
    compute_capability: Capability | None = None
    """The lowest compute capability that is sufficient; None: any."""
    hosts: str = ANY
    """On how many GPU hosts the cGPUs may be: `ANY`, `ONE` or `SPREAD`."""
    host: str | None = None
    """The only GPU host whose GPUs are suitable; None: any."""
    consumer_host: str | None = None
    """The host on which the consumer runs, if it is known. `LOCAL` and `REMOTE` refer to it; with `ANY` some policies
    prefer or avoid it."""
    kind: str = CUDA
    """Of which kind its GPUs have to be, of `gsaas.objects.device_kinds`. No request is for any kind: a program that
    was made for one cannot use another."""
    one_daemon: bool = False
    """One daemon of the middleware serves all its cGPUs, which therefore are on one GPU host, each on a GPU of its own.
    The remoting driver decides it, not the caller."""
    ports_per_daemon: int = 1
    """TCP ports of each daemon. The remoting driver decides it, too."""

    def __post_init__(self) -> None:
        if self.count < 1:
            raise ValueError(f"count is {self.count}; a request is for at least one cGPU")
        if self.mode not in (SHARED, EXCLUSIVE):
            raise ValueError(f"mode is {self.mode!r}; it must be {SHARED} or {EXCLUSIVE}")
        if self.locality not in (ANY, LOCAL, REMOTE):
            raise ValueError(f"locality is {self.locality!r}; it must be any, local or remote")
        if self.hosts not in (ANY, ONE, SPREAD):
            raise ValueError(f"hosts is {self.hosts!r}; it must be any, one or spread")
        if self.kind not in KINDS:
            raise ValueError(f"kind is {self.kind!r}; it must be {' or '.join(KINDS)}")
        if (self.mode == SHARED) != (self.memory_mb is not None):
            raise ValueError("memory must be given in shared mode, and only in shared mode")
        if self.memory_mb is not None and self.memory_mb < 1:
            raise ValueError(f"memory is {self.memory_mb} MiB; a cGPU has at least 1 MiB")
        if self.one_daemon and self.hosts == SPREAD:
            raise ValueError("cGPUs that one daemon serves cannot be spread over different hosts")
        if self.hosts == SPREAD and self.count > 1:
            if self.host is not None:
                raise ValueError(
                    f"{self.count} cGPUs cannot be spread over different hosts and all be on one host"
                )
            if self.locality == LOCAL:
                raise ValueError(
                    f"{self.count} cGPUs cannot be spread over different hosts and all be local to one VM"
                )

    def check_share(self, min_share_mb: int) -> None:
        """Raise `ValueError` if a cGPU has less than *min_share_mb* MiB, the least that the operator lends."""
        if self.memory_mb is not None and self.memory_mb < min_share_mb:
            raise ValueError(
                f"{self.memory_mb} MiB for each cGPU is less than the smallest share of this cloud, {min_share_mb} "
                f"MiB; {self.memory_mb} GiB would be {self.memory_mb * 1024}"
            )

    @property
    def exclusive(self) -> bool:
        """Whether it asks for whole GPUs."""
        return self.mode == EXCLUSIVE

    @property
    def on_one_host(self) -> bool:
        """Whether all its cGPUs have to be on one GPU host."""
        return self.hosts == ONE or self.one_daemon

    def size_on(self, gpu: Gpu) -> int:
        """Return the MiB of *gpu* that one cGPU of this request needs."""
        return gpu.memory_mb if self.memory_mb is None else self.memory_mb

    def fits(self, gpu: Gpu) -> bool:
        """Return whether *gpu* is suitable and has room for one cGPU of this request now, regardless of locality."""
        return self.wants(gpu) and gpu.available(self.mode) >= (self.memory_mb or 1)

    def wants(self, gpu: Gpu) -> bool:
        """Return whether *gpu* has the traits and is on the host that this request requires."""
        return (
            (self.host is None or gpu.host == self.host)
            and self.wants_traits(gpu.traits)
            # A process can use one MIG instance.
            and not (self.one_daemon and gpu.is_mig_instance)
        )

    def wants_traits(self, traits: Traits) -> bool:
        """Return whether this request allows GPUs with these traits."""
        kind, model, capability = traits
        return (
            kind == self.kind
            and (self.gpu_model is None or self.gpu_model.casefold() in model.casefold())
            and (self.compute_capability is None or capability >= self.compute_capability)
        )

    def with_(self, **changes: Any) -> Request:
        """Return a copy with other values of the named attributes."""
        return replace(self, **changes)

    def requirements(self) -> dict[str, Any]:
        """Return the requirements beyond size and locality, by their names in the API; only those that are set.

        Without a kind, it is for devices of kind `cuda`.
        """
        requirements = {
            "kind": None if self.kind == CUDA else self.kind,
            "gpu_model": self.gpu_model,
            "compute_capability": format_capability(self.compute_capability),
            "hosts": None if self.hosts == ANY else self.hosts,
            "host": self.host,
        }
        return {name: value for name, value in requirements.items() if value is not None}

    def stored_requirements(self) -> dict[str, Any]:
        """Return what is stored of the request beside the fields of its lease: also what the caller has not asked for.

        `from_dict` knows it.
        """
        by_driver: dict[str, Any] = {"one_daemon": True} if self.one_daemon else {}
        if self.ports_per_daemon > 1:
            by_driver["ports_per_daemon"] = self.ports_per_daemon
        return self.requirements() | by_driver

    def to_dict(self) -> dict[str, Any]:
        """Return the request in the form of the API's `cgpus`, from which `from_dict` makes an equal request."""
        return {
            "count": self.count,
            "mode": self.mode,
            "memory_mb": self.memory_mb,
            "locality": self.locality,
            **self.requirements(),
        }

    @classmethod
    def from_dict(cls, cgpus: Mapping[str, Any], consumer_host: str | None = None) -> Request:
        """Return the request that the API's *cgpus* describes; unknown keys are ignored.

        Raises `ValueError` if the values contradict each other.
        """
        capability = cgpus.get("compute_capability")
        return cls(
            count=cgpus["count"],
            mode=cgpus.get("mode", EXCLUSIVE),
            memory_mb=cgpus.get("memory_mb"),
            locality=cgpus.get("locality", ANY),
            gpu_model=cgpus.get("gpu_model"),
            compute_capability=None if capability is None else parse_capability(capability),
            hosts=cgpus.get("hosts", ANY),
            host=cgpus.get("host"),
            consumer_host=consumer_host,
            kind=cgpus.get("kind", CUDA),
            one_daemon=cgpus.get("one_daemon", False),
            ports_per_daemon=cgpus.get("ports_per_daemon", 1),
        )
