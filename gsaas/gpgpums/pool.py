"""The decision core: a pool of GPUs that says where a request would go, or why it goes nowhere.

1. Policies propose, the pool grants. A policy sees `Candidates` and yields GPUs, best first; the
   pool takes the first that fits and that locality allows, whatever else the policy yields.
2. All cGPUs of a request are placed, or none.
3. `propose` leaves the pool as it found it. cGPUs are placed one after the other, each seen by
   the policy when it chooses the next, and taken back at the end. What is granted becomes true
   when somebody `put`s it.
4. A grant costs the logarithm of the number of GPUs, however many of them are busy; an order in
   which GPUs are asked for is indexed when it is first used. `local` looks at each host at most
   once. Refusals may look at everything: they have something to explain.

Pool order is (host, device index). Nothing here knows a database, a clock or a socket.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gsaas.gpgpums import explain
from gsaas.gpgpums.orders import ByAmount, InOrder
from gsaas.gpgpums.state import LOCAL, REMOTE, Gpu, Placement, Refusal, Request, Share

if TYPE_CHECKING:
    from gsaas.gpgpums.policies.base import Policy

Order = type[InOrder] | type[ByAmount]


@dataclass(frozen=True, slots=True)
class Totals:
    """What a pool holds, in GPUs and MiB."""

    gpus: int
    offered: int
    memory_mb: int
    used_mb: int


class Candidates:
    """A policy's view of the pool: the GPUs that fit the request now, in the order it likes best.

    Every iterator is lazy, and good until the pool changes: not before the policy has been heard.
    """

    def __init__(
        self, pool: Pool, request: Request, *, local: bool = False, without: str | None = None
    ) -> None:
        self._pool = pool
        self._request = request
        self._local = local
        self._without = without

    def __iter__(self) -> Iterator[Gpu]:
        return self.in_pool_order()

    def in_pool_order(self) -> Iterator[Gpu]:
        return self._pick(self._order(InOrder).ascending)

    def most_free_first(self) -> Iterator[Gpu]:
        """By free memory, descending; ties in pool order. In exclusive mode all memory is free."""
        return self._pick(self._order(ByAmount).descending)

    def least_free_first(self) -> Iterator[Gpu]:
        """By free memory, ascending; ties in pool order."""
        return self._pick(self._order(ByAmount).ascending)

    def allows(self, gpu: Gpu) -> bool:
        """Is *gpu* one of these?"""
        return (
            self._request.fits(gpu)
            and gpu.host != self._without
            and (not self._local or gpu.host in self._pool.compute_hosts)
        )

    def _order(self, order: Order) -> InOrder | ByAmount:
        return self._pool._order(order, self._request.mode, self._local)

    def _pick(self, slots: Callable[[int], Iterator[int]]) -> Iterator[Gpu]:
        for slot in slots(self._request.memory_mb or 1):
            gpu = self._pool._slots[slot]
            if gpu.host != self._without:
                yield gpu


class Pool:
    """GPUs, kept in order as they change. Not thread-safe."""

    def __init__(self, gpus: Iterable[Gpu] = (), compute_hosts: Collection[str] = ()) -> None:
        self._gpus: dict[str, Gpu] = {gpu.uuid: gpu for gpu in gpus}
        self._by_host: dict[str, dict[str, None]] = {}
        for gpu in self._gpus.values():
            self._by_host.setdefault(gpu.host, {})[gpu.uuid] = None
        self._compute_hosts = frozenset(compute_hosts)
        self._slots: list[Gpu] = []
        self._slot_of: dict[str, int] = {}
        self._orders: dict[tuple[Order, str, bool], InOrder | ByAmount] = {}
        self._stale = True
        """Slots must be numbered anew: GPUs came, or changed place."""

    def __len__(self) -> int:
        return len(self._gpus)

    def __iter__(self) -> Iterator[Gpu]:
        return iter(self._gpus.values())

    def get(self, uuid: str) -> Gpu | None:
        return self._gpus.get(uuid)

    def on_host(self, host: str) -> list[Gpu]:
        """The GPUs of *host*, in no particular order."""
        return [self._gpus[uuid] for uuid in self._by_host.get(host, ())]

    @property
    def compute_hosts(self) -> frozenset[str]:
        """Hosts that can run VMs."""
        return self._compute_hosts

    @compute_hosts.setter
    def compute_hosts(self, hosts: Collection[str]) -> None:
        hosts = frozenset(hosts)
        if hosts != self._compute_hosts:
            self._compute_hosts = hosts
            self._orders.clear()

    def put(self, gpu: Gpu) -> None:
        """Add *gpu*, or replace what was known of it."""
        known = self._gpus.get(gpu.uuid)
        if known is None or (known.host, known.device_index) != (gpu.host, gpu.device_index):
            self.discard(gpu.uuid)
            self._gpus[gpu.uuid] = gpu
            self._by_host.setdefault(gpu.host, {})[gpu.uuid] = None
            self._stale = True
        else:
            self._replace(gpu)

    def discard(self, uuid: str) -> None:
        """Forget a GPU; one that is not known is no error."""
        gpu = self._gpus.pop(uuid, None)
        if gpu is None:
            return
        mates = self._by_host[gpu.host]
        del mates[uuid]
        if not mates:
            del self._by_host[gpu.host]
        self._stale = True

    def totals(self) -> Totals:
        """Count everything: O(n)."""
        gpus = self._gpus.values()
        return Totals(
            gpus=len(gpus),
            offered=sum(gpu.withheld is None for gpu in gpus),
            memory_mb=sum(gpu.memory_mb for gpu in gpus),
            used_mb=sum(gpu.used_mb for gpu in gpus),
        )

    def propose(self, request: Request, policy: Policy) -> Placement | Refusal:
        """Say where *policy* would put *request* now, or why nowhere. Changes nothing."""
        self._number()
        if request.locality == LOCAL:
            placement = self._propose_local(request, policy)
        elif request.locality == REMOTE:
            placement = self._propose_remote(request, policy)
        else:
            placement = _placement(self._place(request, policy))
        if placement is not None:
            return placement
        return explain.refuse(request, list(self), self._compute_hosts, policy.name)

    def _propose_local(self, request: Request, policy: Policy) -> Placement | None:
        """All on one compute host: the first one the policy turns to that has room."""
        tried = set()
        candidates = Candidates(self, request, local=True)
        anywhere = request.with_(locality="any")
        for wish in policy.order(candidates, request):
            gpu = self._granted(wish, candidates)
            if gpu is None or gpu.host in tried:
                continue
            tried.add(gpu.host)
            gpus = self.on_host(gpu.host)
            if explain.capacity(gpus, request.mode, request.memory_mb) < request.count:
                continue
            # A host is a small pool of its own: this one must not change while it is being read.
            answer = Pool(gpus).propose(anywhere, policy)
            if isinstance(answer, Placement):
                return Placement(answer.shares, host=gpu.host)
        return None

    def _propose_remote(self, request: Request, policy: Policy) -> Placement | None:
        """Somewhere, so that at least one compute host owns none of the GPUs: the VM's.

        If the policy's own choice touches every compute host, one of them is spared: the one it
        turned to last if that is possible, else the one before. There are at most as many as
        cGPUs.
        """
        shares = self._place(request, policy)
        if shares is None or not self._compute_hosts:
            return None
        turned_to = list(dict.fromkeys(self._gpus[share.gpu_uuid].host for share in shares))
        if not self._compute_hosts <= set(turned_to):
            return _placement(shares, avoid=turned_to)
        for spared in reversed(turned_to):
            if spared not in self._compute_hosts:
                continue
            shares = self._place(request, policy, without=spared)
            if shares is not None:
                hosts = {self._gpus[share.gpu_uuid].host for share in shares}
                return _placement(shares, avoid=hosts)
        return None

    def _place(
        self, request: Request, policy: Policy, without: str | None = None
    ) -> list[Share] | None:
        """Choose a GPU for each cGPU, tentatively; None if one of them finds no place."""
        candidates = Candidates(self, request, without=without)
        shares: list[Share] = []
        before: list[Gpu] = []
        try:
            while True:
                gpu = self._choose(policy, candidates, request)
                if gpu is None:
                    return None
                size = request.size_on(gpu)
                shares.append(Share(gpu.uuid, size))
                if len(shares) == request.count:
                    return shares  # nobody chooses after the last: no need to show it
                before.append(gpu)
                self._replace(
                    gpu.claim(size, exclusive=request.exclusive, generation=gpu.generation)
                )
        finally:
            for gpu in reversed(before):
                self._replace(gpu)

    def _choose(self, policy: Policy, candidates: Candidates, request: Request) -> Gpu | None:
        for wish in policy.order(candidates, request):
            gpu = self._granted(wish, candidates)
            if gpu is not None:
                return gpu
        return None

    def _granted(self, wish: Gpu, candidates: Candidates) -> Gpu | None:
        """The GPU that a policy wishes for, as the pool knows it; None if it may not have it."""
        gpu = self._gpus.get(wish.uuid)
        return gpu if gpu is not None and candidates.allows(gpu) else None

    def _replace(self, gpu: Gpu) -> None:
        """Take over *gpu*, whose place in pool order is as before."""
        self._gpus[gpu.uuid] = gpu
        if self._stale:
            return
        slot = self._slot_of[gpu.uuid]
        self._slots[slot] = gpu
        for (_, mode, local), order in self._orders.items():
            order.set(slot, self._amount(gpu, mode, local))

    def _number(self) -> None:
        """Give every GPU its slot again after the inventory changed."""
        if not self._stale:
            return
        self._slots = sorted(
            self._gpus.values(), key=lambda gpu: (gpu.host, gpu.device_index, gpu.uuid)
        )
        self._slot_of = {gpu.uuid: slot for slot, gpu in enumerate(self._slots)}
        self._orders.clear()
        self._stale = False

    def _order(self, order: Order, mode: str, local: bool) -> InOrder | ByAmount:
        key = (order, mode, local)
        if key not in self._orders:
            self._orders[key] = order([self._amount(gpu, mode, local) for gpu in self._slots])
        return self._orders[key]

    def _amount(self, gpu: Gpu, mode: str, local: bool) -> int:
        return 0 if local and gpu.host not in self._compute_hosts else gpu.available(mode)


def _placement(shares: list[Share] | None, avoid: Iterable[str] = ()) -> Placement | None:
    return None if shares is None else Placement(tuple(shares), avoid=tuple(sorted(avoid)))
