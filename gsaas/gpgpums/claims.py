# SPDX-License-Identifier: Apache-2.0
"""Claims: writes the placements that the scheduler proposes to the database, each completely or not at all.

1. A claim is one transaction. It reads what has changed, chooses, and writes on condition that each GPU still has the
   generation that the choice was based on. If another claim was faster, nothing is written and it is tried again.
2. A claim that was overtaken chooses another GPU from what it knows, up to `NEXT_CANDIDATES` times: it need not read to
   know that the first one has changed. After that it waits for a row lock: such claims lock one row, the same for all
   of them, before they read, choose and write. Without that, many claims that all choose the emptiest GPU could
   overtake each other without end.
3. Rows are locked in one order, GPUs by UUID, so that transactions do not wait for each other in a circle. A deadlock
   or a lock timeout that the database reports all the same is a lost race like any other.
4. No request is refused on old data: a refusal is based on what its own transaction has read.
5. A return does not compare generations: it locks the lease's row, so the claims of a lease are returned only once.
6. Daemons of single cGPUs get their ports in the same transaction. A unique index allows each port once per host; a
   transaction that chose the same port as another one was overtaken by it.
7. Where a project has a quota, its claims lock the project's row before anything else, and its usage is counted in the
   same transaction. So concurrent claims cannot exceed the quota together.
8. A claim overtakes no lease in the queue (`gsaas.gpgpums.queue` says which is next). The query that checks whether
   the pool has changed also returns whether any lease waits.
9. After the transaction of a return, or of a lease that joins the queue, is committed, the queue is advanced. Of two
   threads that do so at once, the later one sees what both have written, so no lease is missed. Where transactions
   write one after the other, a return need not advance a queue that it found empty: a lease that joins later sees what
   was returned.
10. A lease without a server that needs nothing but its claims is ACTIVE with them, and RELEASED with their return.
11. Claims that threads make at once are written as a group (`gsaas.gpgpums.claim_groups`), in one transaction that
    keeps these rules for each of them; one that was overtaken is tried again alone. That is so on servers that can
    leave out locked rows. On SQLite, where a statement is a function call, a group would only be more work.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Collection, Mapping

from oslo_config import cfg
from oslo_db import exception as db_exception
from oslo_utils import timeutils
from sqlalchemy import Connection

from gsaas import exceptions
from gsaas import limits as quota_drivers
from gsaas.conf.grants import allows_direct
from gsaas.db import claims as claim_rows
from gsaas.db import clock, gpu_writers, leases
from gsaas.db import limits as limit_rows
from gsaas.db import queue as queue_rows
from gsaas.db import reservations as reservation_rows
from gsaas.db.database import Database, OvertakenError
from gsaas.db.models import change_number
from gsaas.gpgpums import reservations
from gsaas.gpgpums.addresses import MaskedAddresses
from gsaas.gpgpums.allocation import Allocation, Allocator
from gsaas.gpgpums.claim_groups import ClaimGroups, NewClaim, placed
from gsaas.gpgpums.group_commit import Turn
from gsaas.gpgpums.policies.base import Policy
from gsaas.gpgpums.policy_selection import PolicySelection
from gsaas.gpgpums.pool_cache import PoolCache
from gsaas.gpgpums.queue_scheduler import amounts_of
from gsaas.gpgpums.reserving import Reservations
from gsaas.gpgpums.retry import retry
from gsaas.gpgpums.returns import Announce, Returns
from gsaas.gpgpums.scheduler import GpuScheduler
from gsaas.gpgpums.wait_queue import SILENT, WaitQueue, end_each
from gsaas.limits import base as limits
from gsaas.limits.base import Limits
from gsaas.limits.cached import CachedLimits
from gsaas.limits.configured import NoLimits
from gsaas.metrics import counted
from gsaas.objects.lease import Lease
from gsaas.objects.placement import Placement, Refusal
from gsaas.objects.ports import PortRange
from gsaas.objects.request import Request
from gsaas.objects.reservation import Reservation, ReservationStatus, status_at

ABANDONED = "its keepalive has run out: its client was killed, or cannot reach the API"

NEXT_CANDIDATES = 3
"""Attempts of a claim that choose another GPU without reading."""


class Claims:
    """Checks and claims. One per process; its threads claim one after the other.

    *attempts* is how often a claim or a return is tried while others are faster; *heartbeat_timeout* how long a GPU
    host's monitor may be silent before its GPUs are not offered, in seconds; *policies* says which policies serve which
    requests, and policies may look at how busy GPUs were for *utilisation_window* seconds, and at the last
    *request_mix* requests. *daemon_ports* are, by remoting driver, the ports for daemons that serve one cGPU each;
    without any, GPUs' own daemons serve them. *native* lets consumers on a GPU host use its GPUs without any
    middleware; *local* are the masked addresses for programs of a host with a RODVR endpoint; without *local*, these
    programs get the real addresses. *local_per_project* is how many of these addresses one project may have on a host;
    without *direct*, no consumer gets real addresses.

    For the queue: *quotas* are those of leases that wait; with *backfill* some may be served before others; for
    *reserve_for* seconds a request keeps later ones from the GPUs that it waits for, -1 is for ever; *client_timeout*
    is how long a client that announced to poll may be silent, in seconds; *announce* is called for each lease that
    has left the queue, after the commit; *is_client_waiting* returns whether a request of the lease's own client
    waits for it in this process. *reservation_notice* is for how many seconds before its beginning a reservation keeps
    its GPUs.
    """

    def __init__(
        self,
        database: Database,
        *,
        attempts: int,
        heartbeat_timeout: float,
        masked: MaskedAddresses,
        policies: PolicySelection | None = None,
        utilisation_window: float = 300,
        request_mix: int = 500,
        subset_size: int = 1,
        daemon_ports: Mapping[str, PortRange] | None = None,
        native: bool = False,
        local: MaskedAddresses | None = None,
        local_per_project: int = limits.UNLIMITED,
        direct: bool = True,
        quotas: Limits | None = None,
        backfill: bool = False,
        reserve_for: float = limits.UNLIMITED,
        client_timeout: float = 60.0,
        announce: Announce = lambda *_: None,
        is_client_waiting: Callable[[str], bool] = lambda _: False,
        reservation_notice: float = 3600.0,
    ) -> None:
        self.masked = masked
        self._database = database
        self._attempts = attempts
        self._client_timeout = client_timeout
        cached = CachedLimits(quotas or NoLimits())
        cache = PoolCache(
            heartbeat_timeout, utilisation_window, 1 if database.one_writer else subset_size
        )
        self.scheduler = GpuScheduler(
            database,
            cache,
            policies or PolicySelection(),
            cached,
            request_mix=request_mix,
            backfill=backfill,
            reserve_for=reserve_for,
            client_timeout=client_timeout,
        )
        self._allocator = Allocator(
            cache,
            masked,
            daemon_ports or {},
            native=native,
            local=local,
            local_per_project=local_per_project,
            direct=direct,
        )
        self.queue = WaitQueue(
            database,
            self.scheduler,
            self._allocator,
            cached,
            attempts=attempts,
            client_timeout=client_timeout,
            announce=announce,
            is_client_waiting=is_client_waiting,
            keep_reserved=lambda: self.reservations.keep(),
        )
        turn = Turn()
        self._groups = ClaimGroups(
            database, self.scheduler, self._allocator, self._write_alone, turn
        )
        self.returns = Returns(
            database,
            self.scheduler,
            attempts=attempts,
            announce=announce,
            advance_queue=self.queue.advance,
            turn=turn,
        )
        self.reservations = Reservations(
            database,
            self.scheduler,
            attempts=attempts,
            notice=datetime.timedelta(seconds=reservation_notice),
            advance_queue=self.queue.advance,
        )

    @classmethod
    def from_conf(
        cls,
        conf: cfg.ConfigOpts,
        database: Database,
        *,
        default_port: int,
        daemon_ports: Mapping[str, PortRange],
        announce: Announce,
        is_client_waiting: Callable[[str], bool] = lambda _: False,
    ) -> Claims:
        """Return the claims of a process as *conf* configures them.

        *default_port* and *daemon_ports* are those of the configured remoting driver. `ValueError` for policies or
        quotas that cannot be used as configured.
        """
        return cls(
            database,
            attempts=conf.gpgpums.claim_attempts,
            heartbeat_timeout=conf.gpgpums.heartbeat_timeout,
            masked=MaskedAddresses(conf.rodvr.masked_prefix, default_port),
            policies=PolicySelection.from_conf(conf),
            utilisation_window=conf.monitor.utilisation_window,
            request_mix=conf.gpgpums.request_mix,
            subset_size=conf.gpgpums.gpu_subset_size,
            daemon_ports=daemon_ports,
            native=conf.remoting.native,
            local=MaskedAddresses(conf.rodvr.local_prefix, default_port),
            local_per_project=conf.rodvr.local_per_project,
            direct=allows_direct(conf),
            quotas=quota_drivers.load(conf),
            backfill=conf.queue.backfill,
            reserve_for=conf.queue.reserve_for,
            client_timeout=conf.queue.client_timeout,
            announce=announce,
            is_client_waiting=is_client_waiting,
            reservation_notice=conf.gpgpums.reservation_notice,
        )

    @property
    def policies(self) -> PolicySelection:
        """Return which policies serve which requests."""
        return self.scheduler.policies

    def check(
        self, request: Request, policy_name: str | None = None, priority: int = 0
    ) -> Placement | Refusal:
        """Return where *request* would go now, or why nowhere. Raises `UnknownPolicy`, `PolicyNotAllowed`."""
        return self.scheduler.check(request, policy_name, priority)

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

        def check() -> Placement | Refusal:
            with self._database.reading() as connection:
                reservation = reservation_rows.get(connection, reservation_id, project_id)
                return self._place_within(connection, reservation, request, policy_name)[1]

        return self.scheduler.with_pool(check)

    def claim(
        self,
        lease: Lease,
        request: Request,
        policy_name: str | None = None,
        quota: limits.Amounts = limits.NO_LIMITS,
    ) -> Lease:
        """Store *lease* with all that *request* asks for, or nothing at all.

        *lease* is new: without policy, hosts, access and claims, which are filled in. *quota* is the most that its
        project may have with it. Returns the lease as it is stored; its claims have their GPUs if it has no server.

        Raises `NoCapacity` or `NeverFits`, whose attribute `details` is `Refusal.to_dict()`;
        `NoDaemonPort`; `QuotaExceeded`; `ClaimConflict` when others were faster each time; `UnknownPolicy`;
        `PolicyNotAllowed`; `BadRequest` if there are too few masked addresses.
        """
        watch = timeutils.StopWatch()
        watch.start()
        self.scheduler.record_request(request)
        claim = NewClaim(lease, request, policy_name, quota, watch)
        can_be_grouped = self._database.can_skip_locked and lease.reservation_id is None

        changed: set[str] = set()
        """GPUs that other transactions changed first."""

        def write(attempt: int) -> Lease:
            counted.claim_attempt()
            try:
                if can_be_grouped and attempt == 0:
                    return self._groups.claim(claim)
                return self._write_alone(claim, attempt > 0, changed)
            except OvertakenError as error:
                if error.gpu is not None:
                    changed.add(error.gpu)
                raise

        return retry(self._attempts, write)

    def abandon(
        self, lease_id: str, why: str, silent_since: datetime.datetime | None = None
    ) -> bool:
        """Release a lease whose client left before it knew that it had the lease; False if there is nothing to do.

        With *silent_since*, only if its client announced to poll, and has not polled since then.
        """
        return self.returns.end(
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
            lambda lease_id: self.returns.end(
                lease_id, ABANDONED, lambda lease: lease.is_abandoned(now)
            ),
        )
        self.queue.drop_hopeless_head()
        self.reservations.audit()
        self.queue.advance()
        gpu_writers.tidy(self._database)
        return ended

    def _write_alone(
        self, claim: NewClaim, overtaken: bool = False, changed: Collection[str] = ()
    ) -> Lease:
        """Claim in a transaction of its own; as `_try`."""
        return self.scheduler.with_pool(lambda: self._try(claim, overtaken, changed))

    def _try(self, claim: NewClaim, overtaken: bool, changed: Collection[str]) -> Lease:
        """Claim in one transaction; raises `OvertakenError` if another transaction was faster.

        *overtaken* says whether an attempt before was overtaken, *changed* are the GPUs by which.
        """
        planned: Allocation | None = None
        try:
            with self._database.writing() as connection:
                planned = self._plan(connection, claim, overtaken, changed)
                claimed = self._allocator.write(connection, planned)
                if not claimed.has_server:
                    claimed = leases.located(connection, claimed)
                number = change_number(connection)
        except db_exception.DBError:
            # Perhaps another transaction has changed one of these first: nothing says which.
            if planned is not None:
                self.scheduler.begin_elsewhere(planned.before)
            raise
        self.scheduler.put(planned.after.values(), number)
        return claimed

    def _plan(
        self, connection: Connection, claim: NewClaim, overtaken: bool, changed: Collection[str]
    ) -> Allocation:
        """Choose GPUs for a claim, and say what it is to get; as `_try`."""
        lease, request, policy_name, quota, watch = claim
        if limits.limited(quota):
            limit_rows.lock_project(connection, lease.project_id)
        answer: Placement | Refusal | None = None
        reservation: Reservation | None = None
        if lease.reservation_id is not None:
            reservation = reservation_rows.get(
                connection, lease.reservation_id, lease.project_id, lock=True
            )
            policy, answer = self._place_within(
                connection, reservation, request, policy_name, changed
            )
        elif 0 < len(changed) <= NEXT_CANDIDATES:
            policy = self.scheduler.policy(connection, policy_name)
            answer = self.scheduler.propose_another(
                connection, request, policy, lease.priority, changed
            )
        if answer is None:
            # Before the pool is read: after the wait, the latest claims are visible.
            if overtaken:
                claim_rows.wait_for_claims(connection)
            self.scheduler.refresh(connection)
            self.scheduler.reread(connection, changed)
            policy = self.scheduler.policy(connection, policy_name)
            answer = self.scheduler.propose(connection, request, policy, lease.priority)
        placement = placed(answer)
        if limits.limited(quota):
            used = limit_rows.usage(connection, lease.project_id)
            limits.check(quota, used, amounts_of(placement))
        if reservation is not None:
            shares = reservations.taken_by(reservation, placement)
            reservation_rows.take(connection, reservation, shares, lease.id)
        return self._allocator.plan(connection, lease, request, placement, policy, watch)

    def _place_within(
        self,
        connection: Connection,
        reservation: Reservation,
        request: Request,
        policy_name: str | None,
        changed: Collection[str] = (),
    ) -> tuple[Policy, Placement | Refusal]:
        """Return the policy, and where *request* goes in *reservation* by it, or why nowhere; call it in `with_pool`.

        No lease in the queue is overtaken: it could not get what is kept for the reservation. Raises
        `ReservationNotActive`, and `BadRequest` for cGPUs of another size than those of the reservation.
        """
        if status_at(reservation, clock.now(connection)) is not ReservationStatus.ACTIVE:
            raise exceptions.ReservationNotActive(
                id=reservation.id,
                status=reservation.status,
                start=reservation.start,
                end=reservation.end,
            )
        own = Request.from_dict(reservation.cgpus)
        if (own.mode, own.memory_mb) != (request.mode, request.memory_mb):
            raise exceptions.BadRequest(
                reason="a lease in a reservation has cGPUs of the reservation's mode and size"
            )
        self.scheduler.refresh(connection)
        self.scheduler.reread(connection, changed)
        policy = self.scheduler.policy(connection, policy_name)
        return policy, self.scheduler.propose_within(reservation, request, policy)
