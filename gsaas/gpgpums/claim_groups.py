# SPDX-License-Identifier: Apache-2.0
"""Claims of several threads in one transaction (`gsaas.gpgpums.group_commit`).

1. The claims of a group choose one after the other, each from the pool as those before it leave it, and are written
   together, in the order in which they chose. What the pool shows of them is undone if the transaction fails.
2. All their GPUs are locked before anything is written, except those that another transaction has locked or changed. A
   claim of such a GPU is lost, and so is one that has chosen after it and shares a GPU with it: they choose again,
   after the others, and other GPUs. Since no group waits for the lock of a GPU, it does not matter in which order they
   lock them.
3. A claim that is lost `CHOICES` times leaves its group: it has been overtaken, and is tried again as
   `gsaas.gpgpums.claims` describes, alone.
4. A claim is refused for lack of GPUs or for its quota only if all that were counted before it are written, with the
   GPUs that they had then.
5. A claim whose request key belongs to another lease is refused with the error of the index that keeps the keys unique,
   before the index would refuse the whole group.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from oslo_db import exception as db_exception
from oslo_utils import timeutils
from sqlalchemy import Connection

from gsaas import exceptions
from gsaas.db import claims as claim_rows
from gsaas.db import leases, request_keys
from gsaas.db import limits as limit_rows
from gsaas.db.database import Database, OvertakenError
from gsaas.db.models import change_number
from gsaas.gpgpums.allocation import Allocation, Allocator
from gsaas.gpgpums.group_commit import GroupCommit, Turn
from gsaas.gpgpums.pool_cache import OutdatedPoolError
from gsaas.gpgpums.queue_scheduler import amounts_of
from gsaas.gpgpums.scheduler import GpuScheduler
from gsaas.limits import base as limits
from gsaas.objects.gpu import Gpu
from gsaas.objects.lease import Lease
from gsaas.objects.placement import Placement, Refusal
from gsaas.objects.request import Request

CHOICES = 4
"""How often a claim may choose within its group. Each choice after the first one costs a statement more."""


class NewClaim(NamedTuple):
    """What a thread asks for: the arguments of `gsaas.gpgpums.claims.Claims.claim`."""

    lease: Lease
    request: Request
    policy_name: str | None
    quota: limits.Amounts
    watch: timeutils.StopWatch
    """Started when the claim began."""


def placed(answer: Placement | Refusal) -> Placement:
    """Return *answer* if it is a placement; raises `NeverFits` or `NoCapacity`, as it was refused."""
    if isinstance(answer, Placement):
        return answer
    refused = exceptions.NeverFits if answer.impossible else exceptions.NoCapacity
    raise refused(reason=answer.reason, details=answer.to_dict())


class ClaimGroups:
    """Writes claims as groups. *write_alone* writes one that no other thread's claim is there for.

    Groups of this process with the same *turn* wait for each other, but not for long.
    """

    def __init__(
        self,
        database: Database,
        scheduler: GpuScheduler,
        allocator: Allocator,
        write_alone: Callable[[NewClaim], Lease],
        turn: Turn,
    ) -> None:
        self._database = database
        self._scheduler = scheduler
        self._allocator = allocator
        self._write_alone = write_alone
        self._group = GroupCommit[NewClaim, Lease](self._write, turn=turn)

    def claim(self, claim: NewClaim) -> Lease:
        """Write *claim*, together with those that wait; return its lease.

        Raises what `Claims.claim` raises, and `OvertakenError` for a claim that is to be tried again.
        """
        return self._group.together(claim)

    def _write(self, claims: Sequence[NewClaim]) -> Sequence[Lease | Exception]:
        if len(claims) == 1:
            return [self._write_alone(claims[0])]
        return self._scheduler.with_pool(lambda: self._try(claims))

    def _try(self, claims: Sequence[NewClaim]) -> list[Lease | Exception]:
        """Write *claims* in one transaction; return the lease of each, or why it has none. Call it in `with_pool`."""
        group = _Group()
        try:
            with self._database.writing() as connection:
                # It may have to wait for the number: it does so before it has locked anything.
                number = change_number(connection)
                self._choose(connection, claims, group)
                stored: dict[str, Lease] = {}
                if allocations := group.allocations:
                    self._allocator.write_group(connection, allocations)
                    new = [one.lease for one in allocations]
                    located = leases.locate(connection, new, group.places())
                    stored = {lease.id: lease for lease in located}
        except BaseException as error:
            self._scheduler.assume(group.before.values())
            if isinstance(error, db_exception.DBError):
                # Perhaps another transaction has changed one of these first: nothing says which.
                self._scheduler.begin_elsewhere(group.before)
            raise
        self._scheduler.put(group.after().values(), number)
        outcomes = [group.outcomes[place] for place in range(len(claims))]
        return [stored[one.lease.id] if isinstance(one, Allocation) else one for one in outcomes]

    def _choose(self, connection: Connection, claims: Sequence[NewClaim], group: _Group) -> None:
        """Say in *group* what each of *claims* is to get, with its GPUs locked, or why it gets nothing.

        The pool shows what was chosen.
        """
        group.used = self._prepare(connection, claims)
        group.outcomes.update(_with_used_keys(connection, claims))
        places = [place for place in range(len(claims)) if place not in group.outcomes]
        changed = set[str]()
        for _ in range(CHOICES):
            for place in places:
                outcome = self._plan(connection, claims[place], group, changed)
                group.outcomes[place] = outcome
                if isinstance(outcome, Allocation):
                    self._scheduler.assume(outcome.after.values())
            unlocked = group.unlocked()
            if unlocked:
                group.ports.update(claim_rows.lock_unchanged(connection, unlocked))
            overtaken = unlocked.keys() - group.ports.keys()
            changed |= overtaken
            places = group.take_back(changed)
            self._scheduler.assume({**group.before, **group.after()}.values())
            self._scheduler.begin_elsewhere(overtaken)
            if not places:
                break
        for place in places:
            group.outcomes[place] = OvertakenError()
        if changed or any(isinstance(one, OvertakenError) for one in group.outcomes.values()):
            # What was counted before a claim that was refused is not written, or not where it was counted.
            group.withdraw_refusals()

    def _prepare(
        self, connection: Connection, claims: Sequence[NewClaim]
    ) -> dict[str, Counter[str]]:
        """Lock the projects that have a quota, and bring the pool up to date; return what these projects use."""
        projects = {one.lease.project_id for one in claims if limits.limited(one.quota)}
        for project_id in sorted(projects):
            limit_rows.lock_project(connection, project_id)
        self._scheduler.refresh(connection)
        for claim in claims:
            # A policy may have the pool read how busy GPUs are: now, because nothing is to be undone in it yet.
            with suppress(exceptions.GsaasError):
                self._scheduler.policy(connection, claim.policy_name)
        return {
            project_id: Counter(limit_rows.usage(connection, project_id)) for project_id in projects
        }

    def _plan(
        self,
        connection: Connection,
        claim: NewClaim,
        group: _Group,
        changed: Collection[str],
    ) -> Allocation | Exception:
        """Choose GPUs for a claim, none of those that have *changed*; return what it is to get, or why nothing.

        The pool shows what *group* has chosen so far.
        """
        try:
            planned = self._planned(connection, claim, group, changed)
        except (db_exception.DBError, OutdatedPoolError):
            raise  # the transaction can do nothing more, for any claim
        except Exception as error:  # noqa: BLE001 - it is raised to its caller
            return error
        for uuid, gpu in planned.before.items():
            group.before.setdefault(uuid, gpu)
        group.count(planned, 1)
        return planned

    def _planned(
        self,
        connection: Connection,
        claim: NewClaim,
        group: _Group,
        changed: Collection[str],
    ) -> Allocation:
        lease, request, priority = claim.lease, claim.request, claim.lease.priority
        policy = self._scheduler.policy(connection, claim.policy_name)
        if changed:
            another = self._scheduler.propose_another(
                connection, request, policy, priority, changed
            )
            if another is None:
                raise OvertakenError
            placement = another
        else:
            placement = placed(self._scheduler.propose(connection, request, policy, priority))
        if limits.limited(claim.quota):
            limits.check(claim.quota, group.used[lease.project_id], amounts_of(placement))
        beside = [one.lease for one in group.allocations]
        return self._allocator.plan(
            connection, lease, request, placement, policy, claim.watch, beside
        )


def _with_used_keys(connection: Connection, claims: Sequence[NewClaim]) -> dict[int, Exception]:
    """Return the errors of the claims whose key a lease or a claim before them has, by their place."""
    keys = {
        place: claim.lease.request_key
        for place, claim in enumerate(claims)
        if claim.lease.request_key is not None
    }
    stored = request_keys.used(connection, {*keys.values()})
    errors: dict[int, Exception] = {}
    before = set[str]()
    for place, key in keys.items():
        if key in stored:
            errors[place] = db_exception.DBDuplicateEntry()
        elif key in before:
            errors[place] = OvertakenError()  # once it is known what becomes of that one
        before.add(key)
    return errors


class _Group:
    """What the claims of a group are to get, as far as they have chosen."""

    def __init__(self) -> None:
        self.outcomes: dict[int, Allocation | Exception] = {}
        """By the place of the claim in its group, in the order in which they chose."""
        self.before: dict[str, Gpu] = {}
        """The GPUs as they were before the group, by UUID; also those that it does not get."""
        self.ports: dict[str, int] = {}
        """The TCP ports of the daemons of the GPUs that are locked, by UUID."""
        self.used: Mapping[str, Counter[str]] = {}
        """What projects with a quota use, the allocations included."""

    @property
    def allocations(self) -> list[Allocation]:
        """Return the allocations, each planned with the GPUs as those before it leave them."""
        return [one for one in self.outcomes.values() if isinstance(one, Allocation)]

    def after(self) -> dict[str, Gpu]:
        """Return the GPUs of the allocations as these leave them, by UUID."""
        return {uuid: gpu for one in self.allocations for uuid, gpu in one.after.items()}

    def places(self) -> dict[str, tuple[str, int]]:
        """Return the host and the daemon's port of each GPU of the allocations, by UUID."""
        return {uuid: (gpu.host, self.ports[uuid]) for uuid, gpu in self.after().items()}

    def unlocked(self) -> dict[str, Gpu]:
        """Return the GPUs of the allocations that are not locked, as they were before, by UUID."""
        return {uuid: self.before[uuid] for uuid in self.after() if uuid not in self.ports}

    def take_back(self, changed: Collection[str]) -> list[int]:
        """Take back the allocations of GPUs that have *changed*, and those that share a GPU with one before them.

        Returns the places of their claims.
        """
        gone, places = set(changed), []
        for place, one in self.outcomes.items():
            if isinstance(one, Allocation) and gone & one.after.keys():
                gone |= one.after.keys()
                self.count(one, -1)
                places.append(place)
        for place in places:
            del self.outcomes[place]
        return places

    def withdraw_refusals(self) -> None:
        """Have claims that were refused tried again."""
        for place, one in self.outcomes.items():
            if not isinstance(one, Allocation):
                self.outcomes[place] = OvertakenError()

    def count(self, planned: Allocation, sign: int) -> None:
        """Add what an allocation uses to its project's usage, if that is known; take it away with a *sign* of -1."""
        if planned.lease.project_id in self.used:
            own = limits.lease([claim.memory_mb for claim in planned.lease.claims])
            for name, amount in own.items():
                self.used[planned.lease.project_id][name] += sign * amount
