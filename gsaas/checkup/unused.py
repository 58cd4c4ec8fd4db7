# SPDX-License-Identifier: Apache-2.0
"""List the leases without a VM that hold GPUs and that nothing uses. After a restored backup, some may be over.

A lease that was released after the backup was made is ACTIVE again. If it has a VM, Nova says that this is gone, and if
it has a keepalive, its client does not renew it. Of the others nobody can tell but their owners.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from sqlalchemy import Connection

from gsaas.checkup.findings import Finding, ok, warn
from gsaas.db import clock, leases, readings
from gsaas.db.readings import Intervals
from gsaas.objects.lease import Lease

PART = "leases"
UNUSED_FOR = datetime.timedelta(hours=1)
NAMED = 20
"""Leases that the finding names."""
_AT_ONCE = 500
"""Leases whose readings are read by one statement; databases limit the parameters of a statement."""


class Unused(NamedTuple):
    """A lease without a VM that nothing uses."""

    lease: Lease
    since: datetime.datetime
    """When a cGPU or the path of it was last seen in use, or when it was claimed if none was since."""

    def __str__(self) -> str:
        return (
            f"{self.lease.id} of project {self.lease.project_id} since {self.since:%Y-%m-%d %H:%M}"
        )


def check(connection: Connection) -> Iterator[Finding]:
    """Compare the ACTIVE leases with their readings; *connection* has to see one snapshot."""
    found = [lease for lease in leases.active(connection) if _ends_only_if_released(lease)]
    known: dict[str, Intervals] = {}
    for first in range(0, len(found), _AT_ONCE):
        ids = [lease.id for lease in found[first : first + _AT_ONCE]]
        known.update(readings.whole(connection, ids))
    yield report(unused(found, known, clock.now(connection)))


def unused(
    found: Iterable[Lease], known: Mapping[str, Intervals], now: datetime.datetime
) -> list[Unused]:
    """Return those of the leases *found* that nothing has used for `UNUSED_FOR`, according to the readings *known*."""
    seen = [Unused(lease, _last_use(lease, known.get(lease.id))) for lease in found]
    return [one for one in seen if one.since <= now - UNUSED_FOR]


def report(found: Sequence[Unused]) -> Finding:
    """Return the finding for these leases."""
    if not found:
        return ok(
            PART,
            "every lease without a VM has been used in the last hour, or ends without its client",
        )
    named = ", ".join(str(one) for one in found[:NAMED])
    more = f" and {len(found) - NAMED} more" if len(found) > NAMED else ""
    return warn(
        PART,
        f"nothing uses {len(found)} leases without a VM, which hold GPUs until they are released: {named}{more}",
        "ask their owners; after a backup was restored, release those that had been released before: gsaas -t -id=ID",
    )


def _ends_only_if_released(lease: Lease) -> bool:
    return not lease.has_server and lease.keepalive is None


def _last_use(lease: Lease, intervals: Intervals | None) -> datetime.datetime:
    seen = [] if intervals is None else [each.busy_at for each in intervals.cgpus]
    seen += [] if intervals is None else [each.busy_at for each in intervals.paths]
    return max(seen, default=lease.claimed_at or lease.created_at)
