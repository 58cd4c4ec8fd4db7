# SPDX-License-Identifier: Apache-2.0
"""Asks NVML about one device, and judges each answer alone.

What capacity needs is asked by `needed`, which raises `Unusable`; all else by `optional`, for which any error is None.
Only an error that says that the GPU is lost makes it unusable, whatever was asked.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import pynvml

from gsaas.gpu_host.sources.xids import said
from gsaas.objects import device_kinds
from gsaas.objects.gpu_report import CELSIUS, PERCENT, WATTS, GpuProcess, Reading
from gsaas.objects.printable import one_line
from gsaas.objects.received import MAX_INTEGER

LOG = logging.getLogger(__name__)

MIB = 2**20
MAX_PROCESSES = 64
"""Upper bound of the processes that are reported of one GPU."""
MIG_NUMBER_STEP = 100
"""Instance *m* of GPU *i* has the number `MIG_NUMBER_STEP * (i + 1) + m`; whole GPUs have those below."""

UNSUPPORTED = {
    pynvml.NVML_ERROR_NOT_SUPPORTED,
    pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
    pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
    pynvml.NVML_ERROR_INVALID_ARGUMENT,
    pynvml.NVML_ERROR_NO_PERMISSION,
    pynvml.NVML_ERROR_NOT_FOUND,
    pynvml.NVML_ERROR_NO_DATA,
    pynvml.NVML_ERROR_INSUFFICIENT_SIZE,
}
"""Errors of a GPU that works: it, its driver or our privileges do not allow the query."""

LOST = {pynvml.NVML_ERROR_GPU_IS_LOST, pynvml.NVML_ERROR_RESET_REQUIRED}
"""Errors that say that the GPU itself cannot be used, whatever was asked."""

LOOK = "compare with nvidia-smi -q on the host, then update the driver or restart the host"
_UNIFIED = "if it uses the memory of the host, set unified_memory_mb in the section [monitor]"
"""What operators can do."""

T = TypeVar("T")


class Unusable(Exception):
    """A GPU or MIG instance cannot be used; the text says why, and what to do.

    *may_recover* says whether it may be usable after NVML was initialised again; *not_told* that there is no answer to
    what was asked, on such a GPU.
    """

    def __init__(self, why: str, *, may_recover: bool = False, not_told: bool = False) -> None:
        super().__init__(why)
        self.may_recover = may_recover
        self.not_told = not_told
        self.uuid: str | None = None
        """Its UUID if that is known; None: all devices in its slot of the driver's list; an empty text: one of those
        that are not there any more."""


class Memory(NamedTuple):
    """The memory of a device, in bytes."""

    total: int
    used: int | None
    """None if the driver does not tell."""


def memory_of(handle: Any, unified_mb: int | None) -> Memory:
    """Return the memory of a device, *unified_mb* MiB if it has none to tell and that is set; raises `Unusable`."""
    try:
        memory = needed("its memory", _memory_info, handle)
    except Unusable as error:
        if not error.not_told:
            raise
        if unified_mb is None:
            raise Unusable(f"{error}; {_UNIFIED}") from None
        return Memory(unified_mb * MIB, None)
    if not MIB <= memory.total <= MAX_INTEGER * MIB:
        raise Unusable(f"its memory is {memory.total} bytes, which cannot be; {LOOK}")
    return Memory(memory.total, memory.used)


def instances(gpu: Any, slot: int) -> tuple[list[tuple[Any, int]], list[Unusable]]:
    """Return the MIG instances of a divided GPU, NVML's handle and number of each, and why others have no handle.

    Raises `Unusable` if nothing is known of them.
    """
    most = needed("the number of its MIG instances", pynvml.nvmlDeviceGetMaxMigDeviceCount, gpu)
    first = MIG_NUMBER_STEP * (slot + 1)
    found, unusable = [], []
    for number in range(min(most, MIG_NUMBER_STEP)):
        what = f"its MIG instance {number}"
        try:
            handle = needed(what, pynvml.nvmlDeviceGetMigDeviceHandleByIndex, gpu, number)
            found.append((handle, first + number))
        except Unusable as error:
            if error.may_recover:  # else there is no such instance
                error.uuid = ""
                unusable.append(error)
    return found, unusable


def is_divided(gpu: Any) -> bool:
    """Return whether a GPU is in MIG mode; raises `Unusable` if the driver does not tell."""
    current, _pending = needed("whether it is divided (MIG)", _mig_mode, gpu)
    return bool(current == pynvml.NVML_DEVICE_MIG_ENABLE)


def _mig_mode(gpu: Any) -> Sequence[int]:
    try:
        mode: Sequence[int] = pynvml.nvmlDeviceGetMigMode(gpu)
    except pynvml.NVMLError as error:
        if error.value in UNSUPPORTED:
            return (0, 0)
        raise
    return mode


def uuid_of(handle: Any) -> str:
    """Return the UUID of a device; raises `Unusable` if it has none."""
    uuid = needed("its UUID", _decoded, pynvml.nvmlDeviceGetUUID, handle)
    if not device_kinds.UUID.fullmatch(uuid):
        raise Unusable(f"the driver says {one_line(repr(uuid), 60)} for its UUID; {LOOK}")
    return uuid


def _memory_info(handle: Any) -> Any:
    """Return its memory, as NVML has it; older drivers count what they reserve for themselves as used."""
    try:
        return pynvml.nvmlDeviceGetMemoryInfo(handle, pynvml.nvmlMemory_v2)
    except pynvml.NVMLError as error:
        if error.value in LOST:
            raise
        return pynvml.nvmlDeviceGetMemoryInfo(handle)


def capability_of(gpu: Any) -> str | None:
    found = optional(pynvml.nvmlDeviceGetCudaComputeCapability, gpu)
    if found is None or not all(0 <= part < 1000 for part in found):
        return None
    return f"{found[0]}.{found[1]}"


def reading_of(handle: Any, memory: Memory) -> Reading:
    rates = optional(pynvml.nvmlDeviceGetUtilizationRates, handle)
    power = optional(pynvml.nvmlDeviceGetPowerUsage, handle)
    celsius = optional(pynvml.nvmlDeviceGetTemperature, handle, pynvml.NVML_TEMPERATURE_GPU)
    return Reading(
        used_mb=_mib(memory.used, memory),
        utilisation=_within(PERCENT, rates and float(rates.gpu)),
        temperature_c=_within(CELSIUS, celsius),
        power_w=_within(WATTS, None if power is None else power / 1000),
        processes=_processes(handle, memory),
    )


def _processes(handle: Any, memory: Memory) -> list[GpuProcess]:
    """Return the programs that compute on a device, each once: a client of MPS may be in both of NVML's lists."""
    found = {
        process.pid: process
        for list_processes in (
            pynvml.nvmlDeviceGetComputeRunningProcesses,
            pynvml.nvmlDeviceGetMPSComputeRunningProcesses,
        )
        for process in optional(list_processes, handle) or ()
    }
    return [
        GpuProcess(
            pid,
            text(pynvml.nvmlSystemGetProcessName, pid),
            _mib(found[pid].usedGpuMemory, memory),
        )
        for pid in sorted(found)[:MAX_PROCESSES]
    ]


def _mib(used: int | None, memory: Memory) -> int | None:
    """Return bytes that are in use as MiB; None if that is more than there is, which is garbage."""
    return None if used is None or used > memory.total else used // MIB


def _within(bounds: tuple[float, float], value: float | None) -> float | None:
    """Return *value* if it is within *bounds*: what is beyond is garbage."""
    return value if value is not None and bounds[0] <= value <= bounds[1] else None


def text(function: Callable[..., str], *arguments: Any) -> str | None:
    """Return the end of a text that NVML answers, as it may be shown; None if it answers none."""
    found = optional(_decoded, function, *arguments)
    return found and (one_line(found[-255:], 255).strip() or None)


def _decoded(function: Callable[..., str], *arguments: Any) -> str:
    """Return a text that NVML answers, whatever bytes it consists of; pynvml refuses those that are not UTF-8."""
    try:
        return function(*arguments)
    except UnicodeDecodeError as error:
        return error.object.decode(errors="replace")


def needed(what: str, function: Callable[..., T], *arguments: Any) -> T:
    """Return NVML's answer, without which a device cannot be used; raises `Unusable`.

    *what* is what is asked for; it is empty for the device itself.
    """
    try:
        return function(*arguments)
    except pynvml.NVMLError as error:
        if error.value in LOST or not what:
            raise _lost(error) from None
        raise Unusable(
            f"{what} cannot be read: {said(error)}; {LOOK}",
            may_recover=error.value not in UNSUPPORTED,
            not_told=error.value == pynvml.NVML_ERROR_NOT_SUPPORTED,
        ) from None
    except Exception as error:
        LOG.debug("NVML returned garbage for %s", function, exc_info=True)
        raise Unusable(f"{what} cannot be read: {type(error).__name__}; {LOOK}") from None


def optional(function: Callable[..., T], *arguments: Any) -> T | None:
    """Return NVML's answer; None whatever is wrong, unless the GPU is lost: then `Unusable` is raised."""
    try:
        return function(*arguments)
    except pynvml.NVMLError as error:
        if error.value in LOST:
            raise _lost(error) from None
    except Exception:  # what garbage does to pynvml is unknown, and no reading is worth a GPU
        LOG.debug("NVML returned garbage for %s", function, exc_info=True)
    return None


def _lost(error: pynvml.NVMLError) -> Unusable:
    return Unusable(
        f"it fails: {said(error)}; reset it (nvidia-smi --gpu-reset) or restart the host",
        may_recover=True,
    )
