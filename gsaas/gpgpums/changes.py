# SPDX-License-Identifier: Apache-2.0
"""The changes of the books: what each of them writes, decided from a view of the books. Pure.

A change is a value. `plan` returns the entry that it makes, or raises why it makes none. `gsaas.gpgpums.ledger` plans,
locks the GPUs of the entry, plans again if one of them is not as the view had it, and writes. So a plan may be made
several times, and must depend on nothing but its change and the view.
"""

from __future__ import annotations

import abc
import datetime
import json
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, cast

from oslo_utils import timeutils

from gsaas import exceptions
from gsaas.gpgpums import reservations
from gsaas.gpgpums.allocation import UNREACHABLE, allocate
from gsaas.gpgpums.entries import (
    AdvanceQueue,
    Announce,
    Entry,
    LeftOutError,
    ReservationEntry,
    Rows,
)
from gsaas.gpgpums.policies.base import Policy
from gsaas.limits import base as limits
from gsaas.objects import timings
from gsaas.objects.lease import Lease
from gsaas.objects.lifecycle import Event, LeaseEvent, Status
from gsaas.objects.placement import Placement, Refusal
from gsaas.objects.request import Request
from gsaas.objects.reservation import (
    Reservation,
    ReservationStatus,
    status_at,
)

if TYPE_CHECKING:
    from gsaas.gpgpums.view import View

QUEUE_STEP = "queue"
"""The step in the fault of a lease that left the queue without GPUs."""

Condition = Callable[[Lease], bool]
"""Returns whether a lease, read with its row locked, is still to be ended."""


class Change(abc.ABC):
    """What one call changes of the books."""

    chooses: ClassVar[bool] = True
    """It looks at GPUs other than those of its lease: the pool has to be up to date."""
    concerns_gpus: ClassVar[bool] = True
    """It looks at the pool, or changes GPUs."""

    @property
    @abc.abstractmethod
    def rows(self) -> Rows:
        """Return the rows that are to be locked before it is planned."""

    @property
    def may_be_left_out(self) -> bool:
        """Whether it is written in batches, which leave it out if others have locked its rows; else alone."""
        return False

    @abc.abstractmethod
    def plan(self, view: View) -> Entry:
        """Return what it writes; raise why it writes nothing."""


@dataclass(frozen=True)
class LeaseChange(Change):
    """A change of a lease that is stored."""

    lease_id: str

    chooses = False
    may_be_left_out = True

    @property
    def rows(self) -> Rows:
        """Return the row of the lease."""
        return Rows(lease=self.lease_id)


@dataclass(frozen=True)
class Claim(Change):
    """A new lease claims all that its request asks for."""

    lease: Lease
    """Without policy, hosts, access and claims, which are filled in."""
    request: Request
    policy_name: str | None
    quota: limits.Amounts
    """The most that its project may have with it."""
    watch: timeutils.StopWatch
    """Started when the claim began."""

    @property
    def may_be_left_out(self) -> bool:
        """Whether it is written in batches: not in a reservation, whose row others wait for."""
        return self.lease.reservation_id is None

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
            used, asked = view.usage(lease.project_id), limits.of_placement(placement)
            if within is None:
                limits.check(self.quota, used.total, asked, used.reserved)
            else:  # what it claims is part of what its project has reserved
                limits.check(self.quota, used.claimed, asked)
        entry = _claimed(view, lease, request, placement, policy, self.watch)
        if within is None:
            return entry
        taken = reservations.taken_by(within, placement)
        return replace(entry, reservation=ReservationEntry(within, taken=taken))


@dataclass(frozen=True)
class Return(LeaseChange):
    """A lease returns all that it claims; its status stays. A second return changes nothing."""

    def plan(self, view: View) -> Entry:
        """Return the entry; raises `NotFound`."""
        before = view.lease(self.lease_id)
        released_at = before.released_at or view.now
        after = before.with_(claims=(), others=(), moving=None, released_at=released_at)
        return _given_back(view, before, after)


@dataclass(frozen=True)
class Terminate(LeaseChange):
    """A lease ends: at once if it has only claims or a place in the queue, else the engine ends it.

    *detail* says why, and is the fault of a lease in the queue; None if its owner asked for it. Nothing becomes of it
    if *if_* returns False for it.
    """

    detail: str | None = None
    if_: Condition = lambda _: True
    because: str | None = None
    """An event that is recorded before the release: unlike the detail, its owner may see it."""

    def plan(self, view: View) -> Entry:
        """Return the entry; raises `NotFound`, `IllegalTransition`, and what the condition raises."""
        before = view.lease(self.lease_id)
        if not self.if_(before):
            return Entry()
        cause = [LeaseEvent(self.because, before.status)] if self.because else []
        if before.status == Status.QUEUED or before.has_only_claims:
            entry = _ended(view, before, self.detail)
            return replace(entry, events=[*cause, *entry.events])
        lease, released = view.moved(before, Event.RELEASE, self.detail, waiter_seen_at=None)
        return Entry(before=before, lease=lease, events=[*cause, released])


@dataclass(frozen=True)
class WaitPolicy:
    """How a request waits in the queue."""

    until: datetime.datetime | None = None
    """When it leaves the queue without GPUs, UTC; None: never."""
    attended: bool = False
    """Its client announces to poll, and counts as gone when it stops polling."""
    max_waiting: int = limits.UNLIMITED
    """The most requests of its project that may wait at once, this one included."""
    max_kb: int = limits.UNLIMITED
    """The most KiB of server fields that these may have together."""


@dataclass(frozen=True)
class Join(Change):
    """A new lease joins the queue, as the last of its priority."""

    lease: Lease
    """Without policy, hosts, access and claims."""
    policy_name: str | None
    waits: WaitPolicy

    chooses = False
    concerns_gpus = False

    @property
    def rows(self) -> Rows:
        """Return the rows that are to be locked first."""
        is_bounded = (
            self.waits.max_waiting != limits.UNLIMITED or self.waits.max_kb != limits.UNLIMITED
        )
        return Rows(project=self.lease.project_id if is_bounded else None)

    def plan(self, view: View) -> Entry:
        """Return the entry; raises `QueueFull`, `QueueTooLarge`."""
        project_id, waits = self.lease.project_id, self.waits
        if waits.max_waiting != limits.UNLIMITED:
            waiting = view.queue_length(project_id)
            if waiting >= waits.max_waiting:
                raise exceptions.QueueFull(waiting=waiting)
        if waits.max_kb != limits.UNLIMITED and self.lease.server_request:
            own = len(json.dumps(self.lease.server_request))
            kb = math.ceil((own + view.queued_characters(project_id)) / 1024)
            if kb > waits.max_kb:
                raise exceptions.QueueTooLarge(kb=kb, limit=waits.max_kb)
        queued = self.lease.with_(
            status=Status.QUEUED,
            policy=self.policy_name,
            queued_at=view.now,
            wait_until=waits.until,
            waiter_seen_at=view.now if waits.attended else None,
        )
        joined = LeaseEvent("queue", Status.QUEUED)
        return Entry(lease=queued, events=[joined], effects=[AdvanceQueue()])


@dataclass(frozen=True)
class Serve(Change):
    """The next lease of the queue claims its GPUs; the entry is empty if none can be served now.

    If its consumer could not reach them, it ends: at the head of the queue, it would let no lease behind it be served.
    Neither is decided while others have locked GPUs that it might get.
    """

    watch: timeutils.StopWatch
    """Started when the claim began."""
    is_client_waiting: Callable[[str], bool] = lambda _: False
    """Returns whether a request of the lease's own client waits for it in this process."""

    lease_id: str | None = None
    """The lease that is probably the next one; whoever finds that it is another one raises `RowsNeededError`."""
    project_id: str | None = None
    """Its project, if that has a quota."""

    @property
    def rows(self) -> Rows:
        """Return the rows that are to be locked first."""
        return Rows(project=self.project_id, lease=self.lease_id)

    def plan(self, view: View) -> Entry:
        """Return the entry."""
        found = view.next_in_queue()
        if found is None:
            if view.is_partial:
                raise LeftOutError
            return Entry()
        waiting, placement = found
        before = view.lease(waiting.lease_id, waiting.project_id)
        if before.status != Status.QUEUED or before.queued_at is None:
            raise LeftOutError  # it left the queue after it was read, before its row was locked
        if not view.allows(waiting.project_id, placement):
            raise LeftOutError
        waited = (view.now - before.queued_at).total_seconds()
        lease = before.with_(timings={**(before.timings or {}), timings.QUEUE: waited})
        # Its open request is answered now. But the client may have lost a request that can be repeated: it stays
        # watched until the answer is on its way.
        if lease.request_key is None and self.is_client_waiting(lease.id):
            lease = lease.with_(waiter_seen_at=None)
        try:
            entry = _claimed(view, lease, waiting.request, placement, waiting.policy, self.watch)
        except (*UNREACHABLE, exceptions.BadRequest) as error:
            if view.is_partial:
                raise LeftOutError from error
            ended = _ended(view, before, f"it was next in the queue, but {error}")
            return replace(ended, effects=[Announce(before.id, Status.RELEASED)])
        served = cast(Lease, entry.lease)
        announce = Announce(served.id, served.status, served.policy, served.timings)
        return replace(entry, before=before, effects=[announce])


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
    `ReservationNotActive`, and `BadRequest` for cGPUs of another kind or size than those of the reservation.
    """
    if status_at(reservation, view.now) is not ReservationStatus.ACTIVE:
        raise exceptions.ReservationNotActive(
            id=reservation.id,
            status=reservation.status,
            start=reservation.start,
            end=reservation.end,
        )
    own = Request.from_dict(reservation.cgpus)
    if (own.kind, own.mode, own.memory_mb) != (request.kind, request.mode, request.memory_mb):
        raise exceptions.BadRequest(
            reason="a lease in a reservation has cGPUs of the reservation's kind, mode and size"
        )
    policy, pool = view.policy(policy_name), view.pool
    answer = reservations.propose_within(
        reservation,
        reservations.gpus_of(pool, reservation.shares),
        pool.compute_hosts,
        request,
        policy,
    )
    return policy, answer


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
    allocated, events = allocate(lease, placement, policy.name, after, view)
    took = {**(lease.timings or {}), timings.CLAIM: watch.elapsed()}
    return Entry(after, lease=allocated.with_(timings=took), events=events)


def _ended(view: View, before: Lease, detail: str | None) -> Entry:
    """Return the entry with which a lease ends that has only claims or a place in the queue.

    *detail* says why; None if its owner asked for it. It is the fault of a lease that got no GPUs.
    """
    was_queued = before.status == Status.QUEUED
    is_fault = was_queued and detail is not None
    fault = {"fault_step": QUEUE_STEP, "fault_message": detail} if is_fault else {}
    lease, released = view.moved(before, Event.RELEASE, detail, waiter_seen_at=None, **fault)
    lease = lease.with_(claims=(), others=(), moving=None)
    lease, finished = view.moved(lease, Event.FINISH, released_at=lease.released_at or view.now)
    entry = _given_back(view, before, lease)
    announced = [Announce(lease.id, Status.RELEASED)] if was_queued else []
    return replace(entry, events=[released, finished], effects=[*announced, *entry.effects])


def _given_back(view: View, before: Lease, after: Lease) -> Entry:
    """Return the entry with which a lease returns its claims, and what its reservation keeps then of them."""
    sizes = Counter[str]()
    for claim in before.all_claims:
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
