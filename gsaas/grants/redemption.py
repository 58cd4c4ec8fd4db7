"""What a shown grant leads to: its consumer's address is admitted to the GPUs of one lease, or nothing is.

1. A lease's grant is redeemed once. One UPDATE says so, on condition that nobody did before; of any number
   who try at once, on whatever database, one changes a row.
2. From then on there is an address to remove: no fence forgets it before the lease has given back its
   GPUs, and a lease whose grant was not redeemed yet can be ended without asking anybody.
3. Every refusal is written down where it will be looked for: in the log, in the metrics, and in the story of
   the lease if it is known which one it was about.
"""

from __future__ import annotations

import datetime
import ipaddress
import logging
from dataclasses import dataclass

from oslo_utils import timeutils
from sqlalchemy import Connection, or_, update

from gsaas import exceptions
from gsaas.db import leases
from gsaas.db.database import Database, retried
from gsaas.db.models import LeaseRow
from gsaas.grants.keyring import Expired, Forged, Grant, Keyring
from gsaas.metrics import counted
from gsaas.objects.access import Access
from gsaas.objects.lifecycle import Status

LOG = logging.getLogger(__name__)

REDEEMED, REFUSED = "redeem-grant", "refuse-grant"
"""What a lease's story says of it."""

USABLE = (Status.CLAIMED, Status.ACTIVE)


@dataclass(frozen=True)
class Shown:
    """A grant as somebody shows it."""

    key: str
    address: str
    """The IPv4 address that it was shown from."""
    lease_id: str | None = None
    """The lease that the consumer says it has, if it says so."""
    project_id: str | None = None
    """The project that the consumer is known to be of, if it is."""


def redeem(database: Database, keyring: Keyring, shown: Shown) -> str:
    """Admit *shown*'s address to the lease that its grant is for; return the lease's id.

    Raises a sub-class of `GrantRefused`; `ValueError` for what is no address.
    """
    ipaddress.IPv4Address(shown.address)
    now = timeutils.utcnow()
    grant = None
    try:
        grant = _verified(keyring, shown, now)
        _check_context(grant, shown)
        _admit(database, grant, shown.address)
    except exceptions.GrantRefused as refusal:
        about = grant.lease_id if grant else refusal.facts.get("lease_id")
        _record(database, about, shown, refusal)
        raise
    counted.grant("redeemed")
    LOG.info("lease %s: its grant was redeemed from %s", grant.lease_id, shown.address)
    return grant.lease_id


def _verified(keyring: Keyring, shown: Shown, now: datetime.datetime) -> Grant:
    try:
        return keyring.verify(shown.key, now)
    except Forged:
        raise exceptions.GrantForged from None
    except Expired as expired:
        (grant,) = expired.args
        raise exceptions.GrantExpired(lease_id=grant.lease_id, at=grant.expires_at) from None


def _check_context(grant: Grant, shown: Shown) -> None:
    """A grant together with somebody else's lease or project was not given to whoever shows it."""
    if shown.lease_id not in (None, grant.lease_id):
        raise exceptions.GrantStolen(why="it is for another lease")
    if shown.project_id not in (None, grant.project_id):
        raise exceptions.GrantStolen(why="it is for another project")


@retried
def _admit(database: Database, grant: Grant, address: str) -> None:
    with database.writing() as connection:
        redeemed = connection.execute(
            update(LeaseRow)
            .where(
                LeaseRow.id == grant.lease_id,
                LeaseRow.project_id == grant.project_id,
                LeaseRow.status.in_(USABLE),
                LeaseRow.access == Access.DIRECT,
                LeaseRow.admitted_address.is_(None),
                or_(LeaseRow.consumer_address.is_(None), LeaseRow.consumer_address == address),
            )
            .values(admitted_address=address)
        )
        if redeemed.rowcount != 1:
            raise _why_not(connection, grant, address)
        leases.note(connection, grant.lease_id, REDEEMED, f"from {address}")


def _why_not(connection: Connection, grant: Grant, address: str) -> exceptions.GrantRefused:
    try:
        lease = leases.get(connection, grant.lease_id, grant.project_id)
    except exceptions.NotFound:
        return exceptions.GrantForged()
    if lease.status not in USABLE or lease.access != Access.DIRECT:
        return exceptions.GrantOver(lease_id=lease.id, status=lease.status)
    if lease.consumer_address not in (None, address):
        return exceptions.GrantStolen(
            why="it may be shown from one address only, and this is another"
        )
    if lease.admitted_address != address:
        return exceptions.GrantStolen(why="it was redeemed from another address")
    return exceptions.GrantReplayed(lease_id=lease.id)


@retried
def _record(
    database: Database, lease_id: str | None, shown: Shown, refusal: exceptions.GrantRefused
) -> None:
    counted.grant(refusal.outcome)
    LOG.warning("a grant shown from %s was refused: %s", shown.address, refusal)
    if lease_id is None:
        return
    detail = f"from {shown.address}: {refusal}"
    with database.writing() as connection:
        last = next(reversed(leases.events(connection, lease_id)), None)
        # Who tries a thousand times makes one entry.
        if last is not None and (last.event, last.detail) != (REFUSED, detail):
            leases.note(connection, lease_id, REFUSED, detail)
