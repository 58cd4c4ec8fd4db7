# SPDX-License-Identifier: Apache-2.0
"""What there is in a world at one moment, as values, for the rules: what the database, Nova, and each kernel have."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gsaas.objects.address import Address
from gsaas.objects.daemon import Admission
from tests.world.models import GpuState

Row = Mapping[str, Any]

_LEASES = (
    "SELECT id, status, project_id, name, mode, has_server, server_id, port_id, bound_host, admitted_address,"
    " plain_server_id, queued_at, priority, count, memory_mb, locality, requirements, reservation_id, consumer_host,"
    " moving, duration, wait_until, ends_at, waiter_seen_at, rowid FROM leases"
)
_CHANGING = f"{_LEASES} WHERE status <> 'RELEASED' OR rowid > ?"
"""What a lease that is released had does not change any more."""
_ONE = f"{_LEASES} WHERE id = ?"
_CLAIMS = "SELECT * FROM claims"
_CLAIMED = "SELECT c.*, l.status FROM claims c LEFT JOIN leases l ON l.id = c.lease_id"
_GPUS = (
    "SELECT uuid, host_name, memory_mb, used_mb, reserved_mb, exclusive_lease_id, leases, daemon_port"
    " FROM gpus"
)
_HOSTS = (
    "SELECT h.name, h.gpu_address AS monitor, e.gpu_address AS endpoint, h.draining_since, h.drain_waits"
    " FROM hosts h LEFT JOIN endpoints e ON e.host_name = h.name"
)
_RESERVED = (
    "SELECT project_id, sum(cgpus ->> '$.count') AS cgpus FROM reservations"
    " WHERE status IN ('PENDING', 'ACTIVE') GROUP BY project_id"
)

_FREE = (
    "SELECT h.name, g.memory_mb, g.memory_mb - g.used_mb - g.reserved_mb,"
    " NOT (g.disabled OR h.disabled OR g.withdrawn_reason IS NOT NULL OR g.device_index < 0),"
    " coalesce(datetime(h.monitor_seen_at, ?), ''),"
    " (SELECT count(*) FROM leases WHERE status = 'QUEUED')"
    " FROM gpus g JOIN hosts h ON h.name = g.host_name ORDER BY g.uuid"
)


@dataclass(frozen=True, eq=False)
class Stored:
    """What is committed: the same object as before if nothing was."""

    leases: Mapping[str, Row]
    claims: tuple[Row, ...]
    gpus: Mapping[str, Row]
    addresses: Mapping[str, frozenset[str]]
    """Host -> its addresses on the GPU network."""
    drained: Mapping[str, Mapping[str, str]]
    """Host that is drained -> why each of the leases there has not moved away."""
    reserved: Mapping[str, int]
    """Project -> the cGPUs of its reservations, whether leases have them or not."""


@dataclass(frozen=True)
class Outside:
    """What is there outside the database."""

    servers: tuple[tuple[str, str | None], ...]
    """Id and tag of each server."""
    mappings: tuple[tuple[str, str, Address], ...]
    """Host, port id and real address of each mapping that packets of a VM find there."""
    local_mappings: tuple[tuple[str, Address, Address], ...]
    """Host, masked and real address of each mapping that packets of programs of the host find there."""
    connections: tuple[tuple[str, str, Address], ...]
    """As `mappings`, of the connections that VMs have open."""
    local_connections: tuple[tuple[str, Address, Address], ...]
    """As `local_mappings`, of those that programs have open."""
    admissions: tuple[tuple[str, Admission], ...]
    """By GPU host."""
    daemons: tuple[tuple[str, str, int], ...]
    """GPU host, lease and port of each daemon of a lease that has processes."""
    host_addresses: frozenset[str]
    """Those of all hosts on the GPU network."""


class Reader:
    """Reads the database of a world beside its processes."""

    def __init__(self, path: Path) -> None:
        self._connection = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
        self._connection.row_factory = sqlite3.Row
        self._version: int | None = None
        self._stored = Stored({}, (), {}, {}, {}, {})
        self._claims: list[Any] = []
        self._last = 0
        """The number of the newest row of leases."""

    def stored(self) -> Stored:
        (version,) = self._connection.execute("PRAGMA data_version").fetchone()
        if version != self._version:
            self._version, self._stored = version, self._read()
        return self._stored

    def has_other_claims(self) -> bool:
        """Return whether claims, or the statuses of their leases, are others than at the last call."""
        before, self._claims = self._claims, self._connection.execute(_CLAIMED).fetchall()
        return before != self._claims

    def _read(self) -> Stored:
        rows = self.rows
        hosts = rows(_HOSTS)
        return Stored(
            self._read_leases(),
            tuple(rows(_CLAIMS)),
            {row["uuid"]: row for row in rows(_GPUS)},
            {
                row["name"]: frozenset(filter(None, (row["monitor"], row["endpoint"])))
                for row in hosts
            },
            {
                row["name"]: json.loads(row["drain_waits"] or "{}")
                for row in hosts
                if row["draining_since"] is not None
            },
            {row["project_id"]: row["cgpus"] for row in rows(_RESERVED)},
        )

    def free(self, heartbeat_timeout: float) -> tuple[tuple[GpuState, ...], int]:
        """Return what a new lease could have of each GPU, and how many leases wait for that."""
        found = self._connection.execute(_FREE, [f"+{heartbeat_timeout:g} seconds"]).fetchall()
        return tuple(GpuState(*row[:5]) for row in found), found[0][5] if found else 0

    def _read_leases(self) -> dict[str, Row]:
        """Return all leases, of which those are not read again that were released at the last look."""
        before = self._stored.leases
        found = {row["id"]: row for row in self.rows(_CHANGING, self._last)}
        self._last = max((row["rowid"] for row in found.values()), default=self._last)
        for key, row in before.items():
            if key not in found:
                now = [row] if row["status"] == "RELEASED" else self.rows(_ONE, key)
                found.update((key, each) for each in now)
        return found

    def rows(self, query: str, *parameters: object) -> list[Row]:
        return [dict(row) for row in self._connection.execute(query, parameters)]

    def close(self) -> None:
        self._connection.close()
