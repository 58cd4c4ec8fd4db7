"""CUDA_VISIBLE_DEVICES, read as CUDA reads it. Values in, values out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Device:
    """A GPU or MIG instance, by the names that the variable may call it."""

    index: int
    """The driver's number of the GPU, or of the one that a MIG instance is part of."""
    uuid: str
    parent_uuid: str | None = None
    """The GPU that a MIG instance is part of."""


def visible(value: str | None, devices: Sequence[Device]) -> set[str]:
    """Return the UUIDs of those of *devices* that the variable's *value* leaves visible; None: it is not set.

    It lists numbers, UUIDs, or beginnings of UUIDs that only one has. The first entry that is none of these, or
    names what was named before, ends the list: what follows is ignored. A GPU in MIG mode stands
    for all its instances. Numbers are the driver's (`nvidia-smi`), as with CUDA_DEVICE_ORDER=PCI_BUS_ID.
    """
    if value is None:
        return {device.uuid for device in devices}
    found: set[str] = set()
    for entry in value.split(","):
        named = {device.uuid for device in _named(entry.strip(), devices)}
        if not named or named & found:
            break
        found |= named
    return found


def _named(entry: str, devices: Sequence[Device]) -> list[Device]:
    if entry.isascii() and entry.isdigit():
        return [device for device in devices if device.index == int(entry)]
    if entry.startswith("GPU-"):
        whole = {device.parent_uuid or device.uuid for device in devices}
        uuid = _only(entry, whole)
        return [device for device in devices if uuid in (device.uuid, device.parent_uuid)]
    if entry.startswith("MIG-"):
        uuid = _only(entry, {device.uuid for device in devices})
        return [device for device in devices if device.uuid == uuid]
    return []


def _only(beginning: str, uuids: set[str]) -> str:
    """The one of *uuids* that begins so; nobody's if several do, or none."""
    matching = [uuid for uuid in uuids if uuid.startswith(beginning)]
    return matching[0] if len(matching) == 1 else ""
