"""Boots to measure: the same launches on a cloud in one process and on a real OpenStack."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from gsaas.objects import timings

DISPATCH = "dispatch"
"""From the claim until the engine asks the cloud for the server: an answer, a message, a look at the lease."""
OURS = (timings.GPU_SELECTION, timings.CLAIM, DISPATCH, timings.RODVR_CONFIGURATION)
"""The phases in which GSaaS works; in the others, the cloud does."""

MEMORY_MB = 100
"""MiB of each cGPU, as published."""


@dataclass(frozen=True)
class Boot:
    """One VM, from the request until it and its GPUs are ready."""

    seconds: float
    phases: Mapping[str, float]
    """Phase (`gsaas.objects.timings`, and DISPATCH) -> seconds; without GPUs, those of the cloud alone."""

    @property
    def ours(self) -> float:
        """Seconds that GSaaS worked. RODVR's are among them, though the VM boots meanwhile."""
        return sum(self.phases.get(phase, 0.0) for phase in OURS)


class Cloud(Protocol):
    """What boots VMs, each after the one before."""

    name: str

    def boot(self, cgpus: int) -> Boot:
        """Boot a VM with so many cGPUs, and delete it when it is ready."""

    def add(self) -> Boot:
        """Launch a VM with one cGPU, and let it be."""

    def clear(self) -> None:
        """Terminate everything."""


def wanted(cgpus: int) -> dict[str, Any]:
    """The cGPUs of a launch, as the API takes them."""
    return {"count": cgpus, "mode": "shared", "memory_mb": MEMORY_MB}


def phases(lease: Mapping[str, Any]) -> dict[str, float]:
    """The phases of an ACTIVE lease, as the API shows it."""
    took = dict(lease["timings"])
    at = {event["event"]: datetime.fromisoformat(event["at"]) for event in lease["events"]}
    between = (at["boot"] - at["claim"]).total_seconds()
    return took | {DISPATCH: between - took[timings.CREATION]}
