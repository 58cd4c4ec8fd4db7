# SPDX-License-Identifier: Apache-2.0
"""What a monitor reports: the GPUs of its host and their readings, as values and as JSON on the message bus."""

from __future__ import annotations

import datetime
import ipaddress
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from gsaas.objects import device_kinds, received
from gsaas.objects.received import MAX_INTEGER, MAX_TEXT, Fields, LeftOut

PERCENT = (0, 100)
CELSIUS = (-273, 1000)
WATTS = (0, 100_000)
MIB = (0, MAX_INTEGER)
"""The ranges of readings; a value beyond them is garbage of the driver or a lie."""
UNKNOWN_MODEL = "unknown"
"""The model of a GPU that does not tell its name."""
MAX_GPUS = 1024
"""Upper bound of the GPUs and MIG instances of one host: far beyond those of any machine."""
MAX_PROCESSES = 256
"""Upper bound of the processes, and of the errors, that are believed of one GPU."""
_MAX_LOADS = 64 * MAX_GPUS
"""Upper bound of the GPUs and cGPUs of one host together."""
_CAPABILITY = re.compile(r"[0-9]{1,3}\.[0-9]{1,3}")


@dataclass(frozen=True)
class GpuInfo:
    """One GPU or MIG instance, as its monitor reports it."""

    uuid: str
    device_index: int
    """Its number on the host, from 0."""
    model: str
    memory_mb: int
    daemon_port: int
    parent_uuid: str | None = None
    """The GPU that a MIG instance is part of."""
    compute_capability: str | None = None
    """CUDA's, such as 9.0; None if it is not known."""
    withdrawn: str | None = None
    """Why it cannot be used now; None for a GPU that answers."""
    fatal_error: str | None = None
    """The last error after which only an operator may enable it again."""
    fatal_error_at: datetime.datetime | None = None
    """When that was, UTC by the clock of its host; it distinguishes two occurrences of the same error."""


@dataclass(frozen=True)
class GpuProcess:
    """A program that uses a GPU."""

    pid: int
    name: str | None
    used_mb: int | None


@dataclass(frozen=True)
class XidError:
    """An error that the driver reported of a GPU; NVIDIA's document "XID Errors" describes the numbers."""

    at: datetime.datetime
    """UTC."""
    xid: int
    fatal: bool
    """One of `[monitor]fatal_xids`."""


@dataclass(frozen=True)
class Reading:
    """What was read of one GPU. Values that it does not support are None."""

    used_mb: int | None = None
    """MiB in use, by all programs."""
    utilisation: float | None = None
    """Percent of the driver's last sample period in which a kernel ran."""
    mean_utilisation: float | None = None
    """Its mean over `[monitor]utilisation_window`, percent."""
    temperature_c: float | None = None
    power_w: float | None = None
    processes: Sequence[GpuProcess] = ()
    xid_errors: Sequence[XidError] = ()
    """The last few, oldest first."""


@dataclass(frozen=True)
class GpuSnapshot:
    """The GPUs of a host, as its source reads them at one moment."""

    gpus: Sequence[GpuInfo]
    """All of them, also those that are withdrawn; empty if `unavailable` is set."""
    readings: Mapping[str, Reading] = field(default_factory=dict)
    """UUID -> reading, of the GPUs that answered."""
    unavailable: str | None = None
    """Why no GPU can be read at present, though there may be some; None if they can. `blind` in JSON."""
    problems: Sequence[str] = ()
    """What operators have to repair, as sentences."""
    process_utilisation: Mapping[str, Mapping[int, float]] = field(default_factory=dict)
    """UUID -> process id -> percent of the time since the snapshot before; without GPUs that do not tell it, and
    without processes that ran no kernel. Not reported."""
    cores: Mapping[str, int] = field(default_factory=dict)
    """UUID -> number of cores, of CPU devices. Not reported."""

    def to_dict(self) -> dict[str, Any]:
        """Return what is reported of it, as plain JSON values."""
        return {
            "gpus": [_to_json(asdict(gpu)) for gpu in self.gpus],
            "readings": {
                uuid: _to_json(asdict(reading)) for uuid, reading in self.readings.items()
            },
            "blind": self.unavailable,
            "problems": list(self.problems),
        }


@dataclass(frozen=True)
class Load:
    """What was done with a GPU, or with one cGPU on it, in some time. Values that are not known are None."""

    gpu_uuid: str
    utilisation: float | None
    """Percent of the time in which a kernel ran."""
    used_mb: int | None
    """MiB in use, at most."""
    lease_id: str | None = None
    """The lease of the cGPU; None: this is the load of the GPU as a whole."""
    position: int = 0
    """The cGPU's number in its lease."""


@dataclass(frozen=True)
class Loads:
    """The loads of the last *seconds*."""

    seconds: float
    of: Sequence[Load] = ()


@dataclass(frozen=True)
class GpuReport:
    """The report of a monitor."""

    gpu_address: str | None
    """IPv4 address at which its daemons listen; None: it reported none that is valid."""
    interval: float | None
    """Seconds until the next report; None: it reported none that is valid."""
    snapshot: GpuSnapshot
    loads: Loads | None = None
    """None in reports that contain none: most."""
    left_out: LeftOut = field(default_factory=LeftOut, compare=False)
    """What was not valid in a report that was received; the problems say so."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {
            "gpu_address": self.gpu_address,
            "interval": self.interval,
            **self.snapshot.to_dict(),
            # Beside the readings: engines of the release before refuse a reading that has more than they know.
            **({} if self.loads is None else {"loads": _to_json(asdict(self.loads))}),
        }

    @classmethod
    def from_dict(cls, data: Any) -> GpuReport:
        """Return what is believed of *data*, which `to_dict` has made on a host; raises `TypeError` if it is no object.

        Checked by code rather than by a schema, which is too slow for a thousand GPUs every few seconds.
        """
        data = received.mapping(data)
        left_out = LeftOut()
        loads = left_out.optional("loads", _loads, data.get("loads"), left_out)
        return cls(
            left_out.optional("gpu_address", _address, data.get("gpu_address")),
            left_out.optional("interval", received.number, data.get("interval"), 0, 86400),
            _snapshot(data, left_out),  # the last: what was left out is one of its problems
            loads,
            left_out,
        )


def sound(snapshot: GpuSnapshot) -> GpuSnapshot:
    """Return *snapshot*, which any source may have made, as an engine believes it; what is left out is a problem."""
    return replace(
        _snapshot(snapshot.to_dict(), LeftOut()),
        process_utilisation=snapshot.process_utilisation,
        cores=snapshot.cores,
    )


def _snapshot(data: Mapping[str, Any], left_out: LeftOut) -> GpuSnapshot:
    unavailable = left_out.optional("blind", received.name, data.get("blind"), MAX_TEXT)
    gpus: list[GpuInfo] = []
    listed = data.get("gpus")
    if not isinstance(listed, list) or len(listed) > MAX_GPUS:
        # None of its GPUs is taken for gone, and none is offered.
        unavailable = f"the report of its monitor has no list of at most {MAX_GPUS} GPUs"
    else:
        found = left_out.items("GPUs", lambda gpu: _gpu(gpu, left_out), listed, MAX_GPUS)
        gpus = _distinct(found, left_out)
    readings = left_out.optional("readings", received.mapping, data.get("readings")) or {}
    return GpuSnapshot(
        gpus,
        {
            gpu.uuid: reading
            for gpu in gpus
            if (reading := _reading(gpu.uuid, readings.get(gpu.uuid), left_out)) is not None
        },
        unavailable,
        left_out.problems(data.get("problems", [])),
    )


def _gpu(data: Any, left_out: LeftOut) -> GpuInfo:
    data = received.mapping(data)
    uuid = received.matching(data["uuid"], device_kinds.UUID)
    optional = Fields(data, uuid, left_out).optional
    fatal_error, fatal_error_at = data.get("fatal_error"), data.get("fatal_error_at")
    if (fatal_error is None) != (fatal_error_at is None):
        raise ValueError("a fatal error has a text and a time")
    return GpuInfo(
        uuid=uuid,
        device_index=received.integer(data["device_index"], 0, MAX_INTEGER),
        model=optional("model", received.name) or UNKNOWN_MODEL,
        memory_mb=received.integer(data["memory_mb"], 1, MAX_INTEGER),
        daemon_port=received.integer(data["daemon_port"], 1, 65535),
        parent_uuid=optional("parent_uuid", received.matching, device_kinds.UUID),
        compute_capability=optional("compute_capability", received.matching, _CAPABILITY),
        withdrawn=None
        if data.get("withdrawn") is None
        else optional("withdrawn", received.name, MAX_TEXT) or "its monitor does not say why",
        fatal_error=None if fatal_error is None else received.text(fatal_error),
        fatal_error_at=None if fatal_error_at is None else received.timestamp(fatal_error_at),
    )


def _distinct(gpus: Sequence[GpuInfo], left_out: LeftOut) -> list[GpuInfo]:
    """Return *gpus* without those that have the UUID or the number of one before."""
    uuids: set[str] = set()
    indices: set[int] = set()
    distinct = []
    for gpu in gpus:
        if gpu.uuid in uuids or gpu.device_index in indices:
            left_out.note(
                gpu.uuid, ValueError(f"another GPU has its UUID or number {gpu.device_index}")
            )
        else:
            uuids.add(gpu.uuid)
            indices.add(gpu.device_index)
            distinct.append(gpu)
    return distinct


def _reading(uuid: str, data: Any, left_out: LeftOut) -> Reading | None:
    if data is None:
        return None
    what = f"the reading of {uuid}"
    data = left_out.optional(what, received.mapping, data)
    if data is None:
        return None
    optional = Fields(data, what, left_out).optional
    return Reading(
        used_mb=optional("used_mb", received.integer, *MIB),
        utilisation=optional("utilisation", received.number, *PERCENT),
        mean_utilisation=optional("mean_utilisation", received.number, *PERCENT),
        temperature_c=optional("temperature_c", received.number, *CELSIUS),
        power_w=optional("power_w", received.number, *WATTS),
        processes=left_out.items(
            f"{what}, processes",
            lambda process: _process(process, left_out),
            data.get("processes", []),
            MAX_PROCESSES,
        ),
        xid_errors=left_out.items(
            f"{what}, xid_errors", _error, data.get("xid_errors", []), MAX_PROCESSES
        ),
    )


def _process(data: Any, left_out: LeftOut) -> GpuProcess:
    data = received.mapping(data)
    pid = received.integer(data["pid"], 0, 2**32)
    optional = Fields(data, f"process {pid}", left_out).optional
    return GpuProcess(
        pid, optional("name", received.text, 255), optional("used_mb", received.integer, *MIB)
    )


def _error(data: Any) -> XidError:
    data = received.mapping(data)
    return XidError(
        received.timestamp(data["at"]),
        received.integer(data["xid"], 0, MAX_INTEGER),
        received.boolean(data["fatal"]),
    )


def _loads(data: Any, left_out: LeftOut) -> Loads:
    data = received.mapping(data)
    return Loads(
        received.number(data["seconds"], 0, 86400),
        left_out.items("loads", lambda load: _load(load, left_out), data["of"], _MAX_LOADS),
    )


def _load(data: Any, left_out: LeftOut) -> Load:
    data = received.mapping(data)
    uuid, lease_id = received.matching(data["gpu_uuid"], device_kinds.UUID), data.get("lease_id")
    optional = Fields(data, f"the load of {uuid}", left_out).optional
    return Load(
        uuid,
        optional("utilisation", received.number, *PERCENT),
        optional("used_mb", received.integer, *MIB),
        None if lease_id is None else received.name(lease_id, 36),
        received.integer(data.get("position", 0), 0, MAX_INTEGER),
    )


def _address(value: Any) -> str:
    return str(ipaddress.IPv4Address(received.text(value, 15)))


def _to_json(value: Any) -> Any:
    """Return *value* with timestamps as text and tuples as lists, at every depth."""
    match value:
        case datetime.datetime():
            return value.isoformat()
        case dict():
            return {key: _to_json(item) for key, item in value.items()}
        case list() | tuple():
            return [_to_json(item) for item in value]
        case _:
            return value
