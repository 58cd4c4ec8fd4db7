# SPDX-License-Identifier: Apache-2.0
"""A lease as its owner reads it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from gsaas_dashboard.presentation.quantities import mebibytes, moment, seconds
from gsaasclient import lease_fields
from gsaasclient.sdk.leases import Lease

RESTING = ("ACTIVE", "RELEASED", "ERROR")
"""Statuses that a lease keeps until somebody acts: a page about it need not ask again soon."""
ENDING = ("RELEASING", "RELEASED")

MEANINGS = {
    "QUEUED": "waits for GPUs, and has none yet",
    "CLAIMED": "has its GPUs; its VM or its hosts are being prepared",
    "BOOTING": "its VM boots",
    "ACTIVE": "can be used",
    "RELEASING": "is being ended",
    "RELEASED": "has ended",
    "ERROR": "has failed; release it to remove it from the list",
}


class Device(NamedTuple):
    """One cGPU as a row of a table."""

    number: int
    address: str
    memory: str


def asked(cgpus: Mapping[str, Any] | None) -> str:
    """Return a request in a few words: `2 x 2048 MiB, shared`, `1 x whole GPU`."""
    if not cgpus:
        return "-"
    memory = cgpus.get("memory_mb")
    each = f"{mebibytes(memory)}, shared" if memory else "whole GPU"
    return f"{cgpus['count']} x {each}"


def requirements(cgpus: Mapping[str, Any] | None) -> list[tuple[str, str]]:
    """Return the other requirements of a request that are not their defaults, by name."""
    names = {
        "kind": "kind",
        "locality": "locality",
        "policy": "policy",
        "gpu_model": "GPU model",
        "compute_capability": "compute capability",
        "hosts": "GPU hosts",
        "host": "GPU host",
    }
    found = ((name, (cgpus or {}).get(field)) for field, name in names.items())
    return [(name, str(value)) for name, value in found if value not in (None, "any")]


def place(queue: Mapping[str, Any] | None) -> str:
    """Return the place of a lease in the queue: `2 of 5, about 3 min 0 s`; an empty text for one that does not wait."""
    if not queue:
        return ""
    estimate = queue.get("estimate_seconds")
    about = "" if estimate is None else f", about {seconds(estimate)}"
    return f"{queue['position']} of {queue['length']}{about}"


def status(lease: Lease) -> str:
    """Return the status with what goes with it: its place in the queue, that it is degraded, when it ends if idle."""
    if lease.status == "QUEUED" and lease.queue:
        return f"QUEUED ({place(lease.queue)})"
    notes = ["degraded"] if lease.is_degraded else []
    notes += [note for note, _ in _warnings(lease)]
    return f"{lease.status} ({'; '.join(notes)})" if notes else str(lease.status)


def warnings(lease: Lease) -> list[str]:
    """Return what its owner has to know, such as when an idle lease ends; each is a sentence."""
    return [sentence for _, sentence in _warnings(lease)]


def _warnings(lease: Lease) -> Iterator[tuple[str, str]]:
    """Yield each warning as a note to the status and as a sentence."""
    for field in lease_fields.FIELDS:
        if field.warning and (value := field.value_of(lease)):
            note, sentence = field.warning
            yield note.format(moment(value)), sentence.format(moment(value))


def is_resting(lease: Lease) -> bool:
    """Whether the status of *lease* stays until somebody acts."""
    return lease.status in RESTING


def can_be_released(lease: Lease) -> bool:
    """Whether *lease* has not ended and is not being ended."""
    return lease.status not in ENDING


def devices(lease: Lease) -> list[Device]:
    """Return the cGPUs of *lease*, with the address that its programs use."""
    return [
        Device(device["index"], _address(device), mebibytes(device.get("memory_mb")))
        for device in lease.devices or []
    ]


def _address(device: Mapping[str, Any]) -> str:
    """Return the masked address, or what the API shows of a cGPU that has none."""
    for name in ("masked_address", "real_address", "gpu_uuid"):
        if device.get(name):
            return str(device[name])
    return "-"


def exports(environment: Mapping[str, str] | None) -> str:
    """Return the environment as lines of a .env file, the order of the API kept."""
    return "\n".join(f"{name}={value}" for name, value in (environment or {}).items())
