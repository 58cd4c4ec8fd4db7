# SPDX-License-Identifier: Apache-2.0
"""Claims of several threads in one transaction (`gsaas.gpgpums.group_commit`).

1. The claims of a group choose one after the other, each from the pool as those before it leave it, and are written
   together. What the pool shows of them is undone if the transaction fails.
2. All their GPUs are locked before anything is written, except those that another transaction has locked or changed. A
   claim of such a GPU is lost, and so is one that has chosen after it and shares a GPU with it: they choose once more,
   other GPUs. Since no group waits for the lock of a GPU, it does not matter in which order they lock them.
3. A claim that is lost twice leaves its group: it has been overtaken, and is tried again as `gsaas.gpgpums.claims`
   describes, alone.
4. A claim is refused for lack of GPUs or for its quota only if all that were counted before it are written.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

from oslo_db import exception as db_exception
from oslo_utils import timeutils
from sqlalchemy import Connection

from gsaas import exceptions
from gsaas.db import claims as claim_rows
from gsaas.db import leases
from gsaas.db import limits as limit_rows
from gsaas.db.database import Database, OvertakenError
from gsaas.db.models import change_number
from gsaas.gpgpums.allocation import Allocation, Allocator
from gsaas.gpgpums.group_commit import GroupCommit
from gsaas.gpgpums.pool_cache import OutdatedPoolError
from gsaas.gpgpums.queue_scheduler import amounts_of
from gsaas.gpgpums.scheduler import GpuScheduler
from gsaas.limits import base as limits
from gsaas.objects.gpu import Gpu
from gsaas.objects.lease import Lease
from gsaas.objects.placement import Placement, Refusal
from gsaas.objects.request import Request


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
    """Writes claims as groups. *write_alone* writes one that no other thread's claim is there for."""

    def __init__(
        self,
        database: Database,
        scheduler: GpuScheduler,
        allocator: Allocator,
        write_alone: Callable[[NewClaim], Lease],
    ) -> None:
        self._database = database
        self._scheduler = scheduler
        self._allocator = allocator
        self._write_alone = write_alone
        self._group = GroupCommit[NewClaim, Lease](self._write)

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
        before: dict[str, Gpu] = {}
        ports: dict[str, int] = {}
        try:
            with self._database.writing(async_commit=True) as connection:
                outcomes = self._choose(connection, claims, before, ports)
                written = [one for one in outcomes if isinstance(one, Allocation)]
                number = None
                stored: list[Lease] = []
                if written:
                    self._allocator.write_group(connection, written)
                    number = change_number(connection)
                    places = {
                        uuid: (gpu.host, ports[uuid])
                        for one in written
                        for uuid, gpu in one.after.items()
                    }
                    stored = leases.locate(connection, [one.lease for one in written], places)
        except BaseException:
            self._show(before, [])
            raise
        if number is not None:
            self._scheduler.put(self._show(before, outcomes), number)
        found = {lease.id: lease for lease in stored}
        return [found[one.lease.id] if isinstance(one, Allocation) else one for one in outcomes]

    def _choose(
        self,
        connection: Connection,
        claims: Sequence[NewClaim],
        before: dict[str, Gpu],
        ports: dict[str, int],
    ) -> list[Allocation | Exception]:
        """Return what each of *claims* is to get, with its GPUs locked, or why it gets nothing.

        The pool shows what was chosen. By UUID, *before* gets the GPUs as they were, and *ports* the ports of the
        daemons of those that are locked.
        """
        used = self._used(connection, claims)
        outcomes: list[Allocation | Exception] = []
        for claim in claims:
            outcomes.append(self._plan(connection, claim, used, outcomes, before))
        ports.update(claim_rows.lock_unchanged(connection, before))
        changed = before.keys() - ports
        lost = _lost(outcomes, changed)
        for place in lost:
            _count(used, outcomes[place], -1)
            outcomes[place] = OvertakenError()
        self._show(before, outcomes)
        for place in lost:
            one = self._plan(connection, claims[place], used, outcomes, before, changed)
            if isinstance(one, Allocation) and not self._lock(connection, one, outcomes, ports):
                _count(used, one, -1)
                one = OvertakenError(min(one.before))
                self._show(before, outcomes)
            outcomes[place] = one
        if any(isinstance(one, OvertakenError) for one in outcomes):
            # What was counted before a claim that was refused is not all written.
            return [one if isinstance(one, Allocation) else _overtaken(one) for one in outcomes]
        return outcomes

    def _used(self, connection: Connection, claims: Sequence[NewClaim]) -> dict[str, Counter[str]]:
        """Lock the projects that have a quota, and bring the pool up to date; return what these projects use."""
        projects = {one.lease.project_id for one in claims if limits.limited(one.quota)}
        for project_id in sorted(projects):
            limit_rows.lock_project(connection, project_id)
        self._scheduler.refresh(connection)
        return {
            project_id: Counter(limit_rows.usage(connection, project_id)) for project_id in projects
        }

    def _plan(
        self,
        connection: Connection,
        claim: NewClaim,
        used: Mapping[str, Counter[str]],
        outcomes: Sequence[Allocation | Exception],
        before: dict[str, Gpu],
        changed: Collection[str] = (),
    ) -> Allocation | Exception:
        """Choose GPUs for a claim, none of those that have *changed*; return what it is to get, or why nothing.

        *used* is what projects have with the allocations among *outcomes*, and the pool shows these.
        """
        beside = [one.lease for one in outcomes if isinstance(one, Allocation)]
        try:
            planned = self._planned(connection, claim, used, beside, changed)
        except (db_exception.DBError, OutdatedPoolError):
            raise  # the transaction can do nothing more, for any claim
        except Exception as error:  # noqa: BLE001 - it is raised to its caller
            return error
        for uuid, gpu in planned.before.items():
            before.setdefault(uuid, gpu)
        self._scheduler.assume(planned.after.values())
        _count(used, planned, 1)
        return planned

    def _planned(
        self,
        connection: Connection,
        claim: NewClaim,
        used: Mapping[str, Counter[str]],
        beside: Sequence[Lease],
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
            limits.check(claim.quota, used[lease.project_id], amounts_of(placement))
        return self._allocator.plan(
            connection, lease, request, placement, policy, claim.watch, beside
        )

    def _lock(
        self,
        connection: Connection,
        planned: Allocation,
        outcomes: Sequence[Allocation | Exception],
        ports: dict[str, int],
    ) -> bool:
        """Lock the GPUs of *planned* that no allocation among *outcomes* has; return whether all are as planned.

        *ports* gets those of their daemons.
        """
        own = dict(planned.before)
        for one in outcomes:
            if isinstance(one, Allocation):
                own = {uuid: gpu for uuid, gpu in own.items() if uuid not in one.after}
        if own:
            ports.update(claim_rows.lock_unchanged(connection, own))
        return own.keys() <= ports.keys()

    def _show(
        self, before: Mapping[str, Gpu], outcomes: Sequence[Allocation | Exception]
    ) -> list[Gpu]:
        """Have the pool show the allocations among *outcomes*, and no others; return the GPUs that these have."""
        after = {
            uuid: gpu
            for one in outcomes
            if isinstance(one, Allocation)
            for uuid, gpu in one.after.items()
        }
        self._scheduler.assume({**before, **after}.values())
        return list(after.values())


def _lost(outcomes: Sequence[Allocation | Exception], changed: Collection[str]) -> list[int]:
    """Return the places of the allocations with GPUs that have *changed*, or that one before them has lost."""
    gone, places = set(changed), []
    for place, one in enumerate(outcomes):
        if isinstance(one, Allocation) and gone & one.after.keys():
            gone |= one.after.keys()
            places.append(place)
    return places


def _count(used: Mapping[str, Counter[str]], planned: Allocation | Exception, sign: int) -> None:
    """Add what an allocation uses to its project's usage, if that is known; take it away with a *sign* of -1."""
    if isinstance(planned, Allocation) and planned.lease.project_id in used:
        own = limits.lease([claim.memory_mb for claim in planned.lease.claims])
        for name, amount in own.items():
            used[planned.lease.project_id][name] += sign * amount


def _overtaken(error: Exception) -> OvertakenError:
    return error if isinstance(error, OvertakenError) else OvertakenError()
