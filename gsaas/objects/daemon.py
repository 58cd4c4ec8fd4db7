# SPDX-License-Identifier: Apache-2.0
"""Daemons and admissions, as the engine and the monitors of GPU hosts exchange them."""

from __future__ import annotations

import enum
import ipaddress
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

TURN = "turn"
KNOWN = (TURN,)
"""Fields of a `Daemon` that monitors of this release know, as they report, and those of an earlier one do not."""

_KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


@dataclass(frozen=True, order=True)
class Daemon:
    """The server side of the middleware for one cGPU, for several of a lease, or for all cGPUs of one GPU."""

    gpu_uuid: str
    port: int
    """TCP port at the GPU address of its host."""
    memory_mb: int | None = None
    """MiB of memory that it may use of each GPU; None: all."""
    lease_id: str | None = None
    """The lease that it serves; None: every lease on its GPU."""
    position: int = 0
    """The cGPU's number in its lease; of several, the first one's."""
    other_gpus: tuple[str, ...] = ()
    """The GPUs of the cGPUs of the lease that follow that one, and that it serves, too."""
    ports: int = 1
    """How many ports it has: `port` and those after it."""
    turn: int = 0
    """0, or 1 for the second of two daemons of a cGPU that moves on one host: both run for a while."""

    def __post_init__(self) -> None:
        if not 0 < self.port <= self.port + self.ports - 1 < 65536:
            raise ValueError(f"{self.ports} ports from {self.port} on are not between 1 and 65535")
        if not _KEY.fullmatch(self.key):
            raise ValueError(f"{self.key!r} cannot name a daemon")

    @property
    def key(self) -> str:
        """The identity of the daemon on its host; names of files and control groups contain it."""
        if self.lease_id is None:
            return key_of_gpu(self.gpu_uuid)
        return key_of_lease(self.lease_id, self.position, self.turn)

    @property
    def gpus(self) -> tuple[str, ...]:
        """The UUIDs of all GPUs that it serves, in the order in which its clients number them."""
        return (self.gpu_uuid, *self.other_gpus)

    @property
    def all_ports(self) -> range:
        """All TCP ports that belong to it."""
        return range(self.port, self.port + self.ports)

    def position_of(self, gpu_uuid: str) -> int:
        """Return the number in its lease of the cGPU on one of its GPUs."""
        return self.position + self.gpus.index(gpu_uuid)

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values; monitors of earlier releases know none of `other_gpus`, `ports` and `turn`."""
        others = {"other_gpus": list(self.other_gpus)} if self.other_gpus else {}
        ports = {"ports": self.ports} if self.ports > 1 else {}
        turn = {"turn": self.turn} if self.turn else {}
        return {
            "gpu_uuid": self.gpu_uuid,
            "port": self.port,
            "memory_mb": self.memory_mb,
            "lease_id": self.lease_id,
            "position": self.position,
            **others,
            **ports,
            **turn,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Daemon:
        """Undo `to_dict`; `ValueError` or `TypeError` if *data* is not a daemon."""
        return cls(**{**data, "other_gpus": tuple(data.get("other_gpus", ()))})


def key_of_gpu(gpu_uuid: str) -> str:
    """Return the key of the daemon that serves every lease on a GPU."""
    return f"gpu-{gpu_uuid}".replace("/", "_")


def key_of_lease(lease_id: str, position: int, turn: int = 0) -> str:
    """Return the key of the daemon that serves a lease: its cGPU number *position*, and maybe some that follow."""
    return f"{lease_id}-{position}.{turn}" if turn else f"{lease_id}-{position}"


@dataclass(frozen=True, order=True)
class Admission:
    """The permission to connect to a daemon: an IPv4 address on the GPU network, and the daemon's port."""

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
        """Undo `str`; raises `ValueError`."""
        address, _, port = text.rpartition(":")
        return cls(address, int(port))


@dataclass(frozen=True)
class DesiredState:
    """All daemons and admissions that a GPU host should have for leases; a larger *serial* is newer."""

    serial: int
    daemons: frozenset[Daemon] = frozenset()
    admissions: frozenset[Admission] = frozenset()

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {
            "serial": self.serial,
            "daemons": [daemon.to_dict() for daemon in sorted(self.daemons, key=lambda d: d.key)],
            "admissions": [asdict(admission) for admission in sorted(self.admissions)],
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> DesiredState:
        """Undo `to_dict`; `ValueError`, `TypeError` or `KeyError` if *data* is not one."""
        return cls(
            serial=int(data["serial"]),
            daemons=frozenset(map(Daemon.from_dict, data["daemons"])),
            admissions=frozenset(Admission(**admission) for admission in data["admissions"]),
        )


class DaemonState(enum.StrEnum):
    """The state of a daemon."""

    STARTING = "starting"
    HEALTHY = "healthy"
    UNRESPONSIVE = "unresponsive"
    """It was healthy and its process lives, but health checks fail."""
    DOWN = "down"
    """It ended, or could not be started; it is started again after a back-off."""
    DRAINING = "draining"
    """It is being ended."""


@dataclass(frozen=True)
class DaemonStatus:
    """One daemon and its present state."""

    daemon: Daemon
    state: DaemonState
    restarts: int = 0
    """How many times it was started again."""
    detail: str | None = None
    """Why it is not healthy, if anything is known."""
    failed_starts: int = 0
    """How many starts in a row, up to now, were followed by its end before it was healthy."""


@dataclass(frozen=True)
class DaemonUsage:
    """What the processes of one daemon have used of their host up to now."""

    cpu_seconds: float
    """Of all processors together, since it was started."""
    memory_mb: int
    """MiB at this moment."""


@dataclass(frozen=True)
class FenceReport:
    """What the fence of a GPU host admits, and how often it refused."""

    admissions: frozenset[Admission]
    refused: int = 0
    """Packets that were answered with a reset: attempts to connect, or packets of former connections."""


@dataclass(frozen=True)
class DaemonReport:
    """The actual daemons and admissions of a GPU host that applies the desired state with this *serial*."""

    serial: int
    statuses: Sequence[DaemonStatus] = ()
    fence: FenceReport | None = None
    """None: this host has no fence, and admits every address."""
    problems: Sequence[str] = ()
    """What the host could not do, as sentences."""
    middleware: str | None = None
    """The version that a daemon of the host told when it became healthy; None if none has."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values, as they are stored: daemons by key, admissions as text."""
        fence = self.fence
        return {
            "serial": self.serial,
            "daemons": {
                status.daemon.key: {
                    **status.daemon.to_dict(),
                    "state": str(status.state),
                    "restarts": status.restarts,
                    "detail": status.detail,
                    "failed_starts": status.failed_starts,
                }
                for status in sorted(self.statuses, key=lambda c: c.daemon.key)
            },
            "fence": fence
            and {
                "admissions": [str(admission) for admission in sorted(fence.admissions)],
                "refused": fence.refused,
            },
            "problems": list(self.problems),
            "middleware": self.middleware,
            "knows": list(KNOWN),
        }


def daemons_per_gpu(gpus: Iterable[tuple[str, int]], ports: int) -> frozenset[Daemon]:
    """Return one daemon with so many *ports* for each GPU, given as (UUID, port)."""
    return frozenset(Daemon(uuid, port, ports=ports) for uuid, port in gpus)
