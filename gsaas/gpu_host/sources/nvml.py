"""GPUs as NVIDIA's driver sees them, through NVML.

1. Everything is asked anew in each look, so that GPUs may come, go, and be divided into MIG instances. While a GPU is
   in MIG mode, its instances are reported instead of it.
2. What a GPU does not support is None in its reading. Any other error withdraws that GPU and no other, and NVML is
   started anew for the next look: only then does a GPU that was reset answer again.
3. When nothing can be asked, the sight is blind and the library is let go of, so that the next look finds whichever
   driver has come instead.
4. A GPU keeps its number for as long as this source lives, even when the driver counts differently after another
   one is gone: daemons listen on ports that follow from it.
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

from gsaas.gpu_host.sources.base import Unavailable
from gsaas.gpu_host.sources.visible import Device, visible
from gsaas.gpu_host.sources.xids import XidWatch, described
from gsaas.objects.gpu_report import GpuInfo, GpuProcess, Reading, Sight

LOG = logging.getLogger(__name__)

MIB = 2**20
MOST_PROCESSES = 64
"""Processes that are reported of one GPU."""
MIG_NUMBERS = 100
"""Instance *m* of GPU *i* has the number `MIG_NUMBERS * (i + 1) + m`; whole GPUs have those below."""

NOT_TOLD = {
    pynvml.NVML_ERROR_NOT_SUPPORTED,
    pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
    pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
    pynvml.NVML_ERROR_INVALID_ARGUMENT,
    pynvml.NVML_ERROR_NO_PERMISSION,
    pynvml.NVML_ERROR_NOT_FOUND,
    pynvml.NVML_ERROR_NO_DATA,
    pynvml.NVML_ERROR_INSUFFICIENT_SIZE,
}
"""Answers that say nothing against a GPU: it, its driver or our rights are not made for the question."""

T = TypeVar("T")


@dataclass(frozen=True)
class _Seen:
    """A GPU or MIG instance at one place of the driver's list."""

    index: int
    instance: int | None
    """The driver's number of the GPU instance that a MIG instance is of."""
    handle: Any
    """NVML's, of the physical GPU."""
    info: GpuInfo
    reading: Reading | None

    @property
    def whole_uuid(self) -> str:
        """Of the physical GPU."""
        return self.info.parent_uuid or self.info.uuid


def load(conf: cfg.ConfigOpts, _host_name: str, first_port: int) -> Nvml:
    """Return a source of the GPUs that NVML sees on this host; raises `Unavailable`."""
    return Nvml(
        first_port,
        fatal_xids=conf.monitor.fatal_xids,
        visible_devices=os.environ.get("CUDA_VISIBLE_DEVICES"),
    )


class Nvml:
    """Sees the GPUs of this machine that *visible_devices* (as CUDA_VISIBLE_DEVICES) leaves visible.

    The daemon of GPU number *n* listens on *first_port* + n. After one of *fatal_xids* an operator has to look at a
    GPU first. Raises `Unavailable` when NVML's library is not there.
    """

    def __init__(
        self, first_port: int, *, fatal_xids: Collection[int], visible_devices: str | None
    ) -> None:
        self._first_port = first_port
        self._visible = visible_devices
        self._numbers: dict[str, int] = {}
        self._last: dict[int, list[_Seen]] = {}
        """Place in the driver's list -> what was there when it last answered."""
        self._open = False
        self._ailing = False
        """Something failed in the last look: NVML is to be started anew."""
        self._watch = XidWatch(fatal_xids)
        try:
            self._start()
        except pynvml.NVMLError_LibraryNotFound:
            raise Unavailable(
                "NVIDIA's driver is not installed on this host: libnvidia-ml.so.1 cannot be loaded. Install the "
                "driver, or say in [monitor] what the GPUs are: source = declared"
            ) from None
        except pynvml.NVMLError:
            self._let_go()  # whoever looks is told

    def notify(self, news: Callable[[], None]) -> None:
        self._watch.notify(news)

    def look(self) -> Sight:
        if self._ailing:
            self._stop()
        try:
            self._start()
            count = pynvml.nvmlDeviceGetCount()
        except pynvml.NVMLError as error:
            blind = f"NVIDIA's driver does not answer: {error}"
            self._let_go()
            return Sight((), blind=blind)
        self._ailing = False
        seen, problems = [], []
        for index in range(count):
            try:
                self._last[index] = self._at(index)
                seen += self._last[index]
            except pynvml.NVMLError as error:
                self._ailing = True
                lost = [_withdrawn(gpu, error) for gpu in self._last.get(index, ())]
                seen += lost
                if not lost:
                    problems.append(f"GPU number {index} of the driver's list fails: {error}")
        self._last = {index: there for index, there in self._last.items() if index < count}
        self._watch.watch({gpu.whole_uuid: gpu.handle for gpu in seen if gpu.reading})
        if self._watch.problem:
            problems.append(self._watch.problem)
        shown = [self._with_errors(gpu) for gpu in self._shown(seen)]
        return Sight(
            [gpu.info for gpu in shown],
            {gpu.info.uuid: gpu.reading for gpu in shown if gpu.reading},
            problems=problems,
        )

    def close(self) -> None:
        self._stop()

    def _start(self) -> None:
        if not self._open:
            pynvml.nvmlInit()
            self._open = True

    def _stop(self) -> bool:
        """Shut NVML down; return whether nobody uses it any more."""
        unused = self._watch.stop()
        if self._open:
            self._open = False
            try:
                pynvml.nvmlShutdown()
            except pynvml.NVMLError as error:
                LOG.debug("NVML could not be shut down: %s", error)
        return unused

    def _let_go(self) -> None:
        """Stop, and have the library loaded anew the next time: it belongs to one version of the driver."""
        if not self._stop():
            return
        library, pynvml.nvmlLib = pynvml.nvmlLib, None
        pynvml._nvmlGetFunctionPointer_cache.clear()
        if library is not None:
            _ctypes.dlclose(library._handle)

    def _at(self, index: int) -> list[_Seen]:
        """Return what is at one place of the driver's list; raises `NVMLError` if it fails."""
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        uuid = pynvml.nvmlDeviceGetUUID(handle)
        capability = _told(pynvml.nvmlDeviceGetCudaComputeCapability, handle)
        current, _pending = _told(pynvml.nvmlDeviceGetMigMode, handle) or (0, 0)
        if current != pynvml.NVML_DEVICE_MIG_ENABLE:
            info = self._info(handle, uuid, index, None, capability)
            return [_Seen(index, None, handle, info, _reading(handle))]
        found = []
        for instance in range(pynvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
            part = _told(pynvml.nvmlDeviceGetMigDeviceHandleByIndex, handle, instance)
            if part is not None:
                number = MIG_NUMBERS * (index + 1) + instance
                info = self._info(part, pynvml.nvmlDeviceGetUUID(part), number, uuid, capability)
                part_id = _told(pynvml.nvmlDeviceGetGpuInstanceId, part)
                found.append(_Seen(index, part_id, handle, info, _reading(part)))
        return found

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

    def _number(self, uuid: str, wanted: int) -> int:
        """The number of a GPU: the one it had, or *wanted* if that is nobody's."""
        if uuid not in self._numbers:
            taken = set(self._numbers.values())
            free = (number for number in itertools.count() if number not in taken)
            self._numbers[uuid] = wanted if wanted not in taken else next(free)
        return self._numbers[uuid]

    def _shown(self, seen: list[_Seen]) -> list[_Seen]:
        devices = [Device(gpu.index, gpu.info.uuid, gpu.info.parent_uuid) for gpu in seen]
        uuids = visible(self._visible, devices)
        return [gpu for gpu in seen if gpu.info.uuid in uuids]

    def _with_errors(self, gpu: _Seen) -> _Seen:
        """Add what the driver reported of it: errors of its GPU, too, if it is a MIG instance."""
        errors = self._watch.errors(gpu.whole_uuid, gpu.instance)
        fatal = next((error for error in reversed(errors) if error.fatal), None)
        info = gpu.info
        if fatal is not None:
            info = replace(info, fatal_error=described(fatal.xid), fatal_error_at=fatal.at)
        reading = gpu.reading and replace(gpu.reading, xid_errors=errors)
        return replace(gpu, info=info, reading=reading)


def _withdrawn(gpu: _Seen, error: pynvml.NVMLError) -> _Seen:
    return replace(gpu, info=replace(gpu.info, withdrawn=f"it fails: {error}"), reading=None)


def _reading(handle: Any) -> Reading:
    memory = _memory(handle)
    rates = _told(pynvml.nvmlDeviceGetUtilizationRates, handle)
    power = _told(pynvml.nvmlDeviceGetPowerUsage, handle)
    return Reading(
        used_mb=memory and memory.used // MIB,
        utilisation=rates and float(rates.gpu),
        temperature_c=_told(pynvml.nvmlDeviceGetTemperature, handle, pynvml.NVML_TEMPERATURE_GPU),
        power_w=power and power / 1000,
        processes=_processes(handle),
    )


def _memory(handle: Any) -> Any:
    """What is used of its memory; older drivers count what they keep for themselves, too."""
    return _told(pynvml.nvmlDeviceGetMemoryInfo, handle, pynvml.nvmlMemory_v2) or _told(
        pynvml.nvmlDeviceGetMemoryInfo, handle
    )


def _processes(handle: Any) -> list[GpuProcess]:
    """The programs that compute on it, each once: also as a client of MPS it is listed as what it is."""
    found: dict[int, GpuProcess] = {}
    for ask in (
        pynvml.nvmlDeviceGetComputeRunningProcesses,
        pynvml.nvmlDeviceGetMPSComputeRunningProcesses,
    ):
        for process in _told(ask, handle) or ():
            used = process.usedGpuMemory
            name = _told(pynvml.nvmlSystemGetProcessName, process.pid)
            found[process.pid] = GpuProcess(
                process.pid, name and name[-255:], None if used is None else used // MIB
            )
    return sorted(found.values(), key=lambda process: process.pid)[:MOST_PROCESSES]


def _told(ask: Callable[..., T], *arguments: Any) -> T | None:
    """What NVML answers; None if the question is not one for this GPU. Raises `NVMLError` if the GPU fails."""
    try:
        return ask(*arguments)
    except pynvml.NVMLError as error:
        if error.value in NOT_TOLD:
            return None
        raise
