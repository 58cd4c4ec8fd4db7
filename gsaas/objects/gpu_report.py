"""What a monitor tells of its host: GPUs and what was read of them, as values and as they cross the bus."""

from __future__ import annotations

import datetime
import ipaddress
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class GpuInfo:
    """One GPU as its monitor sees it."""

    uuid: str
    device_index: int
    """Its number on the host, from 0."""
    model: str
    memory_mb: int
    daemon_port: int
    parent_uuid: str | None = None
    """The GPU that a MIG instance is part of."""
    compute_capability: str | None = None
    """CUDA's, such as 9.0; None if nobody can tell."""
    withdrawn: str | None = None
    """Why it cannot be used now; None for a GPU that answers."""
    fatal_error: str | None = None
    """The last error after which an operator has to look at it first."""
    fatal_error_at: datetime.datetime | None = None
    """When that was, UTC by the clock of its host: the same error twice is two errors."""


@dataclass(frozen=True)
class GpuProcess:
    """A program that uses a GPU."""

    pid: int
    name: str | None
    used_mb: int | None


@dataclass(frozen=True)
class XidError:
    """An error that the driver reported of a GPU; NVIDIA's "XID errors" says what each number means."""

    at: datetime.datetime
    """UTC."""
    xid: int
    fatal: bool
    """One of `[monitor]fatal_xids`."""


@dataclass(frozen=True)
class Reading:
    """How one GPU is at the moment. What a GPU does not tell is None."""

    used_mb: int | None = None
    """MiB in use, by whomever."""
    utilisation: float | None = None
    """Percent of the time, lately, in which a kernel ran."""
    mean_utilisation: float | None = None
    """Percent, over `[monitor]utilisation_window`."""
    temperature_c: float | None = None
    power_w: float | None = None
    processes: Sequence[GpuProcess] = ()
    xid_errors: Sequence[XidError] = ()
    """The last few, oldest first."""


@dataclass(frozen=True)
class Sight:
    """What a source sees of a host's GPUs at one moment."""

    gpus: Sequence[GpuInfo]
    """All of them, also those that are withdrawn."""
    readings: Mapping[str, Reading] = field(default_factory=dict)
    """By UUID, of those that answered."""
    blind: str | None = None
    """Why nothing is seen at present, though there may be GPUs; then there are no `gpus`."""
    problems: Sequence[str] = ()
    """What somebody has to mend, in words."""


@dataclass(frozen=True)
class GpuReport:
    """A host's GPUs, and until when this will do."""

    gpu_address: str
    """IPv4 address at which its daemons listen."""
    interval: float
    """Seconds until the next report."""
    sight: Sight

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            "gpu_address": self.gpu_address,
            "interval": self.interval,
            "gpus": [_plain(asdict(gpu)) for gpu in self.sight.gpus],
            "readings": {
                uuid: _plain(asdict(reading)) for uuid, reading in self.sight.readings.items()
            },
            "blind": self.sight.blind,
            "problems": list(self.sight.problems),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> GpuReport:
        """Undo `to_dict`; raises `ValueError`, `TypeError` or `KeyError` for what is no report.

        By hand rather than by a schema: a thousand GPUs are checked every few seconds.
        """
        return cls(
            str(ipaddress.IPv4Address(_text(data["gpu_address"], 15))),
            _number(data["interval"], 0, 86400),
            Sight(
                [_gpu(gpu) for gpu in data["gpus"]],
                {uuid: _reading(reading) for uuid, reading in data["readings"].items()},
                _maybe(_text, data["blind"], 1024),
                [_text(problem, 1024) for problem in data["problems"]],
            ),
        )


_UUID = re.compile(r"(GPU|MIG)-[0-9A-Za-z./-]{1,92}")
_CAPABILITY = re.compile(r"[0-9]{1,3}\.[0-9]{1,3}")
_MANY = 256
"""Processes or errors of one GPU."""
_MOST = 2**31 - 1
"""What a column holds."""


def _gpu(data: Mapping[str, Any]) -> GpuInfo:
    fatal_error = _maybe(_text, data.get("fatal_error"), 1024)
    fatal_error_at = _maybe(_moment, data.get("fatal_error_at"))
    if (fatal_error is None) != (fatal_error_at is None):
        raise ValueError("a fatal error has a text and a time")
    checked = {
        "uuid": _matching(data["uuid"], _UUID),
        "device_index": _whole(data["device_index"], 0, _MOST),
        "model": _text(data["model"], 255, 1),
        "memory_mb": _whole(data["memory_mb"], 1, _MOST),
        "daemon_port": _whole(data["daemon_port"], 1, 65535),
        "parent_uuid": _maybe(_text, data.get("parent_uuid"), 96),
        "compute_capability": _maybe(_matching, data.get("compute_capability"), _CAPABILITY),
        "withdrawn": _maybe(_text, data.get("withdrawn"), 1024, 1),
        "fatal_error": fatal_error,
        "fatal_error_at": fatal_error_at,
    }
    _nothing_else(data, checked)
    return GpuInfo(**checked)


def _reading(data: Mapping[str, Any]) -> Reading:
    checked = {
        "used_mb": _maybe(_whole, data["used_mb"], 0, _MOST),
        "utilisation": _maybe(_number, data["utilisation"], 0, _MOST),
        "mean_utilisation": _maybe(_number, data["mean_utilisation"], 0, _MOST),
        "temperature_c": _maybe(_number, data["temperature_c"], -_MOST, _MOST),
        "power_w": _maybe(_number, data["power_w"], 0, _MOST),
        "processes": [_process(process) for process in _few(data["processes"])],
        "xid_errors": [_error(error) for error in _few(data["xid_errors"])],
    }
    _nothing_else(data, checked)
    return Reading(**checked)


def _process(data: Mapping[str, Any]) -> GpuProcess:
    return GpuProcess(
        _whole(data["pid"], 0, 2**32),
        _maybe(_text, data["name"], 255),
        _maybe(_whole, data["used_mb"], 0, _MOST),
    )


def _error(data: Mapping[str, Any]) -> XidError:
    if not isinstance(data["fatal"], bool):
        raise TypeError("fatal is true or false")
    return XidError(_moment(data["at"]), _whole(data["xid"], 0, _MOST), data["fatal"])


def _maybe(check: Callable[..., T], value: Any, *more: Any) -> T | None:
    return None if value is None else check(value, *more)


def _text(value: Any, longest: int, shortest: int = 0) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    if not shortest <= len(value) <= longest:
        raise ValueError(f"a text of {len(value)} characters, and not {shortest} to {longest}")
    return value


def _matching(value: Any, pattern: re.Pattern[str]) -> str:
    if not pattern.fullmatch(value):
        raise ValueError(f"{value!r} is not like {pattern.pattern}")
    return value


def _number(value: Any, least: float, most: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{value!r} is no number")
    if not least <= value <= most:  # nor is what is not a number
        raise ValueError(f"{value} is not between {least} and {most}")
    return value


def _whole(value: Any, least: int, most: int) -> int:
    if not isinstance(value, int):
        raise TypeError(f"{value!r} is no whole number")
    return int(_number(value, least, most))


def _few(items: Sequence[Any]) -> Sequence[Any]:
    if len(items) > _MANY:
        raise ValueError(f"{len(items)} are more than {_MANY}")
    return items


def _nothing_else(data: Mapping[str, Any], checked: Mapping[str, Any]) -> None:
    if unknown := data.keys() - checked.keys():
        raise ValueError(f"nobody knows {', '.join(sorted(unknown))}")


def _moment(value: Any) -> datetime.datetime:
    moment = datetime.datetime.fromisoformat(_text(value, 32))
    if moment.tzinfo is not None:
        raise ValueError(f"{value} is in a time zone, and not just UTC")
    return moment


def _plain(value: Any) -> Any:
    """Moments as text, tuples as lists, all the way down."""
    match value:
        case datetime.datetime():
            return value.isoformat()
        case dict():
            return {key: _plain(item) for key, item in value.items()}
        case list() | tuple():
            return [_plain(item) for item in value]
        case _:
            return value
