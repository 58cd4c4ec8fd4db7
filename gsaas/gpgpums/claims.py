"""The database edge of GPGPUMS: what the pool proposes becomes true here, or does not.

1. A claim is one transaction. It compares each GPU's generation with the one that the choice was
   based on; if anybody was faster, nothing is written and the claim is tried again.
2. Who was overtaken queues up: from the second attempt on, claims hold one row that all of them
   know while they read, choose and write. Without that, many who all want the emptiest GPU would
   overtake each other for ever.
3. Rows are locked in one order, GPUs by UUID, so that nobody waits in a circle. A deadlock or a
   lock timeout that the database reports all the same is a lost race like any other.
4. Nobody is refused on old news: before a refusal is given, everything is read and the pool is
   asked once more.
5. Giving back needs no comparison. The lease's row is locked, so it happens once.
6. Daemons of single cGPUs get their ports in the same transaction. The database lets no two have the same, so who
   comes second was overtaken.
7. Where a project has limits, its claims queue up for its row before anything else, and what it
   holds is counted inside the claim's own transaction: together they cannot exceed what each may.
8. A claim overtakes nobody in the queue (`gsaas.gpgpums.queue` says who goes next). Whether anybody
   waits comes along with what is read in any case.
9. Whoever gives something back, or queues up, advances the queue once that is committed. Of two who
   do so at once, the later one sees what both have written; so nobody is forgotten. Where writers come one after the
   other, a return sees itself whether anybody waits: who queues up later will see what it gave back.
10. A lease that stands alone and needs nothing but its claims is ACTIVE with them, and RELEASED with their return.
"""

from __future__ import annotations

import datetime
import itertools
import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from oslo_utils import timeutils
from sqlalchemy import Connection

from gsaas import exceptions
from gsaas.db import claims as rows
from gsaas.db import leases, settings
from gsaas.db import limits as held
from gsaas.db import queue as queued
from gsaas.db.database import Database, OvertakenError
from gsaas.db.leases import Happened
from gsaas.db.plain import Lease
from gsaas.gpgpums.addresses import MaskedAddresses
from gsaas.gpgpums.allocation import UNREACHABLE, Allocator
from gsaas.gpgpums.policies.base import Policy
from gsaas.gpgpums.policy_selection import PolicySelection
from gsaas.gpgpums.pool import Mix
from gsaas.gpgpums.pool_cache import Inventory
from gsaas.gpgpums.queue_scheduler import QueueScheduler, asked, at_least, request_of
from gsaas.gpgpums.recent_requests import RecentRequests
from gsaas.gpgpums.retry import retry
from gsaas.limits import Limits
from gsaas.limits import base as limits
from gsaas.limits.cached import CachedLimits
from gsaas.limits.configured import NoLimits
from gsaas.objects import timings
from gsaas.objects.gpu import Gpu
from gsaas.objects.lifecycle import Event, Status
from gsaas.objects.placement import Placement, Refusal
from gsaas.objects.ports import PortRange
from gsaas.objects.request import ANY, Request

Condition = Callable[[Lease], bool]


LOG = logging.getLogger(__name__)

FILLED = (
    *("status", "policy", "remoting", "access", "wanted_host", "avoided_hosts"),
    *("bound_host", "port_id", "timings"),
    *("claimed_at", "claimed_mb", "claimed_gpus", "kept_until"),
)
"""Columns of a lease that a claim fills in."""

TIME_OVER = "its turn did not come in the time that it was to wait; ask again, or wait longer"
SILENT = "the client that was to wait for it was not heard of any more"
ABANDONED = "nobody kept it alive: its client was killed, or cannot reach the API"

Announce = Callable[[str, str, str | None, Mapping[str, float] | None], None]
"""Lease id, its status now, the policy that chose its GPUs if it has any, and how long each phase took."""


@dataclass(frozen=True)
class WaitPolicy:
    """How a request waits in the queue."""

    until: datetime.datetime | None = None
    """When it gives up; None: never."""
    attended: bool = False
    """Its client keeps asking, and is taken for gone if it does not."""
    most: int = limits.UNLIMITED
    """Requests of its project that may wait at once, with this one."""


class Claims:
    """Checks, claims and gives back. One per process; its threads take turns.

    *attempts* is how often a claim or a release is tried while others are faster;
    *heartbeat_timeout* how long a GPU host's monitor may be silent before its GPUs are not
    offered, in seconds; *choice* says which policies serve whom, and policies may look at how busy
    GPUs were for *utilisation_window* seconds, and at the last *request_mix* requests.
    *daemon_ports* are, by remoting driver, the ports for daemons that serve one cGPU each; without
    any, GPUs' own daemons do. *native* lets consumers on a GPU host use its GPUs without any
    middleware; *local* are the masked addresses for programs of a host with a RODVR endpoint, which
    are told the real ones without it.

    For the queue: *quotas* are those of whoever waits; with *backfill* some may go before others;
    *client_timeout* is how long a client that promised to ask may be silent, in seconds; *announce*
    is told of leases that have left the queue, once that is committed; *attended* says whether the
    client of a lease waits for it in this very process.
    """

    def __init__(
        self,
        database: Database,
        *,
        attempts: int,
        heartbeat_timeout: float,
        masked: MaskedAddresses,
        choice: PolicySelection | None = None,
        utilisation_window: float = 300,
        request_mix: int = 500,
        daemon_ports: Mapping[str, PortRange] | None = None,
        native: bool = False,
        local: MaskedAddresses | None = None,
        quotas: Limits | None = None,
        backfill: bool = False,
        client_timeout: float = 60.0,
        announce: Announce = lambda *_: None,
        attended: Callable[[str], bool] = lambda _: False,
    ) -> None:
        self._database = database
        self._attempts = attempts
        self.masked = masked
        self.choice = choice or PolicySelection()
        self._recent = RecentRequests(request_mix)
        self._inventory = Inventory(heartbeat_timeout, utilisation_window)
        self._taking = Allocator(
            self._inventory, masked, daemon_ports or {}, native=native, local=local
        )
        self._lock = threading.Lock()
        self._returns: deque[tuple[Gpu, Gpu]] = deque()
        """GPUs before and after returns that are committed, and not yet in the inventory."""
        self._quotas = CachedLimits(quotas or NoLimits())
        self._turns = QueueScheduler(
            self._inventory,
            self._policy,
            self._quotas,
            backfill=backfill,
            client_timeout=client_timeout,
        )
        self._client_timeout = client_timeout
        self._announce = announce
        self._attended = attended
        self._advancing = threading.Lock()
        self._wanted = itertools.count(1)
        self._last_wanted = self._done = 0

    @property
    def mix(self) -> Mix:
        """What was asked for lately, here."""
        return self._recent.mix

    def check(
        self, request: Request, policy_name: str | None = None, priority: int = 0
    ) -> Placement | Refusal:
        """Say where *request* would go now, or why nowhere.

        Raises `UnknownPolicy`, `PolicyNotAllowed`.
        """
        with self._lock, self._database.reading() as connection:
            self._refresh(connection)
            policy = self._policy(connection, policy_name)
            return self._propose(connection, request, policy, priority)

    def claim(
        self,
        lease: Lease,
        request: Request,
        policy_name: str | None = None,
        quota: limits.Amounts = limits.NO_LIMITS,
    ) -> Lease:
        """Store *lease* with all that *request* asks for, or nothing at all. Return the lease.

        *quota* is the most that the lease's project may hold with it.

        *lease* comes without status, policy, hosts, access, claims and events; these are filled here, or left
        as they were.
        Its claims can be read afterwards; what they refer to (`claim.gpu`) if it has no server.

        Raises `NoCapacity` or `NeverFits`, whose fact `details` is `Refusal.to_dict()`;
        `NoDaemonPort`; `QuotaExceeded`; `ClaimConflict` when others were faster each time; `UnknownPolicy`;
        `PolicyNotAllowed`; `BadRequest` if there are too few masked addresses.
        """
        watch = timeutils.StopWatch().start()
        with self._lock:
            self._recent.add(request)
        asked_for = {column: getattr(lease, column) for column in FILLED}

        def write(overtaken: bool) -> Lease:
            with self._lock:
                self._try(lease, request, policy_name, quota, watch, overtaken)
            self._database.settle()  # others may choose meanwhile
            return lease

        return retry(self._attempts, write, lambda: _empty(lease, asked_for))

    def release(self, lease_id: str) -> None:
        """Give back all that a lease holds, and note when. A second time changes nothing.

        Raises `ClaimConflict` if the database could not be written for all the others, each time.
        """
        if retry(self._attempts, lambda _: self._return(lease_id)):
            self.advance()

    def terminate(
        self, lease_id: str, detail: str | None = None, if_: Condition = lambda _: True
    ) -> Lease | None:
        """Release a lease: at once and wholly if it holds nothing but its claims, or only a place in
        the queue; else as far as RELEASING.

        *if_* looks at the lease first, and may raise what it likes; None, and nothing done, if it says no.
        Raises `NotFound`, `IllegalTransition`, and `ClaimConflict` as `release`.
        """
        lease, others = retry(self._attempts, lambda _: self._terminate(lease_id, detail, if_))
        if lease is not None and lease.status == Status.RELEASED:
            if lease.claimed_at is None:
                self._announce(lease_id, Status.RELEASED, None, None)
            if others:
                self.advance()
        return lease

    def wait(
        self,
        lease: Lease,
        request: Request,
        policy_name: str | None = None,
        quota: limits.Amounts = limits.NO_LIMITS,
        patience: WaitPolicy = WaitPolicy(),
    ) -> Lease:
        """Store *lease* as the last of its priority in the queue, and advance the queue. Return it.

        For a request that has just been refused, and might fit later. *lease* comes as for `claim`, with its
        priority.

        Raises `QuotaExceeded` if its project's quota could never allow it, `QueueFull`, `UnknownPolicy`,
        `PolicyNotAllowed`, `BadRequest` if there are too few masked addresses.
        """
        if policy_name is not None:
            self._named(policy_name)
        if lease.has_server:
            self.masked.first(request.count)
        if limits.limited(quota):
            limits.check(quota, limits.NOTHING, at_least(request))
        retry(self._attempts, lambda _: self._queue_up(lease, policy_name, patience))
        self.advance()
        return lease

    def leave(self, lease_id: str, why: str | None = None) -> bool:
        """Give the place of a lease in the queue back; False if it has none (any more).

        *why* is for its owner, unless it was he who asked for it. Raises what the database raises.
        """
        with self._database.write() as session:
            left = queued.leave(session, lease_id, why)
        if left:
            self._announce(lease_id, Status.RELEASED, None, None)
            self.advance()
        return left

    def desert(
        self, lease_id: str, why: str, silent_since: datetime.datetime | None = None
    ) -> bool:
        """Release a lease whose client left before it knew that it had it; False if there is nothing to do.

        With *silent_since*, only if its client promised to ask, and did not since then.
        """
        return self._end(
            lease_id,
            why,
            lambda lease: silent_since is None or queued.is_silent(lease, silent_since),
        )

    def _end(self, lease_id: str, why: str, if_: Condition) -> bool:
        """Release a lease whose client is gone; False if it is on its way out, or he is not gone after all."""
        try:
            return self.terminate(lease_id, why, if_) is not None
        except exceptions.IllegalTransition:
            return False

    def tend(self) -> list[str]:
        """See to what nobody else noticed: waits that are over, clients that are gone, a queue that stands still.

        Return the ids of leases that are to be released. For the engine's audit.
        """
        now = timeutils.utcnow()
        before = now - datetime.timedelta(seconds=self._client_timeout)
        with self._database.read() as session:
            overdue = queued.overdue(session)
            silent = queued.deserted(session, before)
            head = queued.head(session.connection(), self._client_timeout)
            abandoned = leases.abandoned(session, now)
        for lease_id in overdue:
            self.leave(lease_id, TIME_OVER)
        deserted = [
            lease_id
            for lease_id in silent
            if not self.leave(lease_id, SILENT)
            and self.desert(lease_id, SILENT, silent_since=before)
        ]
        deserted += [
            lease_id
            for lease_id in abandoned
            if self._end(lease_id, ABANDONED, lambda lease: leases.is_abandoned(lease, now))
        ]
        if head is not None and (hopeless := self._hopeless(head)):
            self.leave(head.id, f"the cloud can no longer give what it asks for: {hopeless}")
        self.advance()
        return deserted

    def _hopeless(self, head: queued.Waiter) -> str | None:
        """Why the head of the queue will never fit; None if it may."""
        with self._lock, self._database.reading() as connection:
            self._inventory.reload(connection)
            policy = self._turns.policy_of(connection, head)
            answer = self._inventory.pool.propose(request_of(head), policy)
        return answer.reason if isinstance(answer, Refusal) and answer.impossible else None

    def advance(self) -> None:
        """Give those whose turn it is their GPUs, as long as the next one fits.

        To be called when something was committed that may let somebody in. What goes wrong is
        logged: the engine's next audit calls again.
        """
        turn = self._last_wanted = next(self._wanted)
        with self._advancing:
            if self._done >= turn:  # somebody has looked since we asked
                return
            covers = self._last_wanted
            try:
                while granted := self._grant():
                    self._announce(granted.id, granted.status, granted.policy, granted.timings)
            except Exception:
                LOG.exception("the queue stays as it is until the next audit")
            self._done = covers

    def _grant(self) -> Lease | None:
        """Give whoever is next his GPUs; return his lease, None if nobody can go now."""

        def write(overtaken: bool) -> Lease | None:
            with self._database.reading() as connection:
                if not queued.anybody(connection):
                    return None
            with self._lock:
                granted = self._try_next(overtaken)
            self._database.settle()
            return granted

        try:
            return retry(self._attempts, write)
        except _UnreachableError as hopeless:
            return self._give_up(hopeless)

    def _give_up(self, hopeless: _UnreachableError) -> Lease:
        """End the wait of somebody for whom there are GPUs, but no way to them: he would bar everybody's way."""
        with self._database.write() as session:
            queued.leave(session, hopeless.lease_id, f"it was its turn, but {hopeless}")
        return Lease(id=hopeless.lease_id, status=Status.RELEASED)

    def _propose(
        self,
        connection: Connection,
        request: Request,
        policy: Policy,
        priority: int = 0,
    ) -> Placement | Refusal:
        answer = self._inventory.pool.propose(request, policy)
        if isinstance(answer, Refusal) or not self._is_confirmed(connection, request, answer):
            self._inventory.reload(connection)
            answer = self._inventory.pool.propose(request, policy)
        top = self._inventory.top_priority
        if isinstance(answer, Placement) and top is not None and top >= priority:
            return self._turns.of_new(connection, request, policy, priority)
        return answer

    def _named(self, name: str) -> None:
        """Raise `UnknownPolicy` or `PolicyNotAllowed` if a request may not name this policy."""
        with self._database.read() as session:
            self.choice.named(name, settings.get(session, settings.DEFAULT_POLICY))

    def _policy(self, connection: Connection, name: str | None) -> Policy:
        """The policy for a request that says *name*, and what it looks at; after `_refresh`."""
        return self._shown(connection, self.choice.of(name, self._inventory.default_policy))

    def _shown(self, connection: Connection, policy: Policy) -> Policy:
        """See to it that *policy* finds what it looks at."""
        if policy.looks_at_utilisation:
            self._inventory.read_utilisation(connection)
        if policy.looks_at_mix:
            self._inventory.pool.mix = self._recent.mix
        return policy

    def _refresh(self, connection: Connection, overtaken: bool = False) -> None:
        self._take_over_returns()
        changed = self._inventory.refresh(connection)
        if overtaken and not changed:  # somebody was faster, but the summary hides it
            self._inventory.reload(connection)

    def _is_confirmed(self, connection: Connection, request: Request, placement: Placement) -> bool:
        known = request.locality == ANY or request.consumer_host is not None
        return known or self._inventory.confirms_host(connection, placement)

    def _try_next(self, overtaken: bool) -> Lease | None:
        watch = timeutils.StopWatch().start()
        with self._database.writing(linger=True) as connection:
            if overtaken:
                rows.queue_up(connection)
            self._refresh(connection, overtaken)
            turn = self._turns.next(connection)
            if turn is None:
                return None
            waiting, placement = turn
            if not self._is_confirmed(connection, waiting.request, placement):
                self._inventory.reload(connection)
                raise OvertakenError
            quota = self._quotas.of(waiting.project_id)
            if limits.limited(quota):
                held.hold(connection, waiting.project_id)
            lease = leases.queued(connection, waiting.lease_id)
            if lease is None:
                raise OvertakenError
            if limits.limited(quota):
                used = held.usage(connection, waiting.project_id)
                if not limits.fits(quota, used, asked(placement)):
                    raise OvertakenError
            waited = (timeutils.utcnow() - lease.queued_at).total_seconds()
            lease.timings = {**(lease.timings or {}), timings.QUEUE: waited}
            if self._attended(lease.id):  # it is told at once, and need not be watched any more
                lease.waiter_seen_at = None
            try:
                claimed = self._taking.take(
                    connection, lease, waiting.request, placement, waiting.policy, watch
                )
            except UNREACHABLE as error:
                raise _UnreachableError(lease.id, str(error)) from error
        for gpu in claimed:
            self._inventory.put(gpu)
        return lease

    def _queue_up(self, lease: Lease, policy_name: str | None, patience: WaitPolicy) -> None:
        now = timeutils.utcnow()
        with self._database.writing() as connection:
            if patience.most != limits.UNLIMITED:
                held.hold(connection, lease.project_id)
                waiting = queued.length(connection, lease.project_id)
                if waiting >= patience.most:
                    raise exceptions.QueueFull(waiting=waiting)
            lease.status = Status.QUEUED
            lease.policy = policy_name
            lease.queued_at = now
            lease.wait_until = patience.until
            lease.waiter_seen_at = now if patience.attended else None
            leases.insert(connection, lease)
            leases.tell(connection, lease, [Happened("queue", Status.QUEUED)])

    def _try(
        self,
        lease: Lease,
        request: Request,
        policy_name: str | None,
        quota: limits.Amounts,
        watch: timeutils.StopWatch,
        overtaken: bool,
    ) -> None:
        with self._database.writing(linger=True) as connection:
            if limits.limited(quota):
                held.hold(connection, lease.project_id)
            if overtaken:
                rows.queue_up(connection)
            self._refresh(connection, overtaken)
            policy = self._policy(connection, policy_name)
            answer = self._propose(connection, request, policy, lease.priority or 0)
            if isinstance(answer, Refusal):
                refused = exceptions.NeverFits if answer.impossible else exceptions.NoCapacity
                raise refused(reason=answer.reason, details=answer.to_dict())
            if limits.limited(quota):
                limits.check(quota, held.usage(connection, lease.project_id), asked(answer))
            claimed = self._taking.take(connection, lease, request, answer, policy, watch)
            if not lease.has_server:
                leases.locate(connection, lease)
        for gpu in claimed:
            self._inventory.put(gpu)

    def _return(self, lease_id: str) -> bool:
        """Give back what a lease claims; return whether that may be somebody's turn."""
        with self._database.writing(linger=True) as connection:
            try:
                lease = leases.copied(connection, lease_id)
            except exceptions.NotFound:
                return False
            newest, others = self._look(connection)
            changed = rows.give_back(
                connection, lease_id, lease.claims, self._inventory.pool.get, newest
            )
            if lease.released_at is None:
                lease.released_at = timeutils.utcnow()
                leases.write(connection, lease, "released_at")
        self._returned(changed)
        return others

    def _terminate(
        self, lease_id: str, detail: str | None, if_: Condition
    ) -> tuple[Lease | None, bool]:
        """Return the lease, None if nothing was done; and whether what it gave back may be somebody's turn."""
        with self._database.writing(linger=True) as connection:
            lease = leases.copied(connection, lease_id)
            if not if_(lease):
                return None, False
            waited, changed, others = lease.status == Status.QUEUED, [], False
            happened = [leases.move(connection, lease, Event.RELEASE, detail, waiter_seen_at=None)]
            if waited or leases.holds_only_claims(lease):
                newest, others = self._look(connection)
                changed = rows.give_back(
                    connection, lease_id, lease.claims, self._inventory.pool.get, newest
                )
                lease.claims = []
                happened.append(leases.move(connection, lease, Event.FINISH))
            leases.tell(connection, lease, happened)
            leases.write(connection, lease, "status", "released_at", "waiter_seen_at")
        self._returned(changed)
        return lease, others

    def _look(self, connection: Connection) -> tuple[int, bool]:
        """The newest generation, and whether the queue is to be advanced after a return (rule 9)."""
        newest, others_wait = rows.look(connection)
        return newest, others_wait or not self._database.one_writer

    def _returned(self, changed: Sequence[tuple[Gpu, Gpu]]) -> None:
        """Know GPUs as they are now. While somebody is choosing, that is left to whoever is next."""
        self._returns.extend(changed)
        if self._lock.acquire(blocking=False):
            try:
                self._take_over_returns()
            finally:
                self._lock.release()

    def _take_over_returns(self) -> None:
        while self._returns:
            before, after = self._returns.popleft()
            if self._inventory.pool.get(after.uuid) is before:
                self._inventory.put(after)


class _UnreachableError(Exception):
    """Who is next could have GPUs, and not reach them."""

    def __init__(self, lease_id: str, why: str) -> None:
        super().__init__(why)
        self.lease_id = lease_id


def _empty(lease: Lease, asked_for: Mapping[str, object]) -> None:
    """Take back what an attempt that came to nothing has filled in: *lease* may be tried again, or wait."""
    lease.claims = []
    for column, value in asked_for.items():
        setattr(lease, column, value)
