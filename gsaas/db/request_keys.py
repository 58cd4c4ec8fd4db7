# SPDX-License-Identifier: Apache-2.0
"""The keys of requests, with which a client repeats a launch whose answer it has lost.

A unique index decides which of several requests with one key makes a lease.
"""

from __future__ import annotations

import datetime
from collections.abc import Collection
from typing import NamedTuple

from oslo_utils import timeutils
from sqlalchemy import Connection, Update, bindparam, select, update

from gsaas.db.models import LeaseRow, table_of

_LEASES = table_of(LeaseRow)

KEPT = datetime.timedelta(days=1)
"""How long a key belongs to the lease that it made."""

_FIND = select(_LEASES.c.id, _LEASES.c.request_digest, _LEASES.c.created_at).where(
    _LEASES.c.request_key == bindparam("key")
)
_USED = select(_LEASES.c.request_key).where(
    _LEASES.c.request_key.in_(bindparam("keys", expanding=True))
)
_FORGOTTEN = {
    "request_key": None,
    "request_digest": None,
    "updated_at": _LEASES.c.updated_at,  # nothing that anybody sees has changed
}


class Launched(NamedTuple):
    """The lease that a request with a key has made."""

    lease_id: str
    digest: str | None
    """Of the request's body; None if it was forgotten."""
    created_at: datetime.datetime

    @property
    def is_over(self) -> bool:
        """Return whether the key may be used again."""
        return self.created_at < timeutils.utcnow() - KEPT


def find(connection: Connection, key: str) -> Launched | None:
    """Return what the request with *key* has made, however long ago; None if there is nothing."""
    row = connection.execute(_FIND, {"key": key}).first()
    return None if row is None else Launched(*row)


def used(connection: Connection, keys: Collection[str]) -> set[str]:
    """Return those of *keys* that belong to a lease, however long ago."""
    if not keys:
        return set()
    return {key for (key,) in connection.execute(_USED, {"keys": list(keys)})}


def forget(connection: Connection, key: str) -> None:
    """Let *key* be used again, if it is older than `KEPT`: another request may have used it again meanwhile."""
    before = timeutils.utcnow() - KEPT
    connection.execute(_forgetting(before).where(_LEASES.c.request_key == key))


def purge(connection: Connection, at_most: int) -> int:
    """Forget up to *at_most* keys that are older than `KEPT`; return how many."""
    before = timeutils.utcnow() - KEPT
    # MariaDB takes no LIMIT in the sub-query of an IN, so the keys are read first.
    query = select(_LEASES.c.request_key).where(
        _LEASES.c.request_key.is_not(None), _LEASES.c.created_at < before
    )
    keys = list(connection.scalars(query.limit(at_most)))
    if keys:
        connection.execute(_forgetting(before).where(_LEASES.c.request_key.in_(keys)))
    return len(keys)


def _forgetting(before: datetime.datetime) -> Update:
    """Return the statement that clears the keys of leases that were created before a time."""
    return update(_LEASES).where(_LEASES.c.created_at < before).values(_FORGOTTEN)
