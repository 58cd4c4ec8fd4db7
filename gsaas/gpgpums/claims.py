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
6. Where a project has limits, its claims queue up for its row before anything else, and what it
   holds is counted inside the claim's own transaction: together they cannot exceed what each may.
"""

from __future__ import annotations

import ipaddress
import random
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from oslo_db import exception as db_exception
from oslo_utils import timeutils
from sqlalchemy import bindparam, case, delete, func, select, update
from sqlalchemy.orm import Session

from gsaas import exceptions, timings
from gsaas.db import limits as held
from gsaas.db.database import Database
from gsaas.db.models import Claim, Gpu, Lease, LeaseEvent
from gsaas.gpgpums import policies, state
from gsaas.gpgpums.inventory import Inventory
from gsaas.gpgpums.policies.base import Policy
from gsaas.gpgpums.state import ANY, Placement, Refusal, Request
from gsaas.lifecycle import Status
from gsaas.limits import base as limits
from gsaas.rodvr.bindings import Address

LONGEST_PAUSE = 0.1
"""Seconds."""

SERIALIZATION_FAILURE = "40001"
"""The SQL standard's SQLSTATE for a transaction that others made impossible."""

JITTER = random.SystemRandom()

GPUS, LEASES, CLAIMS = Gpu.__table__, Lease.__table__, Claim.__table__

TURNSTILE = select(GPUS.c.uuid).order_by(GPUS.c.uuid).limit(1).with_for_update()
"""The row that claims queue up for: the first they would lock in any case."""

SWAP = (
    update(GPUS)
    .where(
        GPUS.c.uuid == bindparam("this"),
        GPUS.c.generation == bindparam("known"),
        GPUS.c.disabled.is_(False),
    )
    .values(used_mb=bindparam("used"), generation=bindparam("next"))
)

GIVE_BACK = (
    update(GPUS)
    .where(GPUS.c.uuid == bindparam("this"))
    .values(
        used_mb=GPUS.c.used_mb - bindparam("size"),
        exclusive_lease_id=None,
        # New to everybody as a rule, and larger than before in any case.
        generation=case(
            (GPUS.c.generation < bindparam("next"), bindparam("next")),
            else_=GPUS.c.generation + 1,
        ),
    )
)

DELETE_CLAIM = delete(CLAIMS).where(
    CLAIMS.c.lease_id == bindparam("lease"), CLAIMS.c.position == bindparam("this")
)


@dataclass(frozen=True)
class MaskedAddresses:
    """What VMs are told: the addresses of *prefix* (`169.254.71.0/24`), each with *port*."""

    prefix: str
    port: int

    def first(self, count: int) -> list[Address]:
        """The addresses of *count* cGPUs; raises `BadRequest` if the prefix has not that many."""
        network = ipaddress.IPv4Network(self.prefix)
        usable = network.num_addresses - 2
        if count > usable:
            raise exceptions.BadRequest(
                reason=f"{count} cGPUs were asked for; a VM can be told of {usable}"
            )
        return [Address(str(network[1 + position]), self.port) for position in range(count)]


class Claims:
    """Checks, claims and gives back. One per process; its threads take turns.

    *attempts* is how often a claim or a release is tried while others are faster;
    *heartbeat_timeout* how long a GPU host's monitor may be silent before its GPUs are not
    offered, in seconds; *policy* serves those who name none.
    """

    def __init__(
        self,
        database: Database,
        *,
        attempts: int,
        heartbeat_timeout: float,
        masked: MaskedAddresses,
        policy: str = "least-load-fit",
    ) -> None:
        self._database = database
        self._attempts = attempts
        self.masked = masked
        self._policy = policy
        self._inventory = Inventory(heartbeat_timeout)
        self._lock = threading.Lock()

    def check(self, request: Request, policy_name: str | None = None) -> Placement | Refusal:
        """Say where *request* would go now, or why nowhere. Raises `UnknownPolicy`."""
        policy = policies.load(policy_name or self._policy)
        with self._lock, self._database.read() as session:
            return self._propose(session, request, policy)

    def claim(
        self,
        lease: Lease,
        request: Request,
        policy_name: str | None = None,
        quota: limits.Amounts = limits.NO_LIMITS,
    ) -> Lease:
        """Store *lease* with all that *request* asks for, or nothing at all. Return the lease.

        *quota* is the most that the lease's project may hold with it.

        *lease* comes without status, policy, hosts, claims and events; these are filled here. Its
        claims can be read afterwards, what they refer to (`claim.gpu`) only in a session.

        Raises `NoCapacity` or `NeverFits`, whose fact `details` is `Refusal.to_dict()`;
        `QuotaExceeded`; `ClaimConflict` when others were faster each time; `UnknownPolicy`;
        `BadRequest` if there are too few masked addresses.
        """
        watch = timeutils.StopWatch().start()
        policy = policies.load(policy_name or self._policy)
        addresses = self.masked.first(request.count)
        for attempt in range(self._attempts):
            try:
                with self._lock:
                    self._try(
                        lease, request, policy, addresses, quota, watch, overtaken=attempt > 0
                    )
            except (_OvertakenError, held.OvertakenError, db_exception.DBError) as error:
                _raise_unless_overtaken(error)
            else:
                return lease
            _pause(attempt)
        raise exceptions.ClaimConflict(attempts=self._attempts)

    def release(self, lease_id: str) -> None:
        """Give back all that a lease holds, and note when. A second time changes nothing.

        Raises `ClaimConflict` if the database could not be written for all the others, each time.
        """
        for attempt in range(self._attempts):
            try:
                self._give_back(lease_id)
            except db_exception.DBError as error:
                _raise_unless_overtaken(error)
            else:
                return
            _pause(attempt)
        raise exceptions.ClaimConflict(attempts=self._attempts)

    def _propose(
        self, session: Session, request: Request, policy: Policy, overtaken: bool = False
    ) -> Placement | Refusal:
        changed = self._inventory.refresh(session)
        if overtaken and not changed:  # somebody was faster, but the summary hides it
            self._inventory.reload(session)
        answer = self._inventory.pool.propose(request, policy)
        if isinstance(answer, Placement) and (
            request.locality == ANY or self._inventory.confirms_host(session, answer)
        ):
            return answer
        self._inventory.reload(session)
        return self._inventory.pool.propose(request, policy)

    def _try(
        self,
        lease: Lease,
        request: Request,
        policy: Policy,
        addresses: Sequence[Address],
        quota: limits.Amounts,
        watch: timeutils.StopWatch,
        overtaken: bool,
    ) -> None:
        with self._database.write() as session:
            if limits.limited(quota):
                held.hold(session, lease.project_id)
            if overtaken:
                session.execute(TURNSTILE)
            answer = self._propose(session, request, policy, overtaken)
            if isinstance(answer, Refusal):
                refused = exceptions.NeverFits if answer.impossible else exceptions.NoCapacity
                raise refused(reason=answer.reason, details=answer.to_dict())
            if limits.limited(quota):
                limits.check(quota, held.usage(session, lease.project_id), asked(answer))
            generation = self._inventory.newest + 1
            claimed = []
            for uuid, size in answer.memory_by_gpu().items():
                before = self._inventory.pool.get(uuid)
                after = before.claim(size, exclusive=request.exclusive, generation=generation)
                _swap(session, before, after)
                claimed.append(after)
            _fill(lease, answer, policy, addresses)
            lease.timings = {**(lease.timings or {}), timings.CLAIM: watch.elapsed()}
            session.add(lease)
            session.flush()
            if request.exclusive:  # only now is there a lease that the GPUs can name
                _hold(session, [gpu.uuid for gpu in claimed], lease.id)
        for gpu in claimed:
            self._inventory.put(gpu)

    def _give_back(self, lease_id: str) -> None:
        with self._database.read() as session:
            newest = session.scalar(select(func.max(Gpu.generation))) or 0
        with self._database.write() as session:
            lease = session.execute(
                select(Lease.released_at).where(Lease.id == lease_id).with_for_update()
            ).one_or_none()
            if lease is None:
                return
            shares = session.execute(
                select(Claim.position, Claim.gpu_uuid, Claim.memory_mb)
                .where(Claim.lease_id == lease_id)
                .order_by(Claim.position)
            ).all()
            sizes: Counter[str] = Counter()
            for share in shares:
                sizes[share.gpu_uuid] += share.memory_mb
            for uuid, size in sorted(sizes.items()):
                session.execute(GIVE_BACK, {"this": uuid, "size": size, "next": newest + 1})
            for share in shares:
                # One by one: deleting a range would lock the gaps around it, where others insert.
                session.execute(DELETE_CLAIM, {"lease": lease_id, "this": share.position})
            if lease.released_at is None:
                session.execute(
                    update(LEASES)
                    .where(LEASES.c.id == lease_id)
                    .values(released_at=timeutils.utcnow())
                )


def asked(placement: Placement) -> limits.Amounts:
    """How much a lease with these shares adds to what its project holds."""
    return limits.lease([share.memory_mb for share in placement.shares])


class _OvertakenError(Exception):
    """Somebody changed what the choice was based on."""


def _raise_unless_overtaken(error: Exception) -> None:
    """Raise *error* again, unless it only says that others were faster or are in the way."""
    cause = getattr(error, "inner_exception", None)
    if not (
        isinstance(error, _OvertakenError | held.OvertakenError | db_exception.DBDeadlock)
        or getattr(getattr(cause, "orig", None), "sqlstate", None) == SERIALIZATION_FAILURE
        or "database is locked" in str(cause)
    ):
        raise error


def _pause(attempt: int) -> None:
    """Wait a little, longer each time, and never as long as the others do."""
    time.sleep(JITTER.uniform(0, min(0.001 * 2**attempt, LONGEST_PAUSE)))


def _fill(lease: Lease, placement: Placement, policy: Policy, addresses: Sequence[Address]) -> None:
    lease.status = Status.CLAIMED
    lease.policy = policy.name
    lease.wanted_host = placement.host
    lease.avoided_hosts = list(placement.avoid)
    lease.claims = [
        Claim(
            position=position,
            gpu_uuid=share.gpu_uuid,
            memory_mb=share.memory_mb,
            masked_ip=address.ip,
            masked_port=address.port,
        )
        for position, (share, address) in enumerate(zip(placement.shares, addresses, strict=True))
    ]
    detail = ", ".join(f"{share.memory_mb} MiB of {share.gpu_uuid}" for share in placement.shares)
    lease.events = [LeaseEvent(event="claim", status=Status.CLAIMED, detail=detail)]


def _swap(session: Session, before: state.Gpu, after: state.Gpu) -> None:
    """Write *after* if the GPU is still as it was *before*."""
    swapped = session.execute(
        SWAP,
        {
            "this": before.uuid,
            "known": before.generation,
            "used": after.used_mb,
            "next": after.generation,
        },
    )
    if swapped.rowcount != 1:
        raise _OvertakenError


def _hold(session: Session, uuids: Sequence[str], lease_id: str) -> None:
    session.execute(update(GPUS).where(GPUS.c.uuid.in_(uuids)).values(exclusive_lease_id=lease_id))
