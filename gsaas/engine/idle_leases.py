# SPDX-License-Identifier: Apache-2.0
"""Warns the owners of idle leases, and returns the GPUs of those that stay idle: `idle` decides.

Any number of engines may do so at once: each change is made to a locked lease, on condition that it is as it was read.
"""

from __future__ import annotations

import datetime
import logging
from collections.abc import Sequence
from dataclasses import dataclass

from oslo_config import cfg
from sqlalchemy import Connection

from gsaas import exceptions
from gsaas.cloud.base import Cloud
from gsaas.db import clock, leases, readings
from gsaas.db.database import Database, retried
from gsaas.engine.idle import SHELVE, Decision, IdlePolicy, decide, is_as_decided, warned
from gsaas.engine.reconciler import owner_of
from gsaas.gpgpums.claims import Claims
from gsaas.gpgpums.committer import end_each
from gsaas.objects.lease import Lease
from gsaas.objects.lifecycle import IDLE, IN_USE, SHELVED, LeaseEvent
from gsaas.objects.readings import idle_since

LOG = logging.getLogger(__name__)

SHELVE_AGAIN = datetime.timedelta(minutes=10)
"""How long the cloud may take to shelve a server before it is asked again."""
_AT_ONCE = 500
"""Leases whose readings are read by one statement; databases limit the parameters of a statement."""


@dataclass(frozen=True)
class _Idle:
    """An ACTIVE lease, and since when it is idle; None if it is in use, or that is not known."""

    lease: Lease
    since: datetime.datetime | None


class IdleLeases:
    """Applies the policy that *conf* has for idle leases."""

    def __init__(
        self, conf: cfg.ConfigOpts, database: Database, claims: Claims, cloud: Cloud
    ) -> None:
        options = conf.engine
        self._policy = IdlePolicy(
            options.idle_action,
            datetime.timedelta(seconds=options.idle_warn_after),
            datetime.timedelta(seconds=options.idle_reclaim_after),
            frozenset(options.idle_exempt_projects),
        )
        self._database = database
        self._claims = claims
        self._cloud = cloud

    def audit(self) -> list[str]:
        """Warn, withdraw warnings, and reclaim; return the leases that the engine has to reconcile.

        Raises only `oslo_db.exception.DBConnectionError`: an error of one lease does not keep the others from it.
        """
        with self._database.reading() as connection:
            now = clock.now(connection)
            found = _active(connection, now)
        due: dict[Decision, dict[str, _Idle]] = {decision: {} for decision in Decision}
        for one in found:
            due[decide(self._policy, one.lease, one.since, now)][one.lease.id] = one
        warned_until = now + self._policy.reclaim_after
        end_each(
            due[Decision.WARN],
            lambda lease_id: self._note(
                due[Decision.WARN][lease_id],
                IDLE,
                warned_until,
                f"to be reclaimed at {warned_until}",
            ),
        )
        end_each(
            due[Decision.WITHDRAW],
            lambda lease_id: self._note(due[Decision.WITHDRAW][lease_id], IN_USE, None),
        )
        return end_each(
            due[Decision.RECLAIM],
            lambda lease_id: self._reclaim(due[Decision.RECLAIM][lease_id], now),
        )

    def _reclaim(self, idle: _Idle, now: datetime.datetime) -> bool:
        """Shelve the server of a lease, or release the lease; return whether the engine has to reconcile it."""
        lease, why = idle.lease, f"nothing has used it since {idle.since}, and its owner was warned"
        if not self._is_due(lease):
            return False
        if self._policy.action == SHELVE and lease.has_server and self._cloud.shelves:
            # Recorded before it is done, so that of several engines one does it.
            if self._note(idle, SHELVED, now + SHELVE_AGAIN, why):
                self._shelve(lease.id)
            return False
        LOG.info("lease %s: %s", lease.id, why)
        return self._claims.end(lease.id, why, lambda found: is_as_decided(found, lease))

    def _is_due(self, lease: Lease) -> bool:
        """Return whether a lease is still to be reclaimed: the cloud may have taken long with those before it."""
        with self._database.reading() as connection:
            now = clock.now(connection)
            [idle] = _idle(connection, [lease], now)
        return decide(self._policy, lease, idle.since, now) is Decision.RECLAIM

    def _shelve(self, lease_id: str) -> None:
        with self._database.reading() as connection:
            owner = owner_of(leases.get(connection, lease_id))
        LOG.info("lease %s is idle: its server %s is shelved", lease_id, owner.server_id)
        try:
            self._cloud.shelve(owner)
        except (exceptions.CloudUnavailable, exceptions.ServerRefused) as error:
            LOG.warning(
                "lease %s is idle, and its server cannot be shelved: %s; this is tried again in %d minutes",
                *(lease_id, error, SHELVE_AGAIN.total_seconds() // 60),
            )

    @retried
    def _note(
        self,
        idle: _Idle,
        event: str,
        warned_until: datetime.datetime | None,
        detail: str | None = None,
    ) -> bool:
        """Record *event* and the time in the warning; return False if the lease has changed since it was read."""
        with self._database.writing() as connection:
            lease = leases.lock(connection, idle.lease.id)
            if not is_as_decided(lease, idle.lease):
                return False
            after = warned(lease, warned_until)
            leases.write_all(connection, [(after, leases.changed_columns(lease, after))])
            leases.record_events(connection, lease.id, [LeaseEvent(event, lease.status, detail)])
        return True


def _active(connection: Connection, now: datetime.datetime) -> list[_Idle]:
    """Return all ACTIVE leases."""
    found = leases.active(connection)
    parts = (found[first : first + _AT_ONCE] for first in range(0, len(found), _AT_ONCE))
    return [idle for some in parts for idle in _idle(connection, some, now)]


def _idle(connection: Connection, some: Sequence[Lease], now: datetime.datetime) -> list[_Idle]:
    """Return these leases with what their readings say."""
    known = readings.whole(connection, [lease.id for lease in some])
    idle = []
    for lease in some:
        since = None
        if (intervals := known.get(lease.id)) is not None:
            since = idle_since(lease.count, intervals.cgpus, intervals.paths, now)
        idle.append(_Idle(lease, since))
    return idle
