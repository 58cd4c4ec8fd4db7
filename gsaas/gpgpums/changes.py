# SPDX-License-Identifier: Apache-2.0
"""The changes of the books: what each of them writes, decided from a view of the books. Pure.

A change is a value. `plan` returns the entry that it makes, or raises why it makes none. `gsaas.gpgpums.ledger` plans,
locks the GPUs of the entry, plans again if one of them is not as the view had it, and writes. So a plan may be made
several times, and must depend on nothing but its change and the view.
"""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeAlias, cast

from oslo_utils import timeutils

from gsaas import exceptions
from gsaas.gpgpums import reservations
from gsaas.gpgpums.allocation import UNREACHABLE, AccessRules, TakenPlaces, allocate
from gsaas.gpgpums.policies.base import Policy
from gsaas.gpgpums.pool import Pool
from gsaas.gpgpums.queue import QueuedRequest
from gsaas.limits import base as limits
from gsaas.objects import timings
from gsaas.objects.gpu import Gpu
from gsaas.objects.lease import Claim as StoredClaim
from gsaas.objects.lease import Lease
from gsaas.objects.lifecycle import Event, LeaseEvent, Status
from gsaas.objects.placement import Placement, Refusal, Share
from gsaas.objects.request import Request
from gsaas.objects.reservation import (
    LIVE,
    Reservation,
    ReservationStatus,
    ReservedShare,
    status_at,
)

Condition = Callable[[Lease], bool]
"""Returns whether a lease, read with its row locked, is still to be ended."""


class View(TakenPlaces, Protocol):
    """The books as a change may look at them: as stored, with the entries that were planned before it."""

    pool: Pool
    access: AccessRules

    @property
    def newest_generation(self) -> int:
        """Return the largest generation of any GPU."""

    def policy(self, name: str | None) -> Policy:
        """Return the policy that a request names, or the default; raises `UnknownPolicy`, `PolicyNotAllowed`."""

    def propose(self, request: Request, policy: Policy, priority: int) -> Placement | Refusal:
        """Return where *request* would go, or why nowhere; it overtakes no lease in the queue."""

    def confirms(self, request: Request, placement: Placement) -> bool:
        """Return whether the compute host that *placement* needs is still there."""

    def next_in_queue(self) -> tuple[QueuedRequest, Placement] | None:
        """Return the lease of the queue that is served next and its placement; None if none can be served now."""

    def usage(self, project_id: str) -> limits.Amounts:
        """Return what a project uses, whose row is locked if it has a quota."""

    def allows(self, project_id: str, placement: Placement) -> bool:
        """Return whether the quota of a project whose lease waits allows it to have *placement* now."""

    def lease(self, lease_id: str, project_id: str | None = None) -> Lease:
        """Return a lease whose row is locked; raises `RowsNeededError` if it is not, nor that of the project."""

    def moved(
        self, lease: Lease, event: Event, detail: str | None = None, **changes: Any
    ) -> tuple[Lease, LeaseEvent]:
        """Return *lease* as it is after *event*, and the event to record; raises `IllegalTransition`."""

    def reservation(self, reservation_id: str, project_id: str | None = None) -> Reservation:
        """Return a reservation whose row and shares are locked; raises `NotFound`, as for one of another project."""

    def live_reservations(self) -> Sequence[Reservation]:
        """Return all reservations that have shares."""

    def placings(self) -> int:
        """Return a number that changes with each reservation that is placed."""

    def shares_of(self, lease_id: str) -> Sequence[Share]:
        """Return the shares of a reservation that a lease has, which are locked."""

    def queue_may_wait(self) -> bool:
        """Return whether a lease may wait for what this transaction frees."""


class RowsNeededError(Exception):
    """A plan needs rows that are not locked yet: it is made again when they are."""

    def __init__(self, lease_id: str, project_id: str | None) -> None:
        super().__init__(lease_id)
        self.lease_id = lease_id
        self.project_id = project_id


class StaleViewError(Exception):
    """What a plan was to be made from has changed since it was read: another transaction has to read it again."""


class UnreachableError(Exception):
    """There are GPUs for the next lease of the queue, but its consumer could not reach them."""

    def __init__(self, lease_id: str, why: str) -> None:
        super().__init__(why)
        self.lease_id = lease_id


@dataclass(frozen=True)
class Announce:
    """A lease has left the queue: whoever waits for it is to be told."""

    lease_id: str
    status: str
    policy: str | None = None
    """The policy that chose its GPUs; None if it has none."""
    timings: Mapping[str, float] | None = None


@dataclass(frozen=True)
class AdvanceQueue:
    """A lease in the queue may fit now."""


Effect: TypeAlias = Announce | AdvanceQueue
"""What the caller has to do once the entry is committed."""


@dataclass(frozen=True)
class ReservationEntry:
    """What an entry writes of a reservation."""

    before: Reservation
    """As it was read; of a new one, all of it."""
    is_new: bool = False
    status: ReservationStatus | None = None
    """Its new status; None if it stays."""
    moves: Sequence[tuple[ReservedShare, Share]] = ()
    """Shares that it does not keep any more where they were, and where each of them is then."""
    placings: int = 0
    """What `View.placings` returned before *moves* were chosen."""
    kept: Sequence[ReservedShare] = ()
    """Shares that it keeps from now on."""
    taken: Sequence[ReservedShare] = ()
    """Shares that the lease of the entry claims."""
    is_over: bool = False
    """It keeps nothing any more."""


@dataclass(frozen=True)
class Entry:
    """What one change writes into the books, all of it or nothing."""

    gpus: Mapping[str, Gpu] = field(default_factory=dict)
    """The GPUs that it changes, as they are then, by UUID."""
    before: Lease | None = None
    """The lease as it is stored; None for a new one."""
    lease: Lease | None = None
    """The lease as it is then; None if nothing becomes of one."""
    events: Sequence[LeaseEvent] = ()
    reservation: ReservationEntry | None = None
    effects: Sequence[Effect] = ()

    @property
    def claims(self) -> Sequence[StoredClaim]:
        """Return the claims that it adds."""
        had_them = self.before is not None and self.before.claims
        return () if self.lease is None or had_them else self.lease.claims

    @property
    def returns_claims(self) -> bool:
        """Return whether it deletes all claims of its lease."""
        return bool(self.before and self.before.claims and self.lease and not self.lease.claims)


@dataclass(frozen=True)
class Rows:
    """Rows that are to be locked before a change is planned, by what identifies them."""

    project: str | None = None
    lease: str | None = None
    reservation: str | None = None
    placings: bool = False
    """No other transaction may place a reservation until this one ends."""


@dataclass(frozen=True)
class Claim:
    """A new lease claims all that its request asks for."""

    lease: Lease
    """Without policy, hosts, access and claims, which are filled in."""
    request: Request
    policy_name: str | None
    quota: limits.Amounts
    """The most that its project may have with it."""
    watch: timeutils.StopWatch
    """Started when the claim began."""

    chooses = True

    @property
    def rows(self) -> Rows:
        """Return the rows that are to be locked first."""
        project = self.lease.project_id if limits.limited(self.quota) else None
        return Rows(project=project, reservation=self.lease.reservation_id)

    def plan(self, view: View) -> Entry:
        """Return the entry.

        Raises `NoCapacity`, `NeverFits`, `QuotaExceeded`, `UnknownPolicy`, `PolicyNotAllowed`, the errors of
        `UNREACHABLE`, `BadRequest` for too few masked addresses; in a reservation also `NotFound` and
        `ReservationNotActive`.
        """
        lease, request = self.lease, self.request
        within: Reservation | None = None
        answer: Placement | Refusal
        if lease.reservation_id is None:
            policy = view.policy(self.policy_name)
            answer = view.propose(request, policy, lease.priority)
        else:
            within = view.reservation(lease.reservation_id, lease.project_id)
            policy, answer = place_within(view, within, request, self.policy_name)
        placement = placed(answer)
        if limits.limited(self.quota):
            used = view.usage(lease.project_id)
            limits.check(self.quota, used, limits.of_placement(placement))
        entry = _claimed(view, lease, request, placement, policy, self.watch)
        if within is None:
            return entry
        taken = reservations.taken_by(within, placement)
        return replace(entry, reservation=ReservationEntry(within, taken=taken))


@dataclass(frozen=True)
class Return:
    """A lease returns all that it claims; its status stays. A second return changes nothing."""

    lease_id: str

    chooses = False

    @property
    def rows(self) -> Rows:
        """Return the rows that are to be locked first."""
        return Rows(lease=self.lease_id)

    def plan(self, view: View) -> Entry:
        """Return the entry; raises `NotFound`."""
        before = view.lease(self.lease_id)
        after = before.with_(claims=(), released_at=before.released_at or view.now)
        return _given_back(view, before, after)


@dataclass(frozen=True)
class Terminate:
    """A lease ends: at once if it has only claims or a place in the queue, else the engine ends it.

    Nothing becomes of it if *if_* returns False for it.
    """

    lease_id: str
    detail: str | None = None
    if_: Condition = lambda _: True

    chooses = False

    @property
    def rows(self) -> Rows:
        """Return the rows that are to be locked first."""
        return Rows(lease=self.lease_id)

    def plan(self, view: View) -> Entry:
        """Return the entry; raises `NotFound`, `IllegalTransition`, and what the condition raises."""
        before = view.lease(self.lease_id)
        if not self.if_(before):
            return Entry()
        lease, released = view.moved(before, Event.RELEASE, self.detail, waiter_seen_at=None)
        if before.status != Status.QUEUED and not before.has_only_claims:
            return Entry(before=before, lease=lease, events=[released])
        lease = lease.with_(claims=())
        lease, finished = view.moved(lease, Event.FINISH, released_at=lease.released_at or view.now)
        entry = _given_back(view, before, lease)
        effects = list(entry.effects)
        if lease.claimed_at is None:  # it was in the queue until now
            effects.insert(0, Announce(lease.id, Status.RELEASED))
        return replace(entry, events=[released, finished], effects=effects)


@dataclass(frozen=True)
class Serve:
    """The next lease of the queue claims its GPUs; the entry is empty if none can be served now."""

    watch: timeutils.StopWatch
    """Started when the claim began."""
    is_client_waiting: Callable[[str], bool] = lambda _: False
    """Returns whether a request of the lease's own client waits for it in this process."""

    lease_id: str | None = None
    """The lease that is probably the next one; whoever finds that it is another one raises `RowsNeededError`."""
    project_id: str | None = None
    """Its project, if that has a quota."""

    chooses = True

    @property
    def rows(self) -> Rows:
        """Return the rows that are to be locked first."""
        return Rows(project=self.project_id, lease=self.lease_id)

    def plan(self, view: View) -> Entry:
        """Return the entry; raises `UnreachableError` for a lease whose consumer could not reach its GPUs."""
        found = view.next_in_queue()
        if found is None:
            return Entry()
        waiting, placement = found
        if not view.confirms(waiting.request, placement):
            raise StaleViewError
        before = view.lease(waiting.lease_id, waiting.project_id)
        if before.status != Status.QUEUED or before.queued_at is None:
            raise StaleViewError  # it left the queue after it was read, before its row was locked
        if not view.allows(waiting.project_id, placement):
            raise StaleViewError
        waited = (view.now - before.queued_at).total_seconds()
        lease = before.with_(timings={**(before.timings or {}), timings.QUEUE: waited})
        # Its open request is answered now. But the client may have lost a request that can be repeated: it stays
        # watched until the answer is on its way.
        if lease.request_key is None and self.is_client_waiting(lease.id):
            lease = lease.with_(waiter_seen_at=None)
        try:
            entry = _claimed(view, lease, waiting.request, placement, waiting.policy, self.watch)
        except UNREACHABLE as error:
            raise UnreachableError(lease.id, str(error)) from error
        served = cast(Lease, entry.lease)
        announce = Announce(served.id, served.status, served.policy, served.timings)
        return replace(entry, before=before, effects=[announce])


@dataclass(frozen=True)
class Reserve:
    """A new reservation is placed beside those that overlap it."""

    wanted: Reservation
    """Without shares."""
    request: Request
    policy_name: str | None
    at_most: int
    """The most reservations that its project may have with it."""
    quota: limits.Amounts
    """The most that its project may have in all of them together."""

    chooses = True
    rows = Rows(placings=True)

    def plan(self, view: View) -> Entry:
        """Return the entry; raises `QuotaExceeded`, `NoCapacity`, `NeverFits`, `UnknownPolicy`, `PolicyNotAllowed`."""
        wanted, others = self.wanted, view.live_reservations()
        own = [one for one in others if one.project_id == wanted.project_id]
        if self.at_most != limits.UNLIMITED and len(own) >= self.at_most:
            raise exceptions.QuotaExceeded(
                reason=f"the project has {len(own)} reservations of at most {self.at_most}",
                details={
                    "quotas": [
                        {
                            "name": "reservations",
                            "used": len(own),
                            "asked": 1,
                            "limit": self.at_most,
                        }
                    ]
                },
            )
        policy = view.policy(self.policy_name)
        compute_hosts = view.pool.compute_hosts
        placement = placed(
            reservations.admit(
                *(view.pool, compute_hosts, others, self.request, policy),
                *(wanted.start, wanted.end),
            )
        )
        shares = tuple(
            ReservedShare(position, share.gpu_uuid, share.memory_mb)
            for position, share in enumerate(placement.shares)
        )
        reserved = _amounts(share for one in own for share in one.shares)
        limits.check(self.quota, reserved, _amounts(shares))
        new = replace(wanted, status=ReservationStatus.PENDING, shares=shares)
        return Entry(reservation=ReservationEntry(new, is_new=True))


@dataclass(frozen=True)
class Keep:
    """A reservation gets the status that it has to have, moves what it has lost, and keeps what is free of its shares.

    It begins to keep its shares *notice* before its beginning. The entry is empty if the reservation is over.
    """

    reservation_id: str
    notice: datetime.timedelta

    chooses = True

    @property
    def rows(self) -> Rows:
        """Return the rows that are to be locked first."""
        return Rows(reservation=self.reservation_id)

    def plan(self, view: View) -> Entry:
        """Return the entry; raises `NotFound`."""
        found, pool = view.reservation(self.reservation_id), view.pool
        status = status_at(found, view.now)
        if status not in LIVE:
            return Entry()
        keeps = view.now >= found.start - self.notice
        moves: list[tuple[ReservedShare, Share]] = []
        placings = 0
        if reservations.lost(found, gpus_of(pool, found.shares)):
            placings = view.placings()
            others = [one for one in view.live_reservations() if one.id != found.id]
            policy = view.policy(None)
            moves = reservations.moves(
                found, pool, pool.compute_hosts, others, policy, view.now, keeps=keeps
            )
        after = _reserved(
            pool, ((share.gpu_uuid, -share.memory_mb) for share, _ in moves if share.kept)
        )
        elsewhere = {
            share.position: ReservedShare(share.position, to.gpu_uuid, to.memory_mb)
            for share, to in moves
        }
        shares = tuple(elsewhere.get(share.position, share) for share in found.shares)
        kept: list[ReservedShare] = []
        if keeps:
            known = gpus_of(pool, shares)
            in_service = {uuid: gpu for uuid, gpu in known.items() if gpu.withheld is None}
            kept = reservations.to_keep(replace(found, shares=shares), in_service)
            after |= _reserved(pool, ((share.gpu_uuid, share.memory_mb) for share in kept))
        return Entry(
            after,
            reservation=ReservationEntry(
                found,
                status=status if status != found.status else None,
                moves=moves,
                placings=placings,
                kept=kept,
            ),
        )


@dataclass(frozen=True)
class EndReservation:
    """A reservation ends with *status*, and keeps nothing any more; its leases go on. One that is over stays so."""

    reservation_id: str
    status: ReservationStatus

    chooses = True

    @property
    def rows(self) -> Rows:
        """Return the rows that are to be locked first."""
        return Rows(reservation=self.reservation_id)

    def plan(self, view: View) -> Entry:
        """Return the entry; raises `NotFound`."""
        found = view.reservation(self.reservation_id)
        if found.status not in LIVE:
            return Entry()
        kept = [share for share in found.shares if share.kept and share.lease_id is None]
        return Entry(
            _reserved(view.pool, ((share.gpu_uuid, -share.memory_mb) for share in kept)),
            reservation=ReservationEntry(found, status=self.status, is_over=True),
        )


Change: TypeAlias = Claim | Return | Terminate | Serve | Reserve | Keep | EndReservation


def placed(answer: Placement | Refusal) -> Placement:
    """Return *answer* if it is a placement; raises `NeverFits` or `NoCapacity`, as it was refused."""
    if isinstance(answer, Placement):
        return answer
    refused = exceptions.NeverFits if answer.impossible else exceptions.NoCapacity
    raise refused(reason=answer.reason, details=answer.to_dict())


def place_within(
    view: View, reservation: Reservation, request: Request, policy_name: str | None
) -> tuple[Policy, Placement | Refusal]:
    """Return the policy, and where *request* goes in *reservation* by it, or why nowhere.

    No lease in the queue is overtaken: it could not get what is kept for the reservation. Raises
    `ReservationNotActive`, and `BadRequest` for cGPUs of another size than those of the reservation.
    """
    if status_at(reservation, view.now) is not ReservationStatus.ACTIVE:
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
    policy, pool = view.policy(policy_name), view.pool
    answer = reservations.propose_within(
        reservation, gpus_of(pool, reservation.shares), pool.compute_hosts, request, policy
    )
    return policy, answer


def gpus_of(pool: Pool, shares: Collection[ReservedShare]) -> dict[str, Gpu]:
    """Return the GPUs of these shares, by UUID; those that are gone are left out."""
    known = {share.gpu_uuid: pool.get(share.gpu_uuid) for share in shares}
    return {uuid: gpu for uuid, gpu in known.items() if gpu is not None}


def _claimed(
    view: View,
    lease: Lease,
    request: Request,
    placement: Placement,
    policy: Policy,
    watch: timeutils.StopWatch,
) -> Entry:
    """Return the entry with which *lease* gets its placement."""
    after = view.pool.claimed(
        placement,
        exclusive=request.exclusive,
        newest=view.newest_generation,
        reserved=lease.reservation_id is not None,
    )
    allocated, events = allocate(lease, placement, policy.name, after, view, view.access)
    took = {**(lease.timings or {}), timings.CLAIM: watch.elapsed()}
    return Entry(after, lease=allocated.with_(timings=took), events=events)


def _given_back(view: View, before: Lease, after: Lease) -> Entry:
    """Return the entry with which a lease returns its claims, and what its reservation keeps then of them."""
    sizes = Counter[str]()
    for claim in before.claims:
        sizes[claim.gpu_uuid] += claim.memory_mb
    gpus = {}
    for uuid, size in sizes.items():
        gpu = view.pool[uuid]
        gpus[uuid] = gpu.release(size, generation=gpu.generation + 1)
    kept = Counter[str]()
    for share in view.shares_of(before.id):
        kept[share.gpu_uuid] += share.memory_mb
    for uuid, size in kept.items():
        gpu = gpus.get(uuid, view.pool[uuid])
        gpus[uuid] = gpu.reserve(size, generation=view.pool[uuid].generation + 1)
    effects = [AdvanceQueue()] if view.queue_may_wait() else []
    return Entry(gpus, before, after, effects=effects)


def _reserved(pool: Pool, sizes: Iterable[tuple[str, int]]) -> dict[str, Gpu]:
    """Return GPUs by UUID as they are when so many MiB more of each are reserved; those that are gone are left out."""
    total = Counter[str]()
    for uuid, size in sizes:
        total[uuid] += size
    known = {uuid: (pool.get(uuid), size) for uuid, size in total.items()}
    return {
        uuid: gpu.reserve(size, generation=gpu.generation + 1)
        for uuid, (gpu, size) in known.items()
        if gpu is not None
    }


def _amounts(shares: Iterable[ReservedShare]) -> limits.Amounts:
    """Return what reservations have of each limited resource; they have no leases until these are launched."""
    sizes = [share.memory_mb for share in shares]
    return {"cgpus": len(sizes), "gpu_memory_mb": sum(sizes), "leases": 0}
