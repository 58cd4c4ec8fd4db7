# SPDX-License-Identifier: Apache-2.0
"""A source that reads the GPUs of NVIDIA's driver, through NVML.

1. Each snapshot queries everything anew, so GPUs may come, go, and be divided into MIG instances. While a GPU is in MIG
   mode, its instances are reported instead of it.
2. What a GPU does not support is None in its reading. Any other error withdraws that GPU and no other, and NVML is
   initialised again before the next snapshot: only then does a GPU that was reset answer.
3. If the driver does not answer at all, the snapshot is unavailable and the library is unloaded, so that the next one
   loads the library of the driver that is installed then.
4. A GPU keeps its number as long as this source exists, even if the driver renumbers its GPUs after one is gone: the
   ports of daemons follow from it.
"""

from __future__ import annotations

import _ctypes
import itertools
import logging
import os
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import pynvml
from oslo_config import cfg

from gsaas.gpu_host.sources.base import SourceUnavailable
from gsaas.gpu_host.sources.cuda_visible_devices import CudaDevice, select_visible
from gsaas.gpu_host.sources.xids import XidWatch, describe
from gsaas.objects.gpu_report import GpuInfo, GpuProcess, GpuSnapshot, Reading

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

_NO_SAMPLES = {pynvml.NVML_SUCCESS, pynvml.NVML_ERROR_NOT_FOUND}
"""With these the driver says that no process ran a kernel since it was asked last; pynvml raises both."""

T = TypeVar("T")


@dataclass(frozen=True)
class _DeviceReading:
    """A GPU or MIG instance, as it was read from one slot of the driver's list."""

    index: int
    """The slot."""
    instance: int | None
    """The driver's number of the GPU instance that a MIG device belongs to; None for a whole GPU."""
    handle: Any
    """NVML's handle of the physical GPU."""
    info: GpuInfo
    reading: Reading | None
    """None if it failed."""

    @property
    def physical_uuid(self) -> str:
        """The UUID of the physical GPU."""
        return self.info.parent_uuid or self.info.uuid


def load(conf: cfg.ConfigOpts, _host_name: str, first_port: int) -> Nvml:
    """Return a source of the GPUs of this host; raises `SourceUnavailable`."""
    return Nvml(
        first_port,
        fatal_xids=conf.monitor.fatal_xids,
        visible_devices=os.environ.get("CUDA_VISIBLE_DEVICES"),
    )


class Nvml:
    """Reads the GPUs of this machine that *visible_devices*, a value of CUDA_VISIBLE_DEVICES, selects.

    The daemon of GPU number *n* listens on *first_port* + n. One of *fatal_xids* withdraws a GPU until an operator
    enables it again. Raises `SourceUnavailable` if NVML's library is not installed.
    """

    def __init__(
        self, first_port: int, *, fatal_xids: Collection[int], visible_devices: str | None
    ) -> None:
        self._first_port = first_port
        self._visible_devices = visible_devices
        self._numbers: dict[str, int] = {}
        """UUID -> the number that it keeps."""
        self._last_read: dict[int, list[_DeviceReading]] = {}
        """Slot of the driver's list -> its devices when it last answered."""
        self._open = False
        self._restart_due = False
        """A GPU failed in the last snapshot: NVML has to be initialised again before the next."""
        self._watch = XidWatch(fatal_xids)
        self._sampled_until: dict[str, int] = {}
        """UUID -> the time of the last sample of its processes' utilisation, as the driver counts it."""
        try:
            self._start()
        except pynvml.NVMLError_LibraryNotFound:
            raise SourceUnavailable(
                "NVIDIA's driver is not installed on this host: libnvidia-ml.so.1 cannot be loaded. Install the "
                "driver, or say in [monitor] what the GPUs are: source = declared"
            ) from None
        except pynvml.NVMLError:
            self._unload()  # the first snapshot tries again, and reports the error

    def subscribe(self, on_change: Callable[[], None]) -> None:
        self._watch.subscribe(on_change)

    def snapshot(self) -> GpuSnapshot:
        if self._restart_due:
            self._stop()
        try:
            self._start()
            count = pynvml.nvmlDeviceGetCount()
        except pynvml.NVMLError as error:
            self._unload()
            return GpuSnapshot((), unavailable=f"NVIDIA's driver does not answer: {error}")
        self._restart_due = False
        devices: list[_DeviceReading] = []
        problems: list[str] = []
        for index in range(count):
            try:
                self._last_read[index] = self._read_slot(index)
                devices += self._last_read[index]
            except pynvml.NVMLError as error:
                self._restart_due = True
                lost = [_withdrawn(gpu, error) for gpu in self._last_read.get(index, ())]
                devices += lost
                if not lost:
                    problems.append(f"GPU number {index} of the driver's list fails: {error}")
        self._last_read = {index: read for index, read in self._last_read.items() if index < count}
        self._watch.watch({gpu.physical_uuid: gpu.handle for gpu in devices if gpu.reading})
        if self._watch.problem:
            problems.append(self._watch.problem)
        visible = [self._with_xid_errors(gpu) for gpu in self._visible_only(devices)]
        running = {gpu.info.uuid: self._process_utilisation(gpu) for gpu in visible if gpu.reading}
        return GpuSnapshot(
            [gpu.info for gpu in visible],
            {gpu.info.uuid: gpu.reading for gpu in visible if gpu.reading},
            problems=problems,
            process_utilisation={uuid: each for uuid, each in running.items() if each is not None},
        )

    def close(self) -> None:
        self._stop()

    def _start(self) -> None:
        if not self._open:
            pynvml.nvmlInit()
            self._open = True

    def _stop(self) -> bool:
        """Shut NVML down; return whether all threads have stopped using it."""
        unused = self._watch.stop()
        if self._open:
            self._open = False
            try:
                pynvml.nvmlShutdown()
            except pynvml.NVMLError as error:
                LOG.debug("NVML could not be shut down: %s", error)
        return unused

    def _unload(self) -> None:
        """Shut NVML down and unload its library, which belongs to one version of the driver.

        pynvml has no function for that, so its private names are used; without it, an update of the driver would
        require a restart of the monitor.
        """
        if not self._stop():
            return
        library, pynvml.nvmlLib = pynvml.nvmlLib, None
        pynvml._nvmlGetFunctionPointer_cache.clear()
        if library is not None:
            _ctypes.dlclose(library._handle)

    def _read_slot(self, index: int) -> list[_DeviceReading]:
        """Return the devices in one slot of the driver's list; raises `NVMLError` if the GPU fails."""
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        uuid = pynvml.nvmlDeviceGetUUID(handle)
        capability = _query(pynvml.nvmlDeviceGetCudaComputeCapability, handle)
        current, _pending = _query(pynvml.nvmlDeviceGetMigMode, handle) or (0, 0)
        if current != pynvml.NVML_DEVICE_MIG_ENABLE:
            info = self._info(handle, uuid, index, None, capability)
            return [_DeviceReading(index, None, handle, info, _reading(handle))]
        instances = []
        for instance in range(pynvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
            part = _query(pynvml.nvmlDeviceGetMigDeviceHandleByIndex, handle, instance)
            if part is not None:
                number = MIG_NUMBER_STEP * (index + 1) + instance
                info = self._info(part, pynvml.nvmlDeviceGetUUID(part), number, uuid, capability)
                part_id = _query(pynvml.nvmlDeviceGetGpuInstanceId, part)
                instances.append(_DeviceReading(index, part_id, handle, info, _reading(part)))
        return instances

    def _info(
        self,
        handle: Any,
        uuid: str,
        number: int,
        parent_uuid: str | None,
        capability: tuple[int, int] | None,
    ) -> GpuInfo:
        number = self._number(uuid, number)
        return GpuInfo(
            uuid=uuid,
            device_index=number,
            model=pynvml.nvmlDeviceGetName(handle),
            memory_mb=pynvml.nvmlDeviceGetMemoryInfo(handle).total // MIB,
            daemon_port=self._first_port + number,
            parent_uuid=parent_uuid,
            compute_capability=capability and f"{capability[0]}.{capability[1]}",
        )

    def _number(self, uuid: str, preferred: int) -> int:
        """Return the number of a GPU: the one that it had, else *preferred*, or if that is taken the first free one."""
        if uuid not in self._numbers:
            taken = set(self._numbers.values())
            free = (number for number in itertools.count() if number not in taken)
            self._numbers[uuid] = preferred if preferred not in taken else next(free)
        return self._numbers[uuid]

    def _visible_only(self, readings: list[_DeviceReading]) -> list[_DeviceReading]:
        devices = [CudaDevice(gpu.index, gpu.info.uuid, gpu.info.parent_uuid) for gpu in readings]
        uuids = select_visible(self._visible_devices, devices)
        return [gpu for gpu in readings if gpu.info.uuid in uuids]

    def _with_xid_errors(self, gpu: _DeviceReading) -> _DeviceReading:
        """Return *gpu* with its XID errors, of a MIG instance also those of its whole GPU."""
        errors = self._watch.errors(gpu.physical_uuid, gpu.instance)
        fatal = next((error for error in reversed(errors) if error.fatal), None)
        info = gpu.info
        if fatal is not None:
            info = replace(info, fatal_error=describe(fatal.xid), fatal_error_at=fatal.at)
        reading = gpu.reading and replace(gpu.reading, xid_errors=errors)
        return replace(gpu, info=info, reading=reading)

    def _process_utilisation(self, gpu: _DeviceReading) -> dict[int, float] | None:
        """Return process id -> percent of the time since it was asked last, of the processes that ran kernels.

        None if that is not known: drivers do not tell it of MIG instances, and some not at all.
        """
        if gpu.instance is not None or gpu.reading is None:
            return None
        if not gpu.reading.processes:
            return {}
        since = self._sampled_until.get(gpu.info.uuid, 0)
        try:
            samples = pynvml.nvmlDeviceGetProcessUtilization(gpu.handle, since)
        except pynvml.NVMLError as error:
            return {} if error.value in _NO_SAMPLES else None
        percents: dict[int, list[int]] = {}
        for sample in samples:
            percents.setdefault(sample.pid, []).append(sample.smUtil)
        self._sampled_until[gpu.info.uuid] = max(
            (sample.timeStamp for sample in samples), default=since
        )
        return {pid: sum(each) / len(each) for pid, each in percents.items()}


def _withdrawn(gpu: _DeviceReading, error: pynvml.NVMLError) -> _DeviceReading:
    return replace(gpu, info=replace(gpu.info, withdrawn=f"it fails: {error}"), reading=None)


def _reading(handle: Any) -> Reading:
    memory = _memory(handle)
    rates = _query(pynvml.nvmlDeviceGetUtilizationRates, handle)
    power = _query(pynvml.nvmlDeviceGetPowerUsage, handle)
    return Reading(
        used_mb=memory and memory.used // MIB,
        utilisation=rates and float(rates.gpu),
        temperature_c=_query(pynvml.nvmlDeviceGetTemperature, handle, pynvml.NVML_TEMPERATURE_GPU),
        power_w=power and power / 1000,
        processes=_processes(handle),
    )


def _memory(handle: Any) -> Any:
    """Return its memory, as NVML has it; older drivers count what they reserve for themselves as used."""
    return _query(pynvml.nvmlDeviceGetMemoryInfo, handle, pynvml.nvmlMemory_v2) or _query(
        pynvml.nvmlDeviceGetMemoryInfo, handle
    )


def _processes(handle: Any) -> list[GpuProcess]:
    """Return the programs that compute on it, each once: a client of MPS may be in both of NVML's lists."""
    found: dict[int, GpuProcess] = {}
    for list_processes in (
        pynvml.nvmlDeviceGetComputeRunningProcesses,
        pynvml.nvmlDeviceGetMPSComputeRunningProcesses,
    ):
        for process in _query(list_processes, handle) or ():
            used = process.usedGpuMemory
            name = _query(pynvml.nvmlSystemGetProcessName, process.pid)
            found[process.pid] = GpuProcess(
                process.pid, name and name[-255:], None if used is None else used // MIB
            )
    return sorted(found.values(), key=lambda process: process.pid)[:MAX_PROCESSES]


def _query(function: Callable[..., T], *arguments: Any) -> T | None:
    """Return NVML's answer; None if this GPU does not support the query. Raises `NVMLError` if the GPU fails."""
    try:
        return function(*arguments)
    except pynvml.NVMLError as error:
        if error.value in UNSUPPORTED:
            return None
        raise
