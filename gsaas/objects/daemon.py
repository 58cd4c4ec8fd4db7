"""Daemons and admissions as values, as they travel between the engine and the monitor of a GPU host."""

from __future__ import annotations

import enum
import ipaddress
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

_KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


@dataclass(frozen=True, order=True)
class Daemon:
    """The server side of the middleware for one cGPU, or for all cGPUs of one GPU."""

    gpu_uuid: str
    port: int
    """TCP, at the GPU address of its host."""
    memory_mb: int | None = None
    """MiB that it may use; None: all the GPU has."""
    lease_id: str | None = None
    """The lease whose it is; None: it serves every lease on its GPU."""
    position: int = 0
    """The cGPU's number in its lease."""

    def __post_init__(self) -> None:
        if not 0 < self.port < 65536:
            raise ValueError(f"port {self.port} is not between 1 and 65535")
        if not _KEY.fullmatch(self.key):
            raise ValueError(f"{self.key!r} cannot name a daemon")

    @property
    def key(self) -> str:
        """What it is known by on its host: also the name of files and control groups."""
        if self.lease_id is None:
            return f"gpu-{self.gpu_uuid}".replace("/", "_")
        return f"{self.lease_id}-{self.position}"


@dataclass(frozen=True, order=True)
class Admission:
    """Who may connect to a daemon: an IPv4 address on the GPU network, and the daemon's port."""

    address: str
    port: int

    def __post_init__(self) -> None:
        ipaddress.IPv4Address(self.address)
        if not 0 < self.port < 65536:
            raise ValueError(f"port {self.port} is not between 1 and 65535")

    def __str__(self) -> str:
        return f"{self.address}:{self.port}"

    @classmethod
    def parse(cls, text: str) -> Admission:
        """Read what `str` wrote."""
        address, _, port = text.rpartition(":")
        return cls(address, int(port))


@dataclass(frozen=True)
class DesiredState:
    """All that a GPU host is to hold for its leases. Of two, the one with the larger *serial* is the newer."""

    serial: int
    daemons: frozenset[Daemon] = frozenset()
    admissions: frozenset[Admission] = frozenset()

    def to_dict(self) -> dict[str, Any]:
        return {
            "serial": self.serial,
            "daemons": [asdict(daemon) for daemon in sorted(self.daemons, key=lambda d: d.key)],
            "admissions": [asdict(admission) for admission in sorted(self.admissions)],
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> DesiredState:
        """Undo `to_dict`; `ValueError`, `TypeError` or `KeyError` if *data* is not one."""
        return cls(
            serial=int(data["serial"]),
            daemons=frozenset(Daemon(**daemon) for daemon in data["daemons"]),
            admissions=frozenset(Admission(**admission) for admission in data["admissions"]),
        )


class DaemonState(enum.StrEnum):
    """How a daemon fares."""

    STARTING = "starting"
    HEALTHY = "healthy"
    UNRESPONSIVE = "unresponsive"
    """It was healthy, its process lives, and it does not answer."""
    DOWN = "down"
    """It ended, and is started again after a pause."""
    DRAINING = "draining"
    """It is to go, and has not gone yet."""


@dataclass(frozen=True)
class Condition:
    """One daemon, and how it fares now."""

    daemon: Daemon
    state: DaemonState
    restarts: int = 0
    """How often it was started again."""
    detail: str | None = None
    """Why it is not healthy, if anything is known."""


@dataclass(frozen=True)
class FenceReport:
    """Whom the fence admits, and how often it refused."""

    admissions: frozenset[Admission]
    refused: int = 0
    """Connections, or packets of former ones, that were answered with a reset."""


@dataclass(frozen=True)
class DaemonReport:
    """What a GPU host holds. All of *serial*'s wishes are known to it, and none of an older one's."""

    serial: int
    conditions: Sequence[Condition] = ()
    fence: FenceReport | None = None
    """None: this host has no fence, and admits everybody."""
    problems: Sequence[str] = ()

    def to_dict(self) -> dict[str, Any]:
        """As it is stored: daemons by key, admissions as text."""
        fence = self.fence
        return {
            "serial": self.serial,
            "daemons": {
                condition.daemon.key: {
                    "lease_id": condition.daemon.lease_id,
                    "position": condition.daemon.position,
                    "gpu_uuid": condition.daemon.gpu_uuid,
                    "port": condition.daemon.port,
                    "memory_mb": condition.daemon.memory_mb,
                    "state": str(condition.state),
                    "restarts": condition.restarts,
                    "detail": condition.detail,
                }
                for condition in sorted(self.conditions, key=lambda c: c.daemon.key)
            },
            "fence": fence
            and {
                "admissions": [str(admission) for admission in sorted(fence.admissions)],
                "refused": fence.refused,
            },
            "problems": list(self.problems),
        }


def per_gpu(gpus: Iterable[tuple[str, int]]) -> frozenset[Daemon]:
    """One daemon for each (UUID, port)."""
    return frozenset(Daemon(uuid, port) for uuid, port in gpus)
