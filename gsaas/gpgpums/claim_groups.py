# SPDX-License-Identifier: Apache-2.0
"""Claims of several threads in one transaction (`gsaas.gpgpums.group_commit`).

1. The claims of a group choose one after the other, each from the pool as those before it leave it, and are written
   together. What the pool shows of them is undone if the transaction fails.
2. All GPUs of the group are locked in one order before anything is written. A claim whose GPU another transaction has
   changed leaves the group, and so does one that has chosen after it and shares a GPU with it.
3. A claim is refused for lack of GPUs or for its quota only if all that were counted before it are written.
4. A claim that leaves its group has been overtaken: it is tried again as `gsaas.gpgpums.claims` describes, alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from oslo_db import exception as db_exception
from oslo_utils import timeutils
from sqlalchemy import Connection

from gsaas import exceptions
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
        try:
            with self._database.writing(async_commit=True) as connection:
                planned = self._plan(connection, claims, before)
                outcomes = self._write_planned(connection, planned)
                written = [one for one in outcomes if isinstance(one, Allocation)]
                number = change_number(connection) if written else None
                stored = leases.located_all(connection, [one.lease for one in written])
        except BaseException:
            self._scheduler.assume(before.values())
            raise
        after = {uuid: gpu for one in written for uuid, gpu in one.after.items()}
        self._scheduler.assume(gpu for uuid, gpu in before.items() if uuid not in after)
        if number is not None:
            self._scheduler.put(after.values(), number)
        found = {lease.id: lease for lease in stored}
        return [found[one.lease.id] if isinstance(one, Allocation) else one for one in outcomes]

    def _plan(
        self, connection: Connection, claims: Sequence[NewClaim], before: dict[str, Gpu]
    ) -> list[Allocation | Exception]:
        """Choose for *claims* one after the other; return what each is to get, or why it gets nothing.

        The pool shows what was chosen; *before* gets the GPUs as they were, by UUID.
        """
        projects = {one.lease.project_id for one in claims if limits.limited(one.quota)}
        for project_id in sorted(projects):
            limit_rows.lock_project(connection, project_id)
        self._scheduler.refresh(connection)
        used = {project_id: limit_rows.usage(connection, project_id) for project_id in projects}
        planned: list[Allocation | Exception] = []
        beside: list[Lease] = []
        for claim in claims:
            try:
                one = self._plan_one(connection, claim, used, beside)
            except (db_exception.DBError, OutdatedPoolError):
                raise  # of no claim alone
            except Exception as error:  # noqa: BLE001 - it is raised to its caller
                planned.append(error)
                continue
            for uuid, gpu in one.before.items():
                before.setdefault(uuid, gpu)
            self._scheduler.assume(one.after.values())
            beside.append(one.lease)
            planned.append(one)
        return planned

    def _plan_one(
        self,
        connection: Connection,
        claim: NewClaim,
        used: dict[str, dict[str, int]],
        beside: Sequence[Lease],
    ) -> Allocation:
        """Choose for one claim; *used* is how much of each limited thing each project has, with those before it."""
        lease, request = claim.lease, claim.request
        policy = self._scheduler.policy(connection, claim.policy_name)
        placement = placed(self._scheduler.propose(connection, request, policy, lease.priority))
        asked = amounts_of(placement)
        if limits.limited(claim.quota):
            limits.check(claim.quota, used[lease.project_id], asked)
        planned = self._allocator.plan(
            connection, lease, request, placement, policy, claim.watch, beside
        )
        if limits.limited(claim.quota):
            used[lease.project_id] = _sum(used[lease.project_id], asked)
        return planned

    def _write_planned(
        self, connection: Connection, planned: Sequence[Allocation | Exception]
    ) -> list[Allocation | Exception]:
        """Write what was planned; return what is written, and why the others are not."""
        group = [one for one in planned if isinstance(one, Allocation)]
        written = iter(self._allocator.write_group(connection, group))
        outcomes = [next(written) if isinstance(one, Allocation) else one for one in planned]
        if any(isinstance(one, OvertakenError) for one in outcomes):
            # What was counted before a claim that was refused is not all written.
            return [
                one if isinstance(one, Allocation | OvertakenError) else OvertakenError()
                for one in outcomes
            ]
        return outcomes


def _sum(used: Mapping[str, int], asked: Mapping[str, int]) -> dict[str, int]:
    return {name: amount + asked[name] for name, amount in used.items()}
