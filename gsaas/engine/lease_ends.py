# SPDX-License-Identifier: Apache-2.0
"""Warns the owners of leases whose end is near, and releases those whose end has come: `lease_end` decides.

Any number of engines may do so at once: each change is made to a locked lease, if it is still to be made then.
"""

from __future__ import annotations

import datetime
import logging

from oslo_config import cfg

from gsaas.db import clock, leases
from gsaas.db.database import Database, retried
from gsaas.gpgpums.claims import Claims
from gsaas.gpgpums.committer import end_each
from gsaas.gpgpums.lease_end import Decision, decide
from gsaas.objects.lease import Lease
from gsaas.objects.lifecycle import END, ENDING, LeaseEvent, Status

LOG = logging.getLogger(__name__)

REACHED = "its end was reached"
STILL_WAITED = "its end was reached before it got GPUs"


class LeaseEnds:
    """Applies the ends of the leases of *database*, of which their owners are warned as *conf* says."""

    def __init__(self, conf: cfg.ConfigOpts, database: Database, claims: Claims) -> None:
        self._warn_before = datetime.timedelta(seconds=conf.leases.warn_before)
        self._database = database
        self._claims = claims

    def audit(self) -> list[str]:
        """Warn, and release; return the leases that the engine has to reconcile.

        Raises only `oslo_db.exception.DBConnectionError`: an error of one lease does not keep the others from it.
        """
        with self._database.reading() as connection:
            now = clock.now(connection)
            found = leases.ending(connection, now + self._warn_before)
        due = {lease.id: lease for lease in found}
        decisions = {lease.id: decide(lease, self._warn_before, now) for lease in found}
        end_each(
            (lease_id for lease_id, what in decisions.items() if what is Decision.WARN),
            lambda lease_id: self._warn(lease_id, now),
        )
        return end_each(
            (lease_id for lease_id, what in decisions.items() if what is Decision.END),
            lambda lease_id: self._end(due[lease_id], now),
        )

    def _end(self, lease: Lease, now: datetime.datetime) -> bool:
        """Release *lease*, unless its end was postponed or it got GPUs meanwhile; return whether it was."""
        waits = lease.status == Status.QUEUED

        def is_due(found: Lease) -> bool:
            is_over = decide(found, self._warn_before, now) is Decision.END
            return is_over and (found.status == Status.QUEUED) == waits

        ended = self._claims.end(lease.id, STILL_WAITED if waits else REACHED, is_due, END)
        if ended:
            LOG.info("lease %s is released: its end was reached", lease.id)
        return ended

    @retried
    def _warn(self, lease_id: str, now: datetime.datetime) -> bool:
        """Record that the owner of a lease was warned of its end, unless that was postponed meanwhile."""
        with self._database.writing() as connection:
            lease = leases.lock(connection, lease_id)
            if decide(lease, self._warn_before, now) is not Decision.WARN:
                return False
            leases.write(connection, lease.with_(warned_end=lease.ends_at), "warned_end")
            event = LeaseEvent(ENDING, lease.status, f"it ends at {lease.ends_at}")
            leases.record_events(connection, lease.id, [event])
        return True
