# SPDX-License-Identifier: Apache-2.0
"""Boots to measure: the same launches on a cloud in one process, and on a real OpenStack."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from gsaas.objects import timings

DISPATCH = "dispatch"
"""The phase from the claim until the engine asks the cloud for the server: response, message, read of the lease."""
GSAAS_PHASES = (timings.GPU_SELECTION, timings.CLAIM, DISPATCH, timings.RODVR_CONFIGURATION)
"""The phases in which GSaaS works. In the others the cloud does."""

MEMORY_MB = 100
"""MiB of each cGPU, as in the published measurements."""


@dataclass(frozen=True)
class Boot:
    """The boot of one VM: *seconds* from the request until the VM and its GPUs are ready."""

    seconds: float
    phases: Mapping[str, float]
    """Phase (`gsaas.objects.timings`, and DISPATCH) -> seconds; without cGPUs, only the phases of the cloud."""

    @property
    def gsaas_seconds(self) -> float:
        """Seconds that GSaaS worked, including RODVR's, which works while the VM boots."""
        return sum(self.phases.get(phase, 0.0) for phase in GSAAS_PHASES)


class BootTarget(Protocol):
    """A cloud whose boots are measured, one after the other."""

    name: str
    """The name in tables."""

    def boot(self, cgpus: int) -> Boot:
        """Boot a VM with *cgpus* cGPUs, and delete it when it is ready. Returns the boot."""

    def add(self) -> Boot:
        """Boot a VM with one cGPU, and keep it until `clear`. Returns the boot."""

    def clear(self) -> None:
        """Delete all VMs that `add` launched."""


def cgpus_request(cgpus: int) -> dict[str, Any]:
    """Return the field `cgpus` of a launch request with that many cGPUs."""
    return {"count": cgpus, "mode": "shared", "memory_mb": MEMORY_MB}


def phases(lease: Mapping[str, Any]) -> dict[str, float]:
    """Return the phases, in seconds, of an ACTIVE lease as the API returns it."""
    took = dict(lease["timings"])
    at = {event["event"]: datetime.fromisoformat(event["at"]) for event in lease["events"]}
    between = (at["boot"] - at["claim"]).total_seconds()
    return took | {DISPATCH: between - took[timings.CREATION]}
