# SPDX-License-Identifier: Apache-2.0
"""Writes entries into the database, all of them with one set of statements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields

from sqlalchemy import Connection

from gsaas.db import claims as claim_rows
from gsaas.db import leases
from gsaas.db import reservations as reservation_rows
from gsaas.gpgpums.changes import Entry
from gsaas.objects.gpu import Gpu
from gsaas.objects.lease import Lease

COLUMNS = tuple(field.name for field in fields(Lease) if field.name != "claims")


def write(
    connection: Connection, entries: Sequence[Entry], gpus: Mapping[str, Gpu]
) -> dict[str, Lease]:
    """Write *entries*, whose rows are locked; *gpus* are their GPUs as the last of them leaves each.

    Returns the leases that were changed, by id, with the time of the change. Raises `OvertakenError`.
    """
    leases.insert_all(connection, [e.lease for e in entries if e.lease and e.before is None])
    changed = [
        (e.lease, changed_columns(e.before, e.lease)) for e in entries if e.lease and e.before
    ]
    written = leases.write_all(connection, changed)
    for entry in entries:
        _write_reservation(connection, entry)
    claiming = [entry.lease for entry in entries if entry.lease and entry.claims]
    holders = {claim.gpu_uuid: lease.id for lease in claiming for claim in lease.claims}
    # After the leases, which the rows of GPUs refer to.
    claim_rows.write_gpus(
        connection,
        [(gpu, holders.get(uuid) if gpu.exclusive else None) for uuid, gpu in sorted(gpus.items())],
    )
    claim_rows.delete(connection, [e.before.id for e in entries if e.before and e.returns_claims])
    leases.insert_claims(connection, *claiming)
    leases.record_events_of(connection, {e.lease.id: e.events for e in entries if e.lease})
    return {lease.id: lease for lease in written}


def changed_columns(before: Lease, after: Lease) -> list[str]:
    """Return the columns in which two states of a lease differ."""
    return [name for name in COLUMNS if getattr(before, name) != getattr(after, name)]


def _write_reservation(connection: Connection, entry: Entry) -> None:
    """Write what *entry* says of a reservation, but for the GPUs."""
    before = entry.before
    if before is not None and before.reservation_id is not None and entry.returns_claims:
        reservation_rows.give_back(connection, before.id)
    written = entry.reservation
    if written is None:
        return
    if written.is_new:
        reservation_rows.store(connection, written.before)
        reservation_rows.forget_old(connection, written.before.project_id)
        return
    if written.status is not None:
        reservation_rows.set_status(connection, written.before, written.status)
    if written.moves:
        status = written.status or written.before.status
        reservation_rows.move(connection, written.before, status, written.moves)
        reservation_rows.confirm_placing(connection, written.placings)
    if written.kept:
        reservation_rows.keep(connection, written.before, written.kept)
    if written.taken and entry.lease is not None:
        reservation_rows.take(connection, written.before, written.taken, entry.lease.id)
    if written.is_over:
        reservation_rows.drop(connection, written.before)
