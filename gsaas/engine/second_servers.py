# SPDX-License-Identifier: Apache-2.0
"""Deletes the second server of a lease.

An engine that was killed, or stood still, after it had requested a server may have its request answered after another
engine has requested one, too. Nova tells of each server; only the one that the database records is the lease's.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from gsaas.cloud.base import Cloud, Owner, ServerChange
from gsaas.db import leases
from gsaas.db.database import Database

LOG = logging.getLogger(__name__)


def delete(database: Database, cloud: Cloud, changes: Sequence[ServerChange]) -> None:
    """Delete those of the servers that changed whose lease has another one. Raises `CloudUnavailable`."""
    tagged = {change.lease_id for change in changes if change.lease_id is not None}
    with database.reading() as connection:
        recorded = leases.servers_of(connection, tagged)
    for change in changes:
        own = recorded.get(change.lease_id or "")
        if own in (None, change.server_id):
            continue
        with database.reading() as connection:
            lease = leases.get(connection, change.lease_id or "")
        owner = Owner(lease.id, lease.project_id, lease.created_at, own)
        if cloud.delete_second(owner, change.server_id):
            LOG.warning(
                "lease %s has server %s; a second one, %s, is deleted",
                lease.id,
                own,
                change.server_id,
            )
