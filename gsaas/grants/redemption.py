# SPDX-License-Identifier: Apache-2.0
"""Redeems grants: admits the address that a grant is presented from to the GPUs of its lease, or refuses it.

1. A lease's grant is redeemed once. One conditional UPDATE does it, so of several attempts at the same time exactly
   one changes a row, whatever the database.
2. A redeemed lease has an admitted address, which the engine removes from all fences before the lease returns its
   GPUs. A lease without one can be ended without asking any GPU host.
3. Every refusal is recorded where operators look for it: in the log, in the metrics, and in the events of the lease,
   if it is known which lease it concerns.
"""

from __future__ import annotations

import datetime
import ipaddress
import logging
from dataclasses import dataclass

from sqlalchemy import Connection

from gsaas import exceptions
from gsaas.db import leases
from gsaas.db.database import Database, retried
from gsaas.grants.keyring import ExpiredGrant, Grant, InvalidGrant, Keyring
from gsaas.metrics import counted
from gsaas.objects.access import Access
from gsaas.objects.lifecycle import Status

LOG = logging.getLogger(__name__)

REDEEMED, REFUSED = "redeem-grant", "refuse-grant"
"""The events of a lease that say so."""

REDEEMABLE = (Status.CLAIMED, Status.ACTIVE)
"""States of a lease in which its grant can be redeemed."""


@dataclass(frozen=True)
class PresentedGrant:
    """A grant and the context in which a consumer presents it."""

    key: str
    """The grant itself, a signed token."""
    address: str
    """The IPv4 address that it comes from."""
    lease_id: str | None = None
    """The lease that the consumer claims to have; None if it names none."""
    project_id: str | None = None
    """The project of the consumer; None if it is not known."""
    gate_of: str | None = None
    """The GPU host at whose gate it is presented, which has to be one of the lease's; None: a service presents it."""


def redeem(database: Database, keyring: Keyring, presented: PresentedGrant) -> str:
    """Admit the address of *presented* to the lease of its grant; return the lease's id.

    Raises a sub-class of `GrantRefused`, or `ValueError` if the address is no IPv4 address.
    """
    ipaddress.IPv4Address(presented.address)
    now = database.now()
    grant = None
    try:
        grant = _verified(keyring, presented, now)
        _check_context(grant, presented)
        _admit(database, grant, presented)
    except exceptions.GrantRefused as refusal:
        lease_id = grant.lease_id if grant else refusal.facts.get("lease_id")
        _record_refusal(database, lease_id, presented, refusal)
        raise
    counted.grant("redeemed")
    LOG.info("lease %s: its grant was redeemed from %s", grant.lease_id, presented.address)
    return grant.lease_id


def _verified(keyring: Keyring, presented: PresentedGrant, now: datetime.datetime) -> Grant:
    try:
        return keyring.verify(presented.key, now)
    except InvalidGrant:
        raise exceptions.GrantForged from None
    except ExpiredGrant as error:
        grant = error.grant
        raise exceptions.GrantExpired(lease_id=grant.lease_id, at=grant.expires_at) from None


def _check_context(grant: Grant, presented: PresentedGrant) -> None:
    """Refuse a grant that is presented for another lease or project than its own: it is stolen."""
    if presented.lease_id not in (None, grant.lease_id):
        raise exceptions.GrantStolen(why="it is for another lease")
    if presented.project_id not in (None, grant.project_id):
        raise exceptions.GrantStolen(why="it is for another project")


@retried
def _admit(database: Database, grant: Grant, presented: PresentedGrant) -> None:
    address = presented.address
    with database.writing() as connection:
        if presented.gate_of is not None:
            _check_gate(connection, grant, presented.gate_of)
        admitted = leases.admit(connection, grant.lease_id, grant.project_id, REDEEMABLE, address)
        if not admitted:
            raise _refusal(connection, grant, address)
        leases.note(connection, grant.lease_id, REDEEMED, f"from {address}")


def _check_gate(connection: Connection, grant: Grant, host: str) -> None:
    """Refuse a grant that *host* passes on although the lease has no GPU there: its consumer has no reason to show it.

    So a host can have an address admitted to leases that it serves only.
    """
    try:
        lease = leases.get(connection, grant.lease_id, grant.project_id)
    except exceptions.NotFound:
        return  # `_refusal` says so
    if lease.status in REDEEMABLE and all(claim.gpu.host_name != host for claim in lease.claims):
        raise exceptions.GrantStolen(
            why="it was shown at the gate of a host that has none of the lease's GPUs"
        )


def _refusal(connection: Connection, grant: Grant, address: str) -> exceptions.GrantRefused:
    """Return why the UPDATE changed no row, to be raised."""
    try:
        lease = leases.get(connection, grant.lease_id, grant.project_id)
    except exceptions.NotFound:
        return exceptions.GrantForged()
    if lease.status not in REDEEMABLE or lease.access != Access.DIRECT:
        return exceptions.GrantOver(lease_id=lease.id, status=lease.status)
    if lease.consumer_address not in (None, address):
        return exceptions.GrantStolen(
            why="it may be presented from one address only, and this is another"
        )
    if lease.admitted_address != address:
        return exceptions.GrantStolen(why="it was redeemed from another address")
    return exceptions.GrantReplayed(lease_id=lease.id)


@retried
def _record_refusal(
    database: Database,
    lease_id: str | None,
    presented: PresentedGrant,
    refusal: exceptions.GrantRefused,
) -> None:
    counted.grant(refusal.outcome)
    LOG.warning("a grant presented from %s was refused: %s", presented.address, refusal)
    if lease_id is None:
        return
    detail = f"from {presented.address}: {refusal}"
    with database.writing() as connection:
        last = next(reversed(leases.events(connection, lease_id)), None)
        # Repeated attempts make one entry: a client in a loop must not fill the events.
        if last is not None and (last.event, last.detail) != (REFUSED, detail):
            leases.note(connection, lease_id, REFUSED, detail)
