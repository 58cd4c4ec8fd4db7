# SPDX-License-Identifier: Apache-2.0
"""The pool of GPUs: decides where a request would go, or why it goes nowhere.

1. A policy proposes, the pool decides. The policy sees `Candidates` and yields GPUs, best first; the pool takes the
   first that fits and that meets the request's requirements, whatever else the policy yields.
2. All cGPUs of a request are placed, or none.
3. `propose` leaves the pool unchanged. cGPUs are placed one after the other; the policy sees each of them when it
   chooses the GPU for the next, and all of them are undone at the end. The caller writes a placement to the database,
   and then calls `put`.
4. A placement costs the logarithm of the number of GPUs, however many of them are in use; `gsaas.gpgpums.indexed_gpus`
   keeps an index for each order that is used. `local`, and all cGPUs on one host, look at each host at most once. A
   refusal may look at every GPU, to find its reason.

Pool order is (host, device index). Nothing here knows a database, a clock or a socket.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Container, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ClassVar, Protocol

from gsaas.gpgpums import explain
from gsaas.gpgpums.candidates import Candidates
from gsaas.gpgpums.indexed_gpus import IndexedGpus, Mix
from gsaas.objects.gpu import Gpu, WithheldReason
from gsaas.objects.placement import Placement, Refusal, Share
from gsaas.objects.request import ANY, LOCAL, REMOTE, SPREAD, Request

TENTATIVE = 2**62
"""Tentative claims get this generation or a larger one: larger than that of any stored claim, so that policies that
order GPUs by their last claim see them as the latest."""


class Ordering(Protocol):
    """The part of a policy that the pool uses; `gsaas.gpgpums.policies.base.Policy` describes the whole."""

    name: ClassVar[str]

    def order(self, candidates: Candidates, request: Request) -> Iterable[Gpu]:
        """Yield GPUs for the next cGPU of *request*, best first."""


@dataclass(frozen=True, slots=True)
class Totals:
    """The number of GPUs of a pool, and their memory in MiB."""

    gpus: int
    offered: int
    """GPUs that are not withheld."""
    memory_mb: int
    used_mb: int


class Pool(IndexedGpus):
    """The GPUs of a cloud, and the decision which of them a request gets. Not thread-safe."""

    def totals(self) -> Totals:
        """Count everything: O(n)."""
        gpus = self._gpus.values()
        return Totals(
            gpus=len(gpus),
            offered=sum(gpu.withheld is None for gpu in gpus),
            memory_mb=sum(gpu.memory_mb for gpu in gpus),
            used_mb=sum(gpu.used_mb for gpu in gpus),
        )

    @contextmanager
    def tentative(self) -> Iterator[Callable[[Iterable[Gpu]], None]]:
        """Yield a function that has the pool show known GPUs in another state until the block ends."""
        before: dict[str, Gpu] = {}

        def show(gpus: Iterable[Gpu]) -> None:
            for gpu in gpus:
                before.setdefault(gpu.uuid, self._gpus[gpu.uuid])
                self._replace(gpu)

        try:
            yield show
        finally:
            for gpu in before.values():
                self._replace(gpu)

    @contextmanager
    def without(self, uuids: Iterable[str]) -> Iterator[None]:
        """Let no request get these GPUs in the block."""
        with self.tentative() as show:
            known = filter(None, map(self.get, uuids))
            show([gpu.with_(withheld=WithheldReason.BARRED) for gpu in known])
            yield

    def propose(self, request: Request, policy: Ordering) -> Placement | Refusal:
        """Return where *policy* would place *request* now, or why nowhere. Changes nothing."""
        placement = self.place(request, policy)
        if placement is not None:
            return placement
        return explain.refuse(request, list(self), self._compute_hosts, policy.name)

    def place(self, request: Request, policy: Ordering) -> Placement | None:
        """Return what `propose` returns, but None for a refusal: its reason costs a look at every GPU."""
        if request.locality == LOCAL and request.consumer_host is not None:
            if request.host not in (None, request.consumer_host):
                return None
            on_consumer_host = request.with_(locality=ANY, host=request.consumer_host)
            return self.place(on_consumer_host, policy)
        if request.host is not None:
            subset = self.subset(self.on_host(request.host))
            return subset.place(request.with_(host=None, hosts=ANY), policy)
        self.number_slots()
        if request.locality == LOCAL or request.on_one_host:
            return self._place_on_one_host(request, policy)
        if request.locality == REMOTE:
            return self._place_remote(request, policy)
        return _placement(self._place(request, policy))

    def claimed(
        self, placement: Placement, *, exclusive: bool, newest: int, reserved: bool = False
    ) -> dict[str, Gpu]:
        """Return, by their UUIDs, the GPUs of *placement* as they are once a lease has claimed it. Changes nothing.

        With *reserved*, what it claims was kept for its reservation. *newest* is the largest generation of all GPUs.
        Raises `KeyError` for an unknown GPU, and `ValueError` for one with too little free memory.
        """
        # In the order of the cGPUs, so that `given` tells which GPU was claimed last.
        order = {share.gpu_uuid: place for place, share in enumerate(placement.shares, start=1)}
        after = {}
        for uuid, size in placement.memory_by_gpu().items():
            gpu, generation = self._gpus[uuid], newest + order[uuid]
            if reserved:
                gpu = gpu.reserve(-size, generation=generation)
            after[uuid] = gpu.claim(size, exclusive=exclusive, generation=generation)
        return after

    def _place_on_one_host(self, request: Request, policy: Ordering) -> Placement | None:
        """Place all cGPUs on one GPU host: the first one in the policy's order that has room for them.

        With locality local, it has to be a compute host. With locality remote, there has to be another compute host
        for the VM, or it has to be another host than the consumer's.
        """
        local, remote = request.locality == LOCAL, request.locality == REMOTE
        tried = set()
        if remote and request.consumer_host is not None:
            tried, remote = {request.consumer_host}, False
        candidates = Candidates(self, request, local=local)
        anywhere = request.with_(locality=ANY, hosts=ANY)
        for proposed in policy.order(candidates, request):
            gpu = self._accepted(proposed, candidates)
            if gpu is None or gpu.host in tried:
                continue
            tried.add(gpu.host)
            if remote and self._compute_hosts <= {gpu.host}:
                continue  # no other compute host is left for the VM
            gpus = self.on_host(gpu.host)
            if explain.capacity(gpus, request) < request.count:
                continue
            # Use a pool of this host's GPUs: this pool must not change while the policy iterates over it.
            shares = self.subset(gpus)._place(anywhere, policy)
            if shares is not None:
                host, avoid = (gpu.host, ()) if local else (None, (gpu.host,) if remote else ())
                return Placement(tuple(shares), host=host, avoid=avoid)
        return None

    def _place_remote(self, request: Request, policy: Ordering) -> Placement | None:
        """Place the cGPUs so that at least one compute host, the VM's, has none of the GPUs.

        If the policy's own choice uses every compute host, one of them is excluded: the last of the hosts in the order
        in which the policy chose them if that is possible, else the one before. There are at most as many attempts as
        cGPUs.
        """
        if request.consumer_host is not None:
            return _placement(self._place(request, policy, excluded=request.consumer_host))
        shares = self._place(request, policy)
        if shares is None or not self._compute_hosts:
            return None
        chosen_hosts = list(dict.fromkeys(self._gpus[share.gpu_uuid].host for share in shares))
        if not self._compute_hosts <= set(chosen_hosts):
            return _placement(shares, avoid=chosen_hosts)
        for excluded in reversed(chosen_hosts):
            if excluded not in self._compute_hosts:
                continue
            shares = self._place(request, policy, excluded=excluded)
            if shares is not None:
                hosts = {self._gpus[share.gpu_uuid].host for share in shares}
                return _placement(shares, avoid=hosts)
        return None

    def _place(
        self, request: Request, policy: Ordering, excluded: str | None = None
    ) -> list[Share] | None:
        """Choose a GPU for each cGPU, none of the *excluded* host; None if there is none for one of them."""
        excluded_hosts = set() if excluded is None else {excluded}
        candidates = Candidates(self, request, excluded=excluded_hosts)
        shares: list[Share] = []
        before: dict[str, Gpu] = {}
        try:
            while True:
                taken = before if request.one_daemon else ()
                gpu = self._choose(policy, candidates, request, taken)
                if gpu is None:
                    return None
                size = request.size_on(gpu)
                shares.append(Share(gpu.uuid, size))
                if len(shares) == request.count:
                    return shares  # no choice follows the last one, so it need not be claimed
                if request.hosts == SPREAD:
                    excluded_hosts.add(gpu.host)  # *candidates* refers to this same set
                same_lease = gpu.uuid in before
                before.setdefault(gpu.uuid, gpu)
                self._replace(
                    gpu.claim(
                        size,
                        exclusive=request.exclusive,
                        generation=TENTATIVE + len(shares),
                        same_lease=same_lease,
                    )
                )
        finally:
            for gpu in before.values():
                self._replace(gpu)

    def _choose(
        self, policy: Ordering, candidates: Candidates, request: Request, taken: Container[str]
    ) -> Gpu | None:
        """Return the first GPU of the policy's order that the request may have and is not *taken*; None without one."""
        for proposed in policy.order(candidates, request):
            gpu = self._accepted(proposed, candidates)
            if gpu is not None and gpu.uuid not in taken:
                return gpu
        return None

    def _accepted(self, proposed: Gpu, candidates: Candidates) -> Gpu | None:
        """Return the pool's own value of a GPU that a policy proposes; None if the request may not have it."""
        gpu = self._gpus.get(proposed.uuid)
        return gpu if gpu is not None and candidates.allows(gpu) else None


class RecentRequests:
    """The last *limit* requests. Not thread-safe."""

    def __init__(self, limit: int) -> None:
        self._last: deque[tuple[Request, int]] = deque()
        self._limit = limit
        self._counts: Counter[Request] = Counter()

    def add(self, request: Request) -> None:
        """Count *request*, once for each cGPU, and drop the oldest request if there are more than the limit."""
        kind = request.with_(
            count=1, locality=ANY, hosts=ANY, host=None, consumer_host=None, one_daemon=False
        )
        self._last.append((kind, request.count))
        self._counts[kind] += request.count
        if len(self._last) > self._limit:
            oldest, count = self._last.popleft()
            self._counts[oldest] -= count
            if not self._counts[oldest]:
                del self._counts[oldest]

    @property
    def mix(self) -> Mix:
        """Return requests for one cGPU, and how often each was made."""
        return tuple(self._counts.items())


def _placement(shares: list[Share] | None, avoid: Iterable[str] = ()) -> Placement | None:
    return None if shares is None else Placement(tuple(shares), avoid=tuple(sorted(avoid)))
