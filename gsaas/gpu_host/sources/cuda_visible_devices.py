# SPDX-License-Identifier: Apache-2.0
"""CUDA_VISIBLE_DEVICES, interpreted as CUDA does. Pure: no I/O."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class CudaDevice:
    """A GPU or MIG instance, with the names that the variable may use for it."""

    index: int
    """The driver's number of the GPU, or of the one that a MIG instance is part of."""
    uuid: str
    parent_uuid: str | None = None
    """The GPU that a MIG instance is part of."""


def select_visible(value: str | None, devices: Sequence[CudaDevice]) -> set[str]:
    """Return the UUIDs of those of *devices* that the variable's *value* selects; None: it is not set.

    It lists numbers, UUIDs, or unambiguous beginnings of UUIDs. The first entry that is none of these, or selects a
    device again, ends the list: the rest is ignored. A GPU in MIG mode stands for all its instances. Numbers are the
    driver's (`nvidia-smi`), as with CUDA_DEVICE_ORDER=PCI_BUS_ID.
    """
    if value is None:
        return {device.uuid for device in devices}
    selected: set[str] = set()
    for entry in value.split(","):
        matching = {device.uuid for device in _matching(entry.strip(), devices)}
        if not matching or matching & selected:
            break
        selected |= matching
    return selected


def _matching(entry: str, devices: Sequence[CudaDevice]) -> list[CudaDevice]:
    if entry.isascii() and entry.isdigit():
        return [device for device in devices if device.index == int(entry)]
    if entry.startswith("GPU-"):
        whole = {device.parent_uuid or device.uuid for device in devices}
        uuid = _complete(entry, whole)
        return [device for device in devices if uuid in (device.uuid, device.parent_uuid)]
    if entry.startswith("MIG-"):
        uuid = _complete(entry, {device.uuid for device in devices})
        return [device for device in devices if device.uuid == uuid]
    return []


def _complete(beginning: str, uuids: set[str]) -> str:
    """Return the only one of *uuids* with this beginning; an empty text if none or several have it."""
    matching = [uuid for uuid in uuids if uuid.startswith(beginning)]
    return matching[0] if len(matching) == 1 else ""
