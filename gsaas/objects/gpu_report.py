# SPDX-License-Identifier: Apache-2.0
"""What a monitor reports: the GPUs of its host and their readings, as values and as JSON on the message bus."""

from __future__ import annotations

import datetime
import ipaddress
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, TypeVar

from gsaas.objects.printable import one_line

T = TypeVar("T")


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

    gpu_address: str
    """IPv4 address at which its daemons listen."""
    interval: float
    """Seconds until the next report."""
    snapshot: GpuSnapshot
    loads: Loads | None = None
    """None in reports that contain none: most."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {
            "gpu_address": self.gpu_address,
            "interval": self.interval,
            "gpus": [_to_json(asdict(gpu)) for gpu in self.snapshot.gpus],
            "readings": {
                uuid: _to_json(asdict(reading)) for uuid, reading in self.snapshot.readings.items()
            },
            "blind": self.snapshot.unavailable,
            "problems": list(self.snapshot.problems),
            # Beside the readings: engines of the release before refuse a reading that has more than they know.
            **({} if self.loads is None else {"loads": _to_json(asdict(self.loads))}),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> GpuReport:
        """Undo `to_dict`; raises `ValueError`, `TypeError` or `KeyError` if *data* is not a report.

        Checked by code rather than by a schema, which is too slow for a thousand GPUs every few seconds.
        """
        return cls(
            str(ipaddress.IPv4Address(_text(data["gpu_address"], 15))),
            _number(data["interval"], 0, 86400),
            GpuSnapshot(
                [_gpu(gpu) for gpu in _bounded(data["gpus"], _MAX_GPUS)],
                {
                    uuid: _reading(reading)
                    for uuid, reading in _bounded(data["readings"], _MAX_GPUS).items()
                },
                _optional(_text, data["blind"], 1024),
                [_text(problem, 1024) for problem in _bounded(data["problems"], _MAX_PROBLEMS)],
            ),
            _optional(_loads, data.get("loads")),
        )


_UUID = re.compile(r"(GPU|MIG)-[0-9A-Za-z./-]{1,92}")
_CAPABILITY = re.compile(r"[0-9]{1,3}\.[0-9]{1,3}")
_MAX_ITEMS = 256
"""Upper bound of processes or errors of one GPU."""
_MAX_GPUS = 1024
"""Upper bound of the GPUs and MIG instances of one host: far beyond those of any machine."""
_MAX_PROBLEMS = 2 * _MAX_GPUS
_MAX_LOADS = 64 * _MAX_GPUS
"""Upper bound of the GPUs and cGPUs of one host together."""
_MAX_INTEGER = 2**31 - 1
"""The largest value of an integer column."""


def _gpu(data: Mapping[str, Any]) -> GpuInfo:
    fatal_error = _optional(_text, data.get("fatal_error"), 1024)
    fatal_error_at = _optional(_timestamp, data.get("fatal_error_at"))
    if (fatal_error is None) != (fatal_error_at is None):
        raise ValueError("a fatal error has a text and a time")
    checked: dict[str, Any] = {
        "uuid": _match(data["uuid"], _UUID),
        "device_index": _integer(data["device_index"], 0, _MAX_INTEGER),
        "model": _text(data["model"], 255, 1),
        "memory_mb": _integer(data["memory_mb"], 1, _MAX_INTEGER),
        "daemon_port": _integer(data["daemon_port"], 1, 65535),
        "parent_uuid": _optional(_text, data.get("parent_uuid"), 96),
        "compute_capability": _optional(_match, data.get("compute_capability"), _CAPABILITY),
        "withdrawn": _optional(_text, data.get("withdrawn"), 1024, 1),
        "fatal_error": fatal_error,
        "fatal_error_at": fatal_error_at,
    }
    _refuse_unknown(data, checked)
    return GpuInfo(**checked)


def _reading(data: Mapping[str, Any]) -> Reading:
    checked: dict[str, Any] = {
        "used_mb": _optional(_integer, data["used_mb"], 0, _MAX_INTEGER),
        "utilisation": _optional(_number, data["utilisation"], 0, _MAX_INTEGER),
        "mean_utilisation": _optional(_number, data["mean_utilisation"], 0, _MAX_INTEGER),
        "temperature_c": _optional(_number, data["temperature_c"], -_MAX_INTEGER, _MAX_INTEGER),
        "power_w": _optional(_number, data["power_w"], 0, _MAX_INTEGER),
        "processes": [_process(process) for process in _bounded(data["processes"])],
        "xid_errors": [_error(error) for error in _bounded(data["xid_errors"])],
    }
    _refuse_unknown(data, checked)
    return Reading(**checked)


def _process(data: Mapping[str, Any]) -> GpuProcess:
    return GpuProcess(
        _integer(data["pid"], 0, 2**32),
        _optional(_text, data["name"], 255),
        _optional(_integer, data["used_mb"], 0, _MAX_INTEGER),
    )


def _loads(data: Mapping[str, Any]) -> Loads:
    return Loads(
        _number(data["seconds"], 0, 86400),
        [_load(load) for load in _bounded(data["of"], _MAX_LOADS)],
    )


def _load(data: Mapping[str, Any]) -> Load:
    return Load(
        _match(data["gpu_uuid"], _UUID),
        _optional(_number, data["utilisation"], 0, 100),
        _optional(_integer, data["used_mb"], 0, _MAX_INTEGER),
        _optional(_text, data.get("lease_id"), 36, 1),
        _integer(data.get("position", 0), 0, _MAX_INTEGER),
    )


def _error(data: Mapping[str, Any]) -> XidError:
    if not isinstance(data["fatal"], bool):
        raise TypeError("fatal has to be true or false")
    return XidError(_timestamp(data["at"]), _integer(data["xid"], 0, _MAX_INTEGER), data["fatal"])


def _quoted(value: Any) -> str:
    """Return the beginning of *value* for an error message, which is logged."""
    return one_line(repr(value), 60)


def _optional(check: Callable[..., T], value: Any, *more: Any) -> T | None:
    return None if value is None else check(value, *more)


def _text(value: Any, longest: int, shortest: int = 0) -> str:
    """Return *value* as it may be logged and shown."""
    if not isinstance(value, str):
        raise TypeError(f"{_quoted(value)} is not a text")
    if not shortest <= len(value) <= longest:
        raise ValueError(f"a text has {len(value)} characters instead of {shortest} to {longest}")
    return one_line(value, longest)


def _match(value: Any, pattern: re.Pattern[str]) -> str:
    if not pattern.fullmatch(value):
        raise ValueError(f"{_quoted(value)} does not match {pattern.pattern}")
    matching: str = value
    return matching


def _number(value: Any, least: float, most: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{_quoted(value)} is not a number")
    if not least <= value <= most:  # NaN fails this comparison, too
        raise ValueError(f"{_quoted(value)} is not between {least} and {most}")
    return value


def _integer(value: Any, least: int, most: int) -> int:
    if not isinstance(value, int):
        raise TypeError(f"{_quoted(value)} is not an integer")
    return int(_number(value, least, most))


def _bounded(items: Any, most: int = _MAX_ITEMS) -> Any:
    if len(items) > most:
        raise ValueError(f"{len(items)} items are more than {most}")
    return items


def _refuse_unknown(data: Mapping[str, Any], checked: Mapping[str, Any]) -> None:
    if unknown := data.keys() - checked.keys():
        raise ValueError(f"unknown keys: {one_line(', '.join(sorted(unknown)), 200)}")


def _timestamp(value: Any) -> datetime.datetime:
    timestamp = datetime.datetime.fromisoformat(_text(value, 32))
    if timestamp.tzinfo is not None:
        raise ValueError(f"{value} has a time zone; times are UTC without one")
    return timestamp


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
