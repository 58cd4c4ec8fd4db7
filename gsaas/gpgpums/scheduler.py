# SPDX-License-Identifier: Apache-2.0
"""The scheduler of a process: it proposes placements from a copy of the database's GPUs that it keeps up to date.

One lock guards the pool. It is acquired for as long as a claim chooses and writes, so claims of one process never
overtake each other; claims of other processes are noticed by the generations of the GPUs.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Sequence

from sqlalchemy import Connection

from gsaas.db.database import Database
from gsaas.gpgpums.indexed_gpus import Mix
from gsaas.gpgpums.policies.base import Policy
from gsaas.gpgpums.policy_selection import PolicySelection
from gsaas.gpgpums.pool_cache import PoolCache
from gsaas.gpgpums.queue_scheduler import QueueScheduler
from gsaas.gpgpums.recent_requests import RecentRequests
from gsaas.limits.base import Limits
from gsaas.objects.gpu import Gpu
from gsaas.objects.placement import Placement, Refusal
from gsaas.objects.request import ANY, Request


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
        self._returned: deque[tuple[Gpu, Gpu]] = deque()
        """GPUs before and after returns that are committed, and not in the cache yet."""

    @property
    def mix(self) -> Mix:
        """Return the recent requests of this process."""
        return self._recent.mix

    def record_request(self, request: Request) -> None:
        """Remember *request* for the policies that look at recent requests."""
        with self.lock:
            self._recent.add(request)

    def check(
        self, request: Request, policy_name: str | None, priority: int
    ) -> Placement | Refusal:
        """Return where *request* would go now, or why nowhere. Raises `UnknownPolicy`, `PolicyNotAllowed`."""
        with self.lock, self._database.reading() as connection:
            self.refresh(connection)
            policy = self.policy(connection, policy_name)
            return self.propose(connection, request, policy, priority)

    def refresh(self, connection: Connection, overtaken: bool = False) -> None:
        """Bring the pool up to date; call it with `lock` acquired.

        *overtaken* says that another transaction was faster just now: if the summary of the GPUs shows no change
        nevertheless, all of them are read.
        """
        self._take_over_returns()
        changed = self._cache.refresh(connection)
        if overtaken and not changed:
            self._cache.reload(connection)

    def reload(self, connection: Connection) -> None:
        """Read the whole pool again; call it with `lock` acquired."""
        self._cache.reload(connection)

    def propose(
        self, connection: Connection, request: Request, policy: Policy, priority: int = 0
    ) -> Placement | Refusal:
        """Return where *request* would go, or why nowhere; call it with `lock` acquired, after `refresh`.

        A refusal is based on a pool that was read anew. A request may not overtake leases in the queue of the same
        or a higher priority.
        """
        answer = self._cache.pool.propose(request, policy)
        if isinstance(answer, Refusal) or not self.is_confirmed(connection, request, answer):
            self._cache.reload(connection)
            answer = self._cache.pool.propose(request, policy)
        top = self._cache.top_priority
        if isinstance(answer, Placement) and top is not None and top >= priority:
            return self.queue.place_new(connection, request, policy, priority)
        return answer

    def propose_anew(
        self, connection: Connection, request: Request, policy: Policy
    ) -> Placement | Refusal:
        """Read the whole pool again and return where *request* would go; call it with `lock` acquired.

        Unlike `propose`, it ignores the leases in the queue.
        """
        self._cache.reload(connection)
        return self._cache.pool.propose(request, policy)

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
        self._recent.show(policy, self._cache.pool)
        return policy

    def known(self, uuid: str) -> Gpu | None:
        """Return a GPU as the pool has it; None if it is not known."""
        return self._cache.pool.get(uuid)

    def put(self, gpus: Iterable[Gpu]) -> None:
        """Take over GPUs as a claim has written them; call it with `lock` acquired, once that is committed."""
        for gpu in gpus:
            self._cache.put(gpu)

    def put_returned(self, changed: Sequence[tuple[Gpu, Gpu]]) -> None:
        """Take over GPUs, each before and after a return that is committed; call it *without* `lock`.

        If a claim has the lock, the GPUs are put into the pool by the next `refresh`.
        """
        self._returned.extend(changed)
        if self.lock.acquire(blocking=False):
            try:
                self._take_over_returns()
            finally:
                self.lock.release()

    def _take_over_returns(self) -> None:
        while self._returned:
            before, after = self._returned.popleft()
            # The same object: nothing has updated the GPU since the return was calculated from it.
            if self._cache.pool.get(after.uuid) is before:
                self._cache.put(after)
