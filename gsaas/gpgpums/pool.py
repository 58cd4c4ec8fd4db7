"""The decision core: a pool of GPUs that says where a request would go, or why it goes nowhere.

1. Policies propose, the pool grants. A policy sees `Candidates` and yields GPUs, best first; the
   pool takes the first that fits and that the request's requirements allow, whatever else the
   policy yields.
2. All cGPUs of a request are placed, or none.
3. `propose` leaves the pool as it found it. cGPUs are placed one after the other, each seen by
   the policy when it chooses the next, and taken back at the end. What is granted becomes true
   when somebody `put`s it.
4. A grant costs the logarithm of the number of GPUs, however many of them are busy; an order in
   which GPUs are asked for is indexed when it is first used. `local`, and all on one host, look
   at each host at most once. Refusals may look at everything: they have something to explain.

Pool order is (host, device index). Nothing here knows a database, a clock or a socket.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Container, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, ClassVar, NamedTuple, Protocol

from gsaas.gpgpums import explain
from gsaas.gpgpums.index import ByAmount, Grouped, InOrder, Then
from gsaas.objects.gpu import Gpu, Kind
from gsaas.objects.placement import Placement, Refusal, Share
from gsaas.objects.request import ANY, LOCAL, ONE, REMOTE, SPREAD, Request

Key = Callable[[Gpu], Hashable]
"""What a policy groups GPUs by: a function of one GPU alone, whose values have an order."""

Mix = Sequence[tuple[Request, float]]
"""What is asked for lately: requests for one cGPU, and how often each came."""

MOST_ORDERS = 48
"""Orders that a pool keeps up to date; the one not used for longest makes room for a new one."""

TENTATIVE = 2**62
"""Beyond the generation of any real claim."""


class Ordering(Protocol):
    """As much of a policy as the pool needs; `gsaas.gpgpums.policies.base.Policy` describes the whole."""

    name: ClassVar[str]

    def order(self, candidates: Candidates, request: Request) -> Iterable[Gpu]:
        """Yield GPUs for the next cGPU of *request*, best first."""


@dataclass(frozen=True, slots=True)
class Totals:
    """What a pool holds, in GPUs and MiB."""

    gpus: int
    offered: int
    memory_mb: int
    used_mb: int


class View(NamedTuple):
    """As much of a request as decides what a GPU has to offer it."""

    mode: str
    local: bool
    kinds: frozenset[Kind] | None
    """None: GPUs of every kind will do."""


class Candidates:
    """A policy's view of the pool: the GPUs that fit the request now, in the order it likes best.

    Every iterator is lazy, and good until the pool changes: not before the policy has been heard.
    """

    def __init__(
        self, pool: Pool, request: Request, *, local: bool = False, without: Container[str] = ()
    ) -> None:
        self._pool = pool
        self._request = request
        self._without = without
        self._local = local
        self._view = pool._view(request, local)
        self._at_least = request.memory_mb or 1

    def __iter__(self) -> Iterator[Gpu]:
        return self.in_pool_order()

    @property
    def mix(self) -> Mix:
        """What is asked for lately, of the whole cloud."""
        return self._pool.mix

    def in_pool_order(self) -> Iterator[Gpu]:
        return self._pick(self._pool._in_order(self._view).ascending(self._at_least))

    def after_the_last_given(self) -> Iterator[Gpu]:
        """In pool order, beginning after the GPU that was claimed last, and around."""
        order, start = self._pool._in_order(self._view), self._pool._last_given() + 1
        before = (slot for slot in order.ascending(self._at_least) if slot < start)
        return self._pick(chain(order.ascending(self._at_least, start), before))

    def most_free_first(self) -> Iterator[Gpu]:
        """By free memory, descending; ties in pool order. In exclusive mode all memory is free."""
        return self._pick(self._pool._by_amount(self._view).descending(self._at_least))

    def least_free_first(self) -> Iterator[Gpu]:
        """By free memory, ascending; ties in pool order."""
        return self._pick(self._pool._by_amount(self._view).ascending(self._at_least))

    def groups(self, key: Key, then: Then = Then.POOL_ORDER) -> Iterator[tuple[Any, Iterator[Gpu]]]:
        """Groups of equal *key*, smallest first, each with its GPUs in the order *then*.

        *key* must be the same function each time: its groups are kept up to date from then on.
        """
        order = self._pool._grouped(self._view, key, then)
        for value, slots in order.groups(self._at_least):
            yield value, self._pick(slots)

    def by(self, key: Key, then: Then = Then.POOL_ORDER) -> Iterator[Gpu]:
        """By *key*, ascending, and among equals in the order *then*; see `groups`."""
        return chain.from_iterable(gpus for _, gpus in self.groups(key, then))

    def on_host(self, host: str) -> Candidates:
        """Only those on *host*; there may be none."""
        gpus = () if host in self._without else self._pool.on_host(host)
        part = self._pool._part(gpus)
        return Candidates(part, self._request, local=self._local, without=self._without)

    def by_host_leases(self) -> Iterator[Candidates]:
        """Host by host: those with fewest leases on their GPUs first, ties in pool order.

        A lease counts once for each GPU that it holds some of.
        """
        for host in self._pool._hosts_by_leases(self._view, self._at_least):
            if host not in self._without:
                yield self.on_host(host)

    def allows(self, gpu: Gpu) -> bool:
        """Is *gpu* one of these?"""
        return (
            self._request.fits(gpu)
            and gpu.host not in self._without
            and (not self._local or gpu.host in self._pool.compute_hosts)
        )

    def _pick(self, slots: Iterable[int]) -> Iterator[Gpu]:
        for slot in slots:
            gpu = self._pool._slots[slot]
            if gpu.host not in self._without:
                yield gpu


class Pool:
    """GPUs, kept in order as they change. Not thread-safe."""

    def __init__(
        self, gpus: Iterable[Gpu] = (), compute_hosts: Collection[str] = (), mix: Mix = ()
    ) -> None:
        self.mix = mix
        self._gpus: dict[str, Gpu] = {gpu.uuid: gpu for gpu in gpus}
        self._by_host: dict[str, dict[str, None]] = {}
        for gpu in self._gpus.values():
            self._by_host.setdefault(gpu.host, {})[gpu.uuid] = None
        self._compute_hosts = frozenset(compute_hosts)
        self._slots: list[Gpu] = []
        self._slot_of: dict[str, int] = {}
        self._hosts: list[str] = []
        self._kinds: frozenset[Kind] = frozenset()
        self._orders: OrderedDict[tuple[Any, ...], _Kept] = OrderedDict()
        self._stale = True
        """Slots must be numbered anew: GPUs came, or changed place or kind."""

    def __len__(self) -> int:
        return len(self._gpus)

    def __iter__(self) -> Iterator[Gpu]:
        return iter(self._gpus.values())

    def __getitem__(self, uuid: str) -> Gpu:
        return self._gpus[uuid]

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
        if known is None or _place_and_kind(known) != _place_and_kind(gpu):
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

    def propose(self, request: Request, policy: Ordering) -> Placement | Refusal:
        """Say where *policy* would put *request* now, or why nowhere. Changes nothing."""
        placement = self.place(request, policy)
        if placement is not None:
            return placement
        return explain.refuse(request, list(self), self._compute_hosts, policy.name)

    def place(self, request: Request, policy: Ordering) -> Placement | None:
        """As `propose`, for who need not know why not: that alone would cost a look at every GPU."""
        if request.locality == LOCAL and request.consumer_host is not None:
            if request.host not in (None, request.consumer_host):
                return None
            here = request.with_(locality=ANY, host=request.consumer_host)
            return self.place(here, policy)
        if request.host is not None:
            part = self._part(self.on_host(request.host))
            return part.place(request.with_(host=None, hosts=ANY), policy)
        self._number()
        if request.locality == LOCAL or request.hosts == ONE:
            return self._search_one_host(request, policy)
        if request.locality == REMOTE:
            return self._search_remote(request, policy)
        return _placement(self._place(request, policy))

    def _search_one_host(self, request: Request, policy: Ordering) -> Placement | None:
        """All on one GPU host: the first one that the policy turns to and that has room.

        Local wants a compute host, remote a compute host besides, or another than the consumer's.
        """
        local, remote = request.locality == LOCAL, request.locality == REMOTE
        tried = set()
        if remote and request.consumer_host is not None:
            tried, remote = {request.consumer_host}, False
        candidates = Candidates(self, request, local=local)
        anywhere = request.with_(locality=ANY, hosts=ANY)
        for wish in policy.order(candidates, request):
            gpu = self._granted(wish, candidates)
            if gpu is None or gpu.host in tried:
                continue
            tried.add(gpu.host)
            if remote and self._compute_hosts <= {gpu.host}:
                continue
            gpus = self.on_host(gpu.host)
            wanted = filter(request.wants, gpus)
            if explain.capacity(wanted, request.mode, request.memory_mb) < request.count:
                continue
            # A host is a small pool of its own: this one must not change while it is being read.
            placement = self._part(gpus).place(anywhere, policy)
            if placement is not None:
                host, avoid = (gpu.host, ()) if local else (None, (gpu.host,) if remote else ())
                return Placement(placement.shares, host=host, avoid=avoid)
        return None

    def _search_remote(self, request: Request, policy: Ordering) -> Placement | None:
        """Somewhere, so that at least one compute host owns none of the GPUs: the VM's.

        If the policy's own choice touches every compute host, one of them is spared: the one it
        turned to last if that is possible, else the one before. There are at most as many as
        cGPUs.
        """
        if request.consumer_host is not None:
            return _placement(self._place(request, policy, without=request.consumer_host))
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
        self, request: Request, policy: Ordering, without: str | None = None
    ) -> list[Share] | None:
        """Choose a GPU for each cGPU, tentatively; None if one of them finds no place."""
        closed = set() if without is None else {without}
        candidates = Candidates(self, request, without=closed)
        shares: list[Share] = []
        before: dict[str, Gpu] = {}
        try:
            while True:
                gpu = self._choose(policy, candidates, request)
                if gpu is None:
                    return None
                size = request.size_on(gpu)
                shares.append(Share(gpu.uuid, size))
                if len(shares) == request.count:
                    return shares  # nobody chooses after the last: no need to show it
                if request.hosts == SPREAD:
                    closed.add(gpu.host)
                again = gpu.uuid in before
                before.setdefault(gpu.uuid, gpu)
                self._replace(
                    gpu.claim(
                        size,
                        exclusive=request.exclusive,
                        generation=TENTATIVE + len(shares),
                        again=again,
                    )
                )
        finally:
            for gpu in before.values():
                self._replace(gpu)

    def _choose(self, policy: Ordering, candidates: Candidates, request: Request) -> Gpu | None:
        for wish in policy.order(candidates, request):
            gpu = self._granted(wish, candidates)
            if gpu is not None:
                return gpu
        return None

    def _granted(self, wish: Gpu, candidates: Candidates) -> Gpu | None:
        """The GPU that a policy wishes for, as the pool knows it; None if it may not have it."""
        gpu = self._gpus.get(wish.uuid)
        return gpu if gpu is not None and candidates.allows(gpu) else None

    def _part(self, gpus: Iterable[Gpu]) -> Pool:
        """A pool of some of the GPUs in the same cloud, ready to be asked."""
        part = Pool(gpus, self._compute_hosts, self.mix)
        part._number()
        return part

    def _replace(self, gpu: Gpu) -> None:
        """Take over *gpu*, whose place in pool order is as before."""
        self._gpus[gpu.uuid] = gpu
        if self._stale:
            return
        slot = self._slot_of[gpu.uuid]
        self._slots[slot] = gpu
        for order in self._orders.values():
            order.update(self, slot, gpu)

    def _number(self) -> None:
        """Give every GPU its slot again after the inventory changed."""
        if not self._stale:
            return
        self._slots = sorted(
            self._gpus.values(), key=lambda gpu: (gpu.host, gpu.device_index, gpu.uuid)
        )
        self._slot_of = {gpu.uuid: slot for slot, gpu in enumerate(self._slots)}
        self._hosts = sorted(self._by_host)
        self._kinds = frozenset(gpu.kind for gpu in self._slots)
        self._orders.clear()
        self._stale = False

    def _view(self, request: Request, local: bool) -> View:
        kinds = None
        if request.gpu_model is not None or request.compute_capability is not None:
            kinds = frozenset(kind for kind in self._kinds if request.wants_kind(kind))
        return View(request.mode, local, None if kinds == self._kinds else kinds)

    def _amount(self, gpu: Gpu, view: View) -> int:
        """What *gpu* has to offer those who look at it so, in MiB."""
        if view.local and gpu.host not in self._compute_hosts:
            return 0
        if view.kinds is not None and gpu.kind not in view.kinds:
            return 0
        return gpu.available(view.mode)

    # The orders, made when they are first used and kept up to date by `_replace`

    def _kept(self, kind: type[_Kept], *about: Any) -> Any:
        name = (kind, *about)
        kept = self._orders.get(name)
        if kept is None:
            kept = self._orders[name] = kind(self, *about)
            if len(self._orders) > MOST_ORDERS:
                self._orders.popitem(last=False)
        self._orders.move_to_end(name)
        return kept

    def _in_order(self, view: View) -> InOrder:
        return self._kept(_InOrder, view).order

    def _by_amount(self, view: View) -> ByAmount:
        return self._kept(_ByAmount, view).order

    def _grouped(self, view: View, key: Key, then: Then) -> Grouped:
        return self._kept(_Grouped, view, key, then).order

    def _last_given(self) -> int:
        """The slot of the GPU that was claimed last; -1 if none ever was."""
        return next(self._kept(_ByTurn).order.descending(1), -1)

    def _hosts_by_leases(self, view: View, at_least: int) -> Iterator[str]:
        order = self._kept(_HostsByLeases, view).order
        for _, numbers in order.groups(at_least):
            for number in numbers:
                yield self._hosts[number]


class _Kept:
    """An order of a pool's slots, and how it follows one GPU that changed."""

    order: Any

    def update(self, pool: Pool, slot: int, gpu: Gpu) -> None:
        raise NotImplementedError


class _InOrder(_Kept):
    kind: Any = InOrder

    def __init__(self, pool: Pool, view: View) -> None:
        self._view = view
        self.order = self.kind([pool._amount(gpu, view) for gpu in pool._slots])

    def update(self, pool: Pool, slot: int, gpu: Gpu) -> None:
        self.order.set(slot, pool._amount(gpu, self._view))


class _ByAmount(_InOrder):
    kind = ByAmount


class _Grouped(_Kept):
    def __init__(self, pool: Pool, view: View, key: Key, then: Then) -> None:
        self._view = view
        self._key = key
        amounts = [pool._amount(gpu, view) for gpu in pool._slots]
        self.order = Grouped(amounts, [key(gpu) for gpu in pool._slots], then)

    def update(self, pool: Pool, slot: int, gpu: Gpu) -> None:
        self.order.set(slot, pool._amount(gpu, self._view), self._key(gpu))


class _ByTurn(_Kept):
    """Who was given when."""

    def __init__(self, pool: Pool) -> None:
        self.order = ByAmount([gpu.given for gpu in pool._slots])

    def update(self, pool: Pool, slot: int, gpu: Gpu) -> None:
        self.order.set(slot, gpu.given)


class _HostsByLeases(_Kept):
    """Hosts by the number of leases on their GPUs, each with the most that one of them can give."""

    def __init__(self, pool: Pool, view: View) -> None:
        self._view = view
        self._number = {host: number for number, host in enumerate(pool._hosts)}
        known = [self._known(pool, host) for host in pool._hosts]
        amounts, leases = [amount for amount, _ in known], [leases for _, leases in known]
        self.order = Grouped(amounts, leases, Then.POOL_ORDER)

    def update(self, pool: Pool, slot: int, gpu: Gpu) -> None:
        self.order.set(self._number[gpu.host], *self._known(pool, gpu.host))

    def _known(self, pool: Pool, host: str) -> tuple[int, int]:
        gpus = pool.on_host(host)
        most = max(pool._amount(gpu, self._view) for gpu in gpus)
        return most, sum(gpu.leases for gpu in gpus)


def _place_and_kind(gpu: Gpu) -> tuple[Any, ...]:
    return (gpu.host, gpu.device_index, gpu.kind)


def _placement(shares: list[Share] | None, avoid: Iterable[str] = ()) -> Placement | None:
    return None if shares is None else Placement(tuple(shares), avoid=tuple(sorted(avoid)))
