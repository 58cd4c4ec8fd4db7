# SPDX-License-Identifier: Apache-2.0
"""Compares what the row of a GPU counts with what leases claim of it and reservations keep, and counts it again.

Transactions change both together, so they never differ unless GSaaS has a defect, or the tables were changed by hand.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Select, and_, exists, func, select, update

from gsaas.db.models import ClaimRow, GpuRow, ReservedShareRow, change_number, table_of

_GPUS, _CLAIMS, _SHARES = table_of(GpuRow), table_of(ClaimRow), table_of(ReservedShareRow)


@dataclass(frozen=True)
class Miscounted:
    """A GPU whose row does not match its claims and reserved shares; memory in MiB."""

    uuid: str
    host: str
    used_mb: int
    claimed_mb: int
    leases: int
    with_claims: int
    """Leases that claim something of it, each once however many of its cGPUs are on it."""
    reserved_mb: int
    kept_mb: int
    memory_mb: int

    @property
    def is_over_committed(self) -> bool:
        """Return whether more is claimed and kept of it than it has: the database does not store such a count."""
        return self.claimed_mb + self.kept_mb > self.memory_mb

    def __str__(self) -> str:
        """Return the differences in a sentence."""
        parts = [
            f"{counted} {unit} counted, {found} {what}"
            for counted, found, unit, what in (
                (self.used_mb, self.claimed_mb, "MiB", "claimed"),
                (self.leases, self.with_claims, "leases", "with claims"),
                (self.reserved_mb, self.kept_mb, "MiB", "kept for reservations"),
            )
            if counted != found
        ]
        said = "; ".join(parts) or "held exclusively by a lease without a claim on it"
        return f"{self.uuid} of {self.host}: {said}"


def miscounted(connection: Connection) -> list[Miscounted]:
    """Return the GPUs whose rows count wrongly, by host and UUID; *connection* has to see one snapshot."""
    query = _counted().order_by(_GPUS.c.host_name, _GPUS.c.uuid)
    return [Miscounted(*row[:-1]) for row in connection.execute(query) if _differs(row)]


def recount(connection: Connection, uuid: str) -> bool:
    """Count again what is claimed and kept of a GPU, and write it if it differs; return whether it did.

    While its row is locked, no claim on it is half written: claims and returns change the row first. Whoever changes
    reserved shares changes the row afterwards, by a difference or on condition that it is as it was: both stay right.
    """
    connection.execute(select(_GPUS.c.uuid).where(_GPUS.c.uuid == uuid).with_for_update())
    row = connection.execute(_counted().where(_GPUS.c.uuid == uuid)).one_or_none()
    if row is None or not _differs(row):
        return False
    found = Miscounted(*row[:-1])
    holder = {"exclusive_lease_id": None} if row[-1] else {}
    connection.execute(
        update(_GPUS)
        .where(_GPUS.c.uuid == uuid)
        .values(
            used_mb=found.claimed_mb,
            leases=found.with_claims,
            reserved_mb=found.kept_mb,
            generation=_GPUS.c.generation + 1,
            change_number=change_number(connection),
            **holder,
        )
    )
    return True


def _counted() -> Select[Any]:
    """Return the query for the columns of `Miscounted`, and whether a lease holds the GPU that has no claim on it."""
    claims = (
        select(
            _CLAIMS.c.gpu_uuid,
            func.sum(_CLAIMS.c.memory_mb).label("mb"),
            func.count(_CLAIMS.c.lease_id.distinct()).label("n"),
        )
        .group_by(_CLAIMS.c.gpu_uuid)
        .subquery()
    )
    shares = (
        select(_SHARES.c.gpu_uuid, func.sum(_SHARES.c.memory_mb).label("mb"))
        .where(_SHARES.c.kept.is_(True), _SHARES.c.lease_id.is_(None))
        .group_by(_SHARES.c.gpu_uuid)
        .subquery()
    )
    of_holder = exists().where(
        _CLAIMS.c.gpu_uuid == _GPUS.c.uuid, _CLAIMS.c.lease_id == _GPUS.c.exclusive_lease_id
    )
    return (
        select(
            *(_GPUS.c.uuid, _GPUS.c.host_name, _GPUS.c.used_mb, func.coalesce(claims.c.mb, 0)),
            *(_GPUS.c.leases, func.coalesce(claims.c.n, 0)),
            *(_GPUS.c.reserved_mb, func.coalesce(shares.c.mb, 0), _GPUS.c.memory_mb),
            and_(_GPUS.c.exclusive_lease_id.is_not(None), ~of_holder),
        )
        .outerjoin(claims, claims.c.gpu_uuid == _GPUS.c.uuid)
        .outerjoin(shares, shares.c.gpu_uuid == _GPUS.c.uuid)
    )


def _differs(row: Sequence[Any]) -> bool:
    _, _, used_mb, claimed_mb, leases, claims, reserved_mb, kept_mb, _, holder_is_gone = row
    return bool(
        used_mb != claimed_mb or leases != claims or reserved_mb != kept_mb or holder_is_gone
    )
