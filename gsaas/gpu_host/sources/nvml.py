# SPDX-License-Identifier: Apache-2.0
"""A source that reads the GPUs of NVIDIA's driver, through NVML.

1. Each snapshot queries everything anew, so GPUs may come, go, and be divided into MIG instances. While a GPU is in MIG
   mode, its instances are reported instead of it.
2. Each answer of the driver is judged alone. A reading that is an error or out of its range is None, and never decides
   whether a GPU can be used. That is decided by what capacity needs: that the GPU answers, its UUID, whether it is
   divided, and its memory; and by errors that say, whatever was asked, that the GPU is gone.
3. A GPU that cannot be used is withdrawn if it was ever read, else left out. Both is a problem with what to do, and
   affects no other GPU.
4. Only after NVML was initialised again does a GPU that was reset answer. That is done before the next snapshot, and
   less often while it does not help, because errors (XIDs) that happen meanwhile are missed; and never for a GPU that
   does not support what is needed.
5. If the driver does not answer at all, the snapshot is unavailable and the library is unloaded, so that the next one
   loads the library of the driver that is installed then.
6. A GPU keeps its number as long as this source exists, even if the driver renumbers its GPUs after one is gone: the
   ports of daemons follow from it. Only when none is left, those of GPUs that are gone are given to others.
"""

from __future__ import annotations

import _ctypes
import itertools
import logging
import os
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pynvml
from oslo_config import cfg

from gsaas.gpu_host.sources.base import SourceUnavailable
from gsaas.gpu_host.sources.cuda_visible_devices import CudaDevice, select_visible
from gsaas.gpu_host.sources.nvml_answers import (
    LOOK,
    MIB,
    Unusable,
    capability_of,
    instances,
    is_divided,
    memory_of,
    needed,
    optional,
    reading_of,
    text,
    uuid_of,
)
from gsaas.gpu_host.sources.xids import XidWatch, describe, said
from gsaas.objects.gpu_report import (
    MAX_GPUS,
    PERCENT,
    UNKNOWN_MODEL,
    GpuInfo,
    GpuSnapshot,
    Reading,
)

LOG = logging.getLogger(__name__)

_NO_SAMPLES = {pynvml.NVML_SUCCESS, pynvml.NVML_ERROR_NOT_FOUND}
"""With these the driver says that no process ran a kernel since it was asked last; pynvml raises both."""
_CLOCKS_DIFFER = 60_000_000
"""Microseconds by which the driver's clock may be before that of this process."""


@dataclass(frozen=True)
class _DeviceReading:
    """A GPU or MIG instance, as it was read from one slot of the driver's list."""

    slot: int
    """Its number in the driver's list."""
    instance: int | None
    """The driver's number of the GPU instance that a MIG device belongs to; None for a whole GPU."""
    handle: Any
    """NVML's handle of the physical GPU."""
    info: GpuInfo
    reading: Reading | None
    """None if it is withdrawn."""

    @property
    def physical_uuid(self) -> str:
        """The UUID of the physical GPU."""
        return self.info.parent_uuid or self.info.uuid


def load(conf: cfg.ConfigOpts, _host_name: str, ports: Sequence[int]) -> Nvml:
    """Return a source of the GPUs of this host; raises `SourceUnavailable`."""
    return Nvml(
        ports,
        fatal_xids=conf.monitor.fatal_xids,
        visible_devices=os.environ.get("CUDA_VISIBLE_DEVICES"),
        unified_memory_mb=conf.monitor.unified_memory_mb,
    )


class Nvml:
    """Reads the GPUs of this machine that *visible_devices*, a value of CUDA_VISIBLE_DEVICES, selects.

    The daemon of GPU number *n* listens on *ports*[n]. One of *fatal_xids* withdraws a GPU until an operator
    enables it again. A GPU whose memory the driver cannot tell has *unified_memory_mb* MiB; None: it is left out.
    Raises `SourceUnavailable` if NVML's library is not installed.
    """

    def __init__(
        self,
        ports: Sequence[int],
        *,
        fatal_xids: Collection[int],
        visible_devices: str | None,
        unified_memory_mb: int | None = None,
    ) -> None:
        self._ports = ports
        self._visible_devices = visible_devices
        self._unified_memory_mb = unified_memory_mb
        self._numbers: dict[str, int] = {}
        """UUID -> the number that it keeps."""
        self._last_read: dict[int, list[_DeviceReading]] = {}
        """Slot of the driver's list -> its devices, withdrawn or not, as they were read last."""
        self._failures: dict[int, int] = {}
        """Slot -> in how many snapshots, up to the last one, it had a device that may recover."""
        self._open = False
        self._restart_due = False
        """NVML has to be initialised again before the next snapshot."""
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
            return GpuSnapshot((), unavailable=f"NVIDIA's driver does not answer: {said(error)}")
        slots = range(min(count, MAX_GPUS))
        problems: list[str] = []
        if count > MAX_GPUS:
            problems.append(f"the driver lists {count} GPUs, of which {MAX_GPUS} are read; {LOOK}")
        devices: dict[str, _DeviceReading] = {}
        withdrawn: list[_DeviceReading] = []
        unread: list[CudaDevice] = []
        for slot in slots:
            read, unusable = self._read_slot(slot)
            own = []
            for device in read:
                if (first := devices.setdefault(device.info.uuid, device)) is device:
                    own.append(device)
                else:
                    why = f"it has the UUID of number {first.slot}, {first.info.uuid}; {LOOK}"
                    problems.append(_left_out(slot, why))
                    unread.append(CudaDevice(slot, _nameless(slot)))
            unread += [CudaDevice(slot, error.uuid or _nameless(slot)) for error in unusable]
            lost = self._withdraw(slot, read, unusable, problems)
            self._last_read[slot] = [*own, *lost]
            withdrawn += lost
        # After a change of the list, one of them may have answered in another slot.
        for device in withdrawn:
            devices.setdefault(device.info.uuid, device)
        self._last_read = {slot: read for slot, read in self._last_read.items() if slot in slots}
        self._failures = {slot: times for slot, times in self._failures.items() if slot in slots}
        self._restart_due = any(map(_restart_may_help, self._failures.values()))
        found = sorted(devices.values(), key=lambda gpu: gpu.slot)
        self._watch.watch({gpu.physical_uuid: gpu.handle for gpu in found if gpu.reading})
        if self._watch.problem:
            problems.append(self._watch.problem)
        visible = [self._with_xid_errors(gpu) for gpu in self._visible_only(found, unread)]
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

    def _read_slot(self, slot: int) -> tuple[list[_DeviceReading], list[Unusable]]:
        """Return the devices in one slot of the driver's list that can be used, and why others cannot."""
        try:
            gpu = needed("", pynvml.nvmlDeviceGetHandleByIndex, slot)
            uuid = uuid_of(gpu)
            parts, unusable = instances(gpu, slot) if is_divided(gpu) else ([(gpu, slot)], [])
        except Unusable as error:
            return [], [error]
        devices = []
        for handle, number in parts:
            try:
                devices.append(self._device(slot, gpu, uuid, handle, number))
            except Unusable as error:
                unusable.append(error)
        return devices, unusable

    def _device(
        self, slot: int, gpu: Any, gpu_uuid: str, handle: Any, number: int
    ) -> _DeviceReading:
        """Return what is read of a GPU, or of the MIG instance *handle* of it; raises `Unusable`."""
        is_whole = handle is gpu
        uuid = gpu_uuid if is_whole else ""
        try:
            uuid = uuid or uuid_of(handle)
            # What its host has is the whole GPU's, and would be offered once for each instance.
            memory = memory_of(handle, self._unified_memory_mb if is_whole else None)
            number = self._number(uuid, number)
            info = GpuInfo(
                uuid=uuid,
                device_index=number,
                model=text(pynvml.nvmlDeviceGetName, handle) or self._last_model(slot, uuid),
                memory_mb=memory.total // MIB,
                daemon_port=self._port(number),
                parent_uuid=None if is_whole else gpu_uuid,
                compute_capability=capability_of(gpu),
            )
            instance = None if is_whole else optional(pynvml.nvmlDeviceGetGpuInstanceId, handle)
            return _DeviceReading(slot, instance, gpu, info, reading_of(handle, memory))
        except Unusable as error:
            error.uuid = uuid
            raise

    def _last_model(self, slot: int, uuid: str) -> str:
        """Return the model that a device had when it was last asked."""
        models = (one.info.model for one in self._last_read.get(slot, ()) if one.info.uuid == uuid)
        return next(models, UNKNOWN_MODEL)

    def _withdraw(
        self,
        slot: int,
        read: Sequence[_DeviceReading],
        unusable: Sequence[Unusable],
        problems: list[str],
    ) -> list[_DeviceReading]:
        """Return, as withdrawn, those devices of a slot that were read before and are *unusable* now.

        An instance that does not tell its UUID may be any of those that are not *read* any more. The problems of the
        slot are added to *problems*.
        """
        withdrawn: list[_DeviceReading] = []
        named = {error.uuid for error in unusable}
        there = {device.info.uuid for device in read}
        missing = [one for one in self._last_read.get(slot, ()) if one.info.uuid not in there]
        for error in unusable:
            if error.uuid is None:
                known = missing
            elif error.uuid:
                known = [one for one in missing if one.info.uuid == error.uuid]
            else:
                known = [one for one in missing if one.info.uuid not in named]
                named |= {one.info.uuid for one in known}
            for device in known:
                info = replace(device.info, withdrawn=str(error))
                withdrawn.append(replace(device, info=info, reading=None))
                problems.append(f"GPU {info.uuid} is withdrawn: {error}")
            if not known:
                problems.append(_left_out(slot, str(error)))
        recovers = any(error.may_recover for error in unusable)
        self._failures[slot] = self._failures.get(slot, 0) + 1 if recovers else 0
        return withdrawn

    def _number(self, uuid: str, preferred: int) -> int:
        """Return the number of a GPU: the one that it had, else *preferred*, or if that is taken the first free one."""
        if uuid not in self._numbers:
            taken = set(self._numbers.values())
            if taken.issuperset(range(len(self._ports))):
                self._forget_numbers()
                taken = set(self._numbers.values())
            free = (number for number in itertools.count() if number not in taken)
            self._numbers[uuid] = preferred if preferred not in taken else next(free)
        return self._numbers[uuid]

    def _forget_numbers(self) -> None:
        """Forget the numbers of GPUs that are gone; a driver that makes up UUIDs would take all of them in time."""
        present = {one.info.uuid for read in self._last_read.values() for one in read}
        self._numbers = {uuid: own for uuid, own in self._numbers.items() if uuid in present}

    def _port(self, number: int) -> int:
        try:
            return self._ports[number]
        except IndexError:
            raise Unusable(f"there is no TCP port for the daemon of GPU number {number}") from None

    def _visible_only(
        self, readings: list[_DeviceReading], unread: list[CudaDevice]
    ) -> list[_DeviceReading]:
        """Return those of *readings* that are selected; what could not be read does not end the list of those."""
        devices = [CudaDevice(gpu.slot, gpu.info.uuid, gpu.info.parent_uuid) for gpu in readings]
        uuids = select_visible(self._visible_devices, [*devices, *unread])
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
        if gpu.info.parent_uuid is not None or gpu.reading is None:
            return None
        if not gpu.reading.processes:
            return {}
        since = self._sampled_until.get(gpu.info.uuid, 0)
        try:
            samples = pynvml.nvmlDeviceGetProcessUtilization(gpu.handle, since)
        except pynvml.NVMLError as error:
            return {} if error.value in _NO_SAMPLES else None
        except Exception:  # as in nvml_answers.optional
            LOG.debug("NVML returned garbage for the utilisation of processes", exc_info=True)
            return None
        # A time in the future would hide all samples up to then, as if no process computed.
        latest = time.time_ns() // 1000 + _CLOCKS_DIFFER
        percents: dict[int, list[int]] = {}
        garbled: set[int] = set()
        for sample in samples:
            if sample.smUtil <= PERCENT[1] and sample.timeStamp <= latest:
                percents.setdefault(sample.pid, []).append(sample.smUtil)
                since = max(since, sample.timeStamp)
            else:
                garbled.add(sample.pid)
        self._sampled_until[gpu.info.uuid] = since
        if any(process.pid in garbled - percents.keys() for process in gpu.reading.processes):
            return None  # not zero: a lease that is idle may be lost
        return {pid: sum(each) / len(each) for pid, each in percents.items()}


def _nameless(slot: int) -> str:
    return f"number {slot}"


def _left_out(slot: int, why: str) -> str:
    return f"GPU number {slot} of the driver's list is left out: {why}"


def _restart_may_help(failures: int) -> bool:
    """Return whether to initialise NVML again for a GPU that has failed in so many snapshots, one after the other."""
    return failures in (1, 2, 4, 8) or (failures > 0 and failures % 16 == 0)
