# SPDX-License-Identifier: Apache-2.0
"""Claims of leases: the door to GPGPUMS for the API and the engine, and the parts of one process behind it.

A claim overtakes no lease in the queue (`gsaas.gpgpums.queue` says which is next): the query that checks whether the
pool has changed also returns whether any lease waits. A lease without a server that needs nothing but its claims is
ACTIVE with them, and RELEASED with their return.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import cast

from oslo_config import cfg
from oslo_utils import timeutils

from gsaas import exceptions
from gsaas.db import clock, gpu_writers, leases
from gsaas.db import queue as queue_rows
from gsaas.db.database import Database
from gsaas.gpgpums.changes import Claim, Condition, Return, Terminate, place_within
from gsaas.gpgpums.committer import Announcer, Clients, Committer, end_each
from gsaas.gpgpums.ledger import Ledger
from gsaas.gpgpums.mirror import Mirror
from gsaas.gpgpums.move_changes import EndMove, Move, Switch, Target, plan_move
from gsaas.gpgpums.queue_manager import SILENT, QueueManager
from gsaas.gpgpums.reservation_manager import ReservationManager
from gsaas.gpgpums.rules import Rules
from gsaas.gpgpums.view import Mixes, View
from gsaas.limits import base as limits
from gsaas.limits.cached import CachedLimits
from gsaas.objects import host_names
from gsaas.objects.gpu import Gpu
from gsaas.objects.lease import Lease
from gsaas.objects.lifecycle import LeaseEvent
from gsaas.objects.move import Kind
from gsaas.objects.placement import Placement, Refusal
from gsaas.objects.request import Request
from gsaas.remoting.drivers import Drivers

ABANDONED = "its keepalive has run out: its client was killed, or cannot reach the API"


@dataclass(frozen=True)
class Tuning:
    """What a process takes into account, and for how long."""

    attempts: int = 20
    """How often a change is tried while other transactions are faster."""
    heartbeat_timeout: float = 35.0
    """How long a GPU host's monitor may be silent before its GPUs are not offered, in seconds."""
    utilisation_window: float = 300.0
    """For how many seconds before now policies look at how busy GPUs were."""
    request_mix: int = 500
    """How many of the last requests policies look at."""
    subset_size: int = 1
    """At how many of equal GPUs a process may begin to look."""
    reservation_notice: float = 3600.0
    """For how many seconds before its beginning a reservation keeps its GPUs."""


class Claims:
    """Checks, claims and returns by *rules*. One per process; its threads share it.

    `queue` is the queue of leases that wait, `reservations` makes reservations. *clients* are those who wait for leases
    in the queue.
    """

    def __init__(
        self, database: Database, rules: Rules, tuning: Tuning, clients: Clients | None = None
    ) -> None:
        rules = replace(rules, quotas=CachedLimits(rules.quotas))
        self.masked = rules.masked
        self.policies = rules.policies
        self._database = database
        self._client_timeout = rules.queue.client_timeout
        self._mixes = Mixes(tuning.request_mix)
        self.mirror = Mirror(
            database, tuning.heartbeat_timeout, tuning.utilisation_window, tuning.subset_size
        )
        self._ledger = Ledger(database, self.mirror, rules, self._mixes)
        notice = datetime.timedelta(seconds=tuning.reservation_notice)
        self._committer = Committer(
            database, self._ledger, clients or Clients(), tuning.attempts, notice
        )
        self.queue = QueueManager(database, self._committer)
        self.reservations = ReservationManager(database, self._committer)

    @classmethod
    def from_conf(
        cls,
        conf: cfg.ConfigOpts,
        database: Database,
        drivers: Drivers,
        *,
        announce: Announcer,
        is_client_waiting: Callable[[str], bool] = lambda _: False,
    ) -> Claims:
        """Return the claims of a process as *conf* configures them.

        *drivers* are the remoting drivers of new leases. `ValueError` for policies or quotas that cannot be used as
        configured.
        """
        rules = Rules.from_conf(conf, drivers)
        tuning = Tuning(
            attempts=conf.gpgpums.claim_attempts,
            heartbeat_timeout=conf.gpgpums.heartbeat_timeout,
            utilisation_window=conf.monitor.utilisation_window,
            request_mix=conf.gpgpums.request_mix,
            subset_size=conf.gpgpums.gpu_subset_size,
            reservation_notice=conf.gpgpums.reservation_notice,
        )
        return cls(database, rules, tuning, Clients(announce, is_client_waiting))

    def host_named(self, name: str) -> str:
        """Return the name of the host that a caller calls *name*; *name* itself if it is none that is known.

        Raises `BadRequest` if several hosts may be meant.
        """
        with self.mirror.lock:
            if self.mirror.pool.has_host(name):
                return name
        found = self._ledger.look(lambda view: host_names.meant_by(name, view.pool.hosts))
        if len(found) > 1:
            raise exceptions.BadRequest(
                reason=f"there is no host {name}, but {' and '.join(found)}: name the one that you mean"
            )
        return found[0] if found else name

    def gpus(self) -> list[Gpu]:
        """Return all GPUs as they are now."""
        return self._ledger.look(lambda view: list(view.pool))

    def check(
        self, request: Request, policy_name: str | None = None, priority: int = 0
    ) -> Placement | Refusal:
        """Return where *request* would go now, or why nowhere. Raises `UnknownPolicy`, `PolicyNotAllowed`."""
        return self._ledger.look(
            lambda view: view.propose(request, view.policy(policy_name), priority)
        )

    def expected_in_queue(self, most: int) -> dict[str, datetime.datetime]:
        """Return when leases in the queue get GPUs because others end, by id: up to *most* of each are looked at."""
        return self._ledger.look(lambda view: view.expected_in_queue(most))

    def check_within(
        self,
        reservation_id: str,
        project_id: str,
        request: Request,
        policy_name: str | None = None,
    ) -> Placement | Refusal:
        """Return where *request* would go in a reservation of the project now, or why nowhere.

        Raises `NotFound`, `ReservationNotActive`, `BadRequest`, `UnknownPolicy` and `PolicyNotAllowed` as a claim does.
        """

        def see(view: View) -> Placement | Refusal:
            reservation = view.stored_reservation(reservation_id, project_id)
            return place_within(view, reservation, request, policy_name)[1]

        return self._ledger.look(see)

    def claim(
        self,
        lease: Lease,
        request: Request,
        policy_name: str | None = None,
        quota: limits.Amounts = limits.NO_LIMITS,
    ) -> Lease:
        """Store *lease* with all that *request* asks for, or nothing at all.

        *lease* is new: without policy, hosts, access and claims, which are filled in. *quota* is the most that its
        project may have with it. Returns the lease as it is stored; its claims have their GPUs if it is ACTIVE.

        Raises `NoCapacity` or `NeverFits`, whose attribute `details` is `Refusal.to_dict()`;
        `NoDaemonPort`; `QuotaExceeded`; `ClaimConflict` when others were faster each time; `UnknownPolicy`;
        `PolicyNotAllowed`; `BadRequest` if there are too few masked addresses.
        """
        watch = timeutils.StopWatch()
        watch.start()
        self._mixes.add(request)
        entry = self._committer.commit(Claim(lease, request, policy_name, quota, watch))
        return cast(Lease, entry.lease)

    def release(self, lease_id: str) -> None:
        """Return all that a lease claims, and record the time. A second call changes nothing.

        Raises `ClaimConflict` if other transactions were faster each time.
        """
        with suppress(exceptions.NotFound):
            self._committer.commit(Return(lease_id))

    def terminate(
        self,
        lease_id: str,
        detail: str | None = None,
        if_: Condition = lambda _: True,
        because: str | None = None,
    ) -> Lease | None:
        """Release a lease that has only claims or a place in the queue; set any other to RELEASING, for the engine.

        *because* is an event that is recorded before the release.

        *if_* is called with the lease first. If it returns False, nothing changes and the result is None; what it
        raises is raised. Otherwise returns the lease with its new status. Raises `NotFound`, `IllegalTransition`, and
        `ClaimConflict` as `release` does.
        """
        return self._committer.commit(Terminate(lease_id, detail, if_, because)).lease

    def end(self, lease_id: str, why: str, if_: Condition, because: str | None = None) -> bool:
        """Release a lease as `terminate` does; False if it is being released already, or *if_* returns False."""
        try:
            return self.terminate(lease_id, why, if_, because) is not None
        except exceptions.IllegalTransition:
            return False

    def move(
        self, lease_id: str, target: Target, kind: Kind, because: LeaseEvent | None = None
    ) -> Lease:
        """Claim the GPUs that cGPUs of a lease are to move to, and return the lease; the engine does the rest.

        If they go there already, nothing more is claimed; else the event *because* is recorded. Raises `NotFound`,
        `LeaseNotMovable`, `NoDaemonPort`, and `ClaimConflict` as `release` does.
        """
        return cast(Lease, self._committer.commit(Move(lease_id, target, kind, because)).lease)

    def check_move(self, lease: Lease, target: Target, kind: Kind) -> Lease:
        """Return *lease* as it would be after `move`, which changes nothing now; raises what that raises."""
        return cast(
            Lease, self._ledger.look(lambda view: plan_move(view, lease, target, kind)).lease
        )

    def switch(self, lease_id: str) -> None:
        """Make the GPUs that cGPUs of a lease go to its own, if they still do; raises what `release` raises."""
        with suppress(exceptions.NotFound):
            self._committer.commit(Switch(lease_id))

    def end_move(self, lease_id: str) -> None:
        """Return the GPUs that a move of a lease has left unused; raises what `release` raises."""
        with suppress(exceptions.NotFound):
            self._committer.commit(EndMove(lease_id))

    def abandon(
        self, lease_id: str, why: str, silent_since: datetime.datetime | None = None
    ) -> bool:
        """Release a lease whose client left before it knew that it had the lease; False if there is nothing to do.

        With *silent_since*, only if its client announced to poll, and has not polled since then.
        """
        return self.end(
            lease_id,
            why,
            lambda lease: silent_since is None or lease.has_silent_client(silent_since),
        )

    def run_audit(self) -> list[str]:
        """End waits that are over and leases whose clients are gone, advance the queue, and tidy what claims have left.

        Returns the ids of leases that the engine has to release. For the engine's audit.
        """
        with self._database.reading() as connection:
            now = clock.now(connection)
            before = now - datetime.timedelta(seconds=self._client_timeout)
            silent = queue_rows.with_silent_client(connection, before)
            abandoned = leases.abandoned(connection, now)
        self.queue.drop_overdue()
        ended = end_each(
            silent,
            lambda lease_id: (
                not self.queue.leave(lease_id, SILENT)
                and self.abandon(lease_id, SILENT, silent_since=before)
            ),
        )
        ended += end_each(
            abandoned,
            lambda lease_id: self.end(lease_id, ABANDONED, lambda lease: lease.is_abandoned(now)),
        )
        self.queue.drop_hopeless_head()
        self.reservations.audit()
        self.queue.advance()
        gpu_writers.tidy(self._database)
        return ended
