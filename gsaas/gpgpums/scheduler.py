# SPDX-License-Identifier: Apache-2.0
"""The scheduler of a process: it proposes placements from a copy of the database's GPUs that it keeps up to date.

One lock guards the pool. It is acquired for as long as a claim chooses and writes, so claims of one process never
overtake each other; claims of other processes are noticed by the generations of the GPUs. All GPUs are read without the
lock (`with_pool`), because that takes long.
"""

from __future__ import annotations

import datetime
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TypeVar

from sqlalchemy import Connection

from gsaas.db.database import Database
from gsaas.gpgpums import reservations
from gsaas.gpgpums.indexed_gpus import Mix
from gsaas.gpgpums.policies.base import Policy
from gsaas.gpgpums.policy_selection import PolicySelection
from gsaas.gpgpums.pool_cache import OutdatedPoolError, PoolCache
from gsaas.gpgpums.queue_scheduler import QueueScheduler
from gsaas.gpgpums.recent_requests import RecentRequests
from gsaas.limits.base import Limits
from gsaas.objects.gpu import Gpu
from gsaas.objects.placement import Placement, Refusal, Share
from gsaas.objects.request import ANY, Request
from gsaas.objects.reservation import Reservation, ReservedShare

Done = TypeVar("Done")


class GpuScheduler:
    """Proposes placements by the policies of *policies* from the pool of *cache*.

    Policies may look at the last *request_mix* requests. *quotas* are those of leases in the queue; with *backfill* a
    lease may be served before others; *reserve_for* is for how many seconds a lease keeps later ones from the GPUs
    that it waits for; *client_timeout* is how long a client that announced to poll may be
    silent, in seconds. Methods that say so are called with `lock` acquired.
    """

    def __init__(
        self,
        database: Database,
        cache: PoolCache,
        policies: PolicySelection,
        quotas: Limits,
        *,
        request_mix: int,
        backfill: bool,
        reserve_for: float,
        client_timeout: float,
    ) -> None:
        self.lock = threading.Lock()
        self.policies = policies
        self.queue = QueueScheduler(
            cache,
            self.policy,
            quotas,
            backfill=backfill,
            reserve_for=reserve_for,
            client_timeout=client_timeout,
        )
        self._database = database
        self._cache = cache
        self._recent = RecentRequests(request_mix)
        self._recording = threading.Lock()
        """Guards the recent requests: a request is recorded while claims before it are written."""
        self._reading = threading.Lock()
        self._returned: deque[tuple[Sequence[tuple[Gpu, Gpu]], int | None]] = deque()
        """GPUs before and after returns that are committed, and not in the cache yet; and their change numbers."""

    @property
    def mix(self) -> Mix:
        """Return the recent requests of this process."""
        with self._recording:
            return self._recent.mix

    def record_request(self, request: Request) -> None:
        """Remember *request* for the policies that look at recent requests."""
        with self._recording:
            self._recent.add(request)

    def check(
        self, request: Request, policy_name: str | None, priority: int
    ) -> Placement | Refusal:
        """Return where *request* would go now, or why nowhere. Raises `UnknownPolicy`, `PolicyNotAllowed`."""

        def check() -> Placement | Refusal:
            with self._database.reading() as connection:
                self.refresh(connection)
                policy = self.policy(connection, policy_name)
                return self.propose(connection, request, policy, priority)

        return self.with_pool(check)

    def with_pool(self, act: Callable[[], Done]) -> Done:
        """Return what *act* returns, called with `lock` acquired, after all GPUs were read if that is needed.

        *act* is called again if it finds that the GPUs have to be read again; its transaction is rolled back before.
        """
        while True:
            if self._cache.is_outdated:
                self._read_all()
            with self.lock:
                try:
                    return act()
                except OutdatedPoolError:
                    self._cache.is_outdated = True

    def refresh(self, connection: Connection) -> None:
        """Bring the pool up to date; call it in `with_pool`."""
        self._take_over_returns()
        self._cache.refresh(connection)

    def reread(self, connection: Connection, uuids: Iterable[str]) -> None:
        """Read these GPUs again, whether or not they have changed; call it in `with_pool`, after `refresh`."""
        if uuids := list(uuids):
            self._cache.reread(connection, uuids)

    def propose(
        self, connection: Connection, request: Request, policy: Policy, priority: int = 0
    ) -> Placement | Refusal:
        """Return where *request* would go, or why nowhere; call it in `with_pool`, after `refresh`.

        A refusal is based on what `refresh` has read in the same transaction, and on a pool that was read as a whole
        lately. A request may not overtake leases in the queue of the same or a higher priority.
        """
        answer = self.propose_ignoring_queue(connection, request, policy)
        top = self._cache.top_priority
        if isinstance(answer, Placement) and top is not None and top >= priority:
            return self.queue.place_new(connection, request, policy, priority)
        return answer

    def propose_ignoring_queue(
        self, connection: Connection, request: Request, policy: Policy
    ) -> Placement | Refusal:
        """Return what `propose` returns if no lease is in the queue."""
        answer = self._cache.pool.propose(request, policy)
        if isinstance(answer, Placement) and not self.is_confirmed(connection, request, answer):
            self._cache.read_compute_hosts(connection)
            answer = self._cache.pool.propose(request, policy)
        if isinstance(answer, Refusal) and not self._cache.may_refuse:
            raise OutdatedPoolError
        return answer

    def propose_another(
        self,
        connection: Connection,
        request: Request,
        policy: Policy,
        priority: int,
        without: Collection[str],
    ) -> Placement | None:
        """Return where *request* would go by the pool as it is, without some GPUs; None if that cannot be said.

        For a claim that has found these GPUs changed: it tries the next ones before it reads again.
        """
        top = self._cache.top_priority
        if top is not None and top >= priority:
            return None
        with self._cache.pool.without(without):
            placement = self._cache.pool.place(request, policy)
        if placement is None or not self.is_confirmed(connection, request, placement):
            return None
        return placement

    def begin_elsewhere(self, uuids: Collection[str]) -> None:
        """Have claims begin at others of the GPUs that are equal to these, which another transaction has changed first.

        Call it in `with_pool`, while the pool has them as they were before.
        """
        self._cache.pool.begin_elsewhere(uuids)

    def propose_within(
        self, reservation: Reservation, request: Request, policy: Policy
    ) -> Placement | Refusal:
        """Return where *request* would go within a reservation; call it in `with_pool`, after `refresh`."""
        compute_hosts = self._cache.pool.compute_hosts
        return reservations.propose_within(
            reservation, self.gpus_of(reservation), compute_hosts, request, policy
        )

    def gpus_of(self, reservation: Reservation) -> dict[str, Gpu]:
        """Return the GPUs of the shares of a reservation as the pool has them, by UUID; unknown ones are left out."""
        found = {share.gpu_uuid: self.known(share.gpu_uuid) for share in reservation.shares}
        return {uuid: gpu for uuid, gpu in found.items() if gpu is not None}

    def admit(
        self,
        others: Sequence[Reservation],
        request: Request,
        policy: Policy,
        start: datetime.datetime,
        end: datetime.datetime,
    ) -> Placement | Refusal:
        """Return where a reservation would be placed beside *others*; call it in `with_pool`, after `refresh`."""
        pool = self._cache.pool
        return reservations.admit(pool, pool.compute_hosts, others, request, policy, start, end)

    def moves(
        self,
        reservation: Reservation,
        others: Sequence[Reservation],
        policy: Policy,
        now: datetime.datetime,
        *,
        keeps: bool,
    ) -> list[tuple[ReservedShare, Share]]:
        """Return which shares of a reservation move where: `reservations.moves`; call it as `admit`."""
        pool = self._cache.pool
        return reservations.moves(
            reservation, pool, pool.compute_hosts, others, policy, now, keeps=keeps
        )

    def read_compute_hosts(self, connection: Connection) -> None:
        """Read again which hosts can run VMs; call it in `with_pool`."""
        self._cache.read_compute_hosts(connection)

    def is_confirmed(self, connection: Connection, request: Request, placement: Placement) -> bool:
        """Return whether the compute host that *placement* needs is still there."""
        if request.locality == ANY or request.consumer_host is not None:
            return True
        return self._cache.confirms_host(connection, placement)

    def policy(self, connection: Connection, name: str | None) -> Policy:
        """Return the policy for a request that names *name*, after an update of the readings or requests that it uses.

        Call it with `lock` acquired, after `refresh`. Raises `UnknownPolicy`, `PolicyNotAllowed`.
        """
        policy = self.policies.of(name, self._cache.default_policy)
        if policy.looks_at_utilisation:
            self._cache.read_utilisation(connection)
        with self._recording:
            self._recent.show(policy, self._cache.pool)
        return policy

    def known(self, uuid: str) -> Gpu | None:
        """Return a GPU as the pool has it; None if it is not known."""
        return self._cache.pool.get(uuid)

    def put(self, gpus: Iterable[Gpu], number: int) -> None:
        """Take over all GPUs that a claim has written; call it with `lock` acquired, once that is committed.

        *number* is the claim's change number.
        """
        for gpu in gpus:
            self._cache.put(gpu)
        self._cache.put_own(number)

    def assume(self, gpus: Iterable[Gpu]) -> None:
        """Have the pool show *gpus* so before that is committed; call it in `with_pool`.

        While it has `lock`, the caller puts them, or assumes again what was before.
        """
        for gpu in gpus:
            self._cache.put(gpu)

    def put_returned(self, changed: Sequence[tuple[Gpu, Gpu]], number: int | None) -> None:
        """Take over GPUs, each before and after a return that is committed; call it *without* `lock`.

        *number* is the return's change number, None if it has changed others, too. If a claim has the lock, the next
        `refresh` puts the GPUs into the pool.
        """
        self._returned.append((changed, number))
        if self.lock.acquire(blocking=False):
            try:
                self._take_over_returns()
            finally:
                self.lock.release()

    def _take_over_returns(self) -> None:
        while self._returned:
            changed, number = self._returned.popleft()
            complete = True
            for before, after in changed:
                known = self._cache.pool.get(after.uuid)
                # The same object: nothing has updated the GPU since the return was calculated from it.
                if known is before:
                    self._cache.put(after)
                elif known is None or known.generation < after.generation:
                    complete = False
            if complete and number is not None:
                self._cache.put_own(number)

    def _read_all(self) -> None:
        """Read all GPUs, without `lock`; threads that need them meanwhile wait."""
        with self._reading:
            if not self._cache.is_outdated:
                return
            with self.lock:
                self._cache.begin_reading()
            with self._database.reading() as connection:
                snapshot = self._cache.read(connection)
            with self.lock:
                self._cache.take_over(snapshot)
