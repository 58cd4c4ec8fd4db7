# SPDX-License-Identifier: Apache-2.0
"""GPUs, and the indexes that find them in several orders; each index is updated with every GPU that changes.

Pool order is (host, device index). An index is built when it is first used. Nothing here knows a database, a clock or
a socket.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Sequence, Set
from typing import Any, NamedTuple, Protocol, Self, TypeVar

from gsaas.gpgpums.equal_order import EqualOrder
from gsaas.gpgpums.index import AmountIndex, GroupIndex, SlotIndex, TieBreak
from gsaas.objects.gpu import Gpu, Traits
from gsaas.objects.request import Request

Key = Callable[[Gpu], Hashable]
"""What a policy groups GPUs by: a function of one GPU alone, whose values have an order."""

Mix = Sequence[tuple[Request, float]]
"""The recent requests: requests for one cGPU, and how often each came."""

GPUS, HOSTS = "gpus", "hosts"
"""What the slots of an index count."""

MAX_INDEXES = 48
"""Indexes that are kept; a new one replaces the one that was not used for longest."""


class RequestView(NamedTuple):
    """The part of a request that determines how much memory a GPU offers it."""

    mode: str
    local: bool
    traits: frozenset[Traits] | None
    """The traits of GPUs that will do; None: all."""


class IndexedGpus:
    """GPUs in several orders. Not thread-safe."""

    def __init__(
        self,
        gpus: Iterable[Gpu] = (),
        compute_hosts: Collection[str] = (),
        mix: Mix = (),
        equal_order: EqualOrder | None = None,
    ) -> None:
        """*compute_hosts* can run VMs; *mix* are the recent requests of the whole cloud.

        Where a policy finds GPUs or hosts equal, they come in *equal_order*: None is pool order.
        """
        self.mix = mix
        self.equal_order = equal_order or EqualOrder()
        self.barred_traits: frozenset[Traits] = frozenset()
        """Traits whose GPUs no request gets now."""
        self.slots: list[Gpu] = []
        """The GPUs in pool order, as of the last use of an index."""
        self._gpus: dict[str, Gpu] = {gpu.uuid: gpu for gpu in gpus}
        self._by_host: dict[str, dict[str, None]] = {}
        for gpu in self._gpus.values():
            self._by_host.setdefault(gpu.host, {})[gpu.uuid] = None
        self._compute_hosts = frozenset(compute_hosts)
        self._slot_of: dict[str, int] = {}
        self._hosts: list[str] = []
        self._number_of: dict[str, int] = {}
        """The number of each host, in the order of their names."""
        self.memory_by_traits: dict[Traits, tuple[int, int]] = {}
        """Traits -> MiB of the smallest and of the largest GPU with them, as of the last use of an index."""
        self._kinds: set[str] = set()
        """The kinds of its GPUs, as of then."""
        self._indexes: OrderedDict[tuple[Any, ...], Any] = OrderedDict()
        self._is_stale = True
        """Slots must be numbered anew: GPUs were added or removed, or changed their host, device index or traits."""

    def __len__(self) -> int:
        return len(self._gpus)

    def __iter__(self) -> Iterator[Gpu]:
        return iter(self._gpus.values())

    def __getitem__(self, uuid: str) -> Gpu:
        return self._gpus[uuid]

    def get(self, uuid: str) -> Gpu | None:
        """Return a GPU; None if it is not known."""
        return self._gpus.get(uuid)

    def on_host(self, host: str) -> list[Gpu]:
        """Return the GPUs of *host*, in no particular order."""
        return [self._gpus[uuid] for uuid in self._by_host.get(host, ())]

    @property
    def hosts(self) -> Set[str]:
        """Return the names of all hosts: those with GPUs, and those that can run VMs."""
        return self._by_host.keys() | self._compute_hosts

    def has_host(self, name: str) -> bool:
        """Return whether one of them has this name."""
        return name in self._compute_hosts or name in self._by_host

    @property
    def compute_hosts(self) -> frozenset[str]:
        """Return the hosts that can run VMs."""
        return self._compute_hosts

    @compute_hosts.setter
    def compute_hosts(self, hosts: Collection[str]) -> None:
        hosts = frozenset(hosts)
        if hosts != self._compute_hosts:
            self._compute_hosts = hosts
            self._indexes.clear()

    def begin_elsewhere(self, uuids: Collection[str]) -> None:
        """Choose another place to begin at among the GPUs that were equal to one of these when it was chosen."""
        if self._is_stale:
            return  # the slots get new numbers
        for gpu in filter(None, map(self.get, uuids)):
            self.equal_order.begin_elsewhere(GPUS, self._slot_of[gpu.uuid])
            self.equal_order.begin_elsewhere(HOSTS, self._number_of[gpu.host])

    def put(self, gpu: Gpu) -> None:
        """Add *gpu*, or replace the known value of it."""
        known = self._gpus.get(gpu.uuid)
        if known is None or _place_and_traits(known) != _place_and_traits(gpu):
            self.discard(gpu.uuid)
            self._gpus[gpu.uuid] = gpu
            self._by_host.setdefault(gpu.host, {})[gpu.uuid] = None
            self._is_stale = True
        else:
            self._replace(gpu)
            if not self._is_stale:
                self.equal_order.changed(GPUS, self._slot_of[gpu.uuid])
                self.equal_order.changed(HOSTS, self._number_of[gpu.host])

    def discard(self, uuid: str) -> None:
        """Remove a GPU; one that is not known is no error."""
        gpu = self._gpus.pop(uuid, None)
        if gpu is None:
            return
        on_same_host = self._by_host[gpu.host]
        del on_same_host[uuid]
        if not on_same_host:
            del self._by_host[gpu.host]
        self._is_stale = True

    def subset(self, gpus: Iterable[Gpu]) -> Self:
        """Return a new object of this class with only *gpus*, in pool order, and with its slots numbered."""
        subset = type(self)(gpus, self._compute_hosts, self.mix)
        subset.barred_traits = self.barred_traits
        subset.number_slots()
        return subset

    def number_slots(self) -> None:
        """Give every GPU its slot, unless no GPU was added, removed or moved since the last call."""
        if not self._is_stale:
            return
        self.slots = sorted(
            self._gpus.values(), key=lambda gpu: (gpu.host, gpu.device_index, gpu.uuid)
        )
        self._slot_of = {gpu.uuid: slot for slot, gpu in enumerate(self.slots)}
        self._hosts = sorted(self._by_host)
        self._number_of = {host: number for number, host in enumerate(self._hosts)}
        self.memory_by_traits = _memory_by_traits(self.slots)
        self._kinds = {kind for kind, _, _ in self.memory_by_traits}
        self._indexes.clear()
        self.equal_order.forget()
        self._is_stale = False

    def view(self, request: Request, local: bool) -> RequestView:
        """Return the view of *request*; with *local*, GPUs of hosts that run no VMs offer it nothing."""
        traits = None
        if (
            self.barred_traits
            or self._kinds != {request.kind}
            or request.gpu_model is not None
            or request.compute_capability is not None
        ):
            traits = frozenset(filter(request.wants_traits, self.memory_by_traits.keys()))
            traits -= self.barred_traits
        return RequestView(
            request.mode, local, None if traits == self.memory_by_traits.keys() else traits
        )

    def offered_mb(self, gpu: Gpu, view: RequestView) -> int:
        """Return the MiB that *gpu* offers a request with this view."""
        if view.local and gpu.host not in self._compute_hosts:
            return 0
        if view.traits is not None and gpu.traits not in view.traits:
            return 0
        return gpu.available(view.mode)

    # The indexes. Their slots are valid until the next change; `number_slots` must have been called.

    def by_slot(self, view: RequestView) -> SlotIndex:
        """Return the index of GPUs in pool order, by what they offer *view*."""
        return self._index(_BySlot, view).index

    def by_memory(self, view: RequestView) -> AmountIndex:
        """Return the index of GPUs by the memory that they offer *view*."""
        return self._index(_ByMemory, view).index

    def by_key(self, view: RequestView, key: Key, ties: TieBreak) -> GroupIndex:
        """Return the index of GPUs by *key*, by what they offer *view*; see `GroupIndex`."""
        return self._index(_ByKey, view, key, ties).index

    def last_claimed_slot(self) -> int:
        """Return the slot of the GPU that was claimed last; -1 if none ever was."""
        for _, slots in self._index(_ByLastClaim).index.descending(1):
            return next(slots.since(0))
        return -1

    def hosts_by_leases(self, view: RequestView, at_least: int) -> Iterator[str]:
        """Yield the hosts with a GPU that offers *view* that many MiB, those with fewest leases on their GPUs first."""
        for leases, sets in self._index(_HostsByLeases, view).index.groups(at_least):
            for _, hosts in sets:
                for number in self.equal_order.arrange(HOSTS, (view, leases), hosts):
                    yield self._hosts[number]

    def host_numbers(self) -> dict[str, int]:
        """Return the number of each host, in the order of their names."""
        return self._number_of

    def _index(self, make: Callable[..., _Index], *arguments: Any) -> _Index:
        """Return the index that *make* builds from *arguments*; it is kept, and updated with every GPU that changes."""
        name = (make, *arguments)
        found: _Index | None = self._indexes.get(name)
        if found is None:
            found = self._indexes[name] = make(self, *arguments)
            if len(self._indexes) > MAX_INDEXES:
                self._indexes.popitem(last=False)
        self._indexes.move_to_end(name)
        return found

    def _replace(self, gpu: Gpu) -> None:
        """Replace the known value of *gpu*, whose slot stays the same, and update the indexes."""
        self._gpus[gpu.uuid] = gpu
        if self._is_stale:
            return
        slot = self._slot_of[gpu.uuid]
        self.slots[slot] = gpu
        for index in self._indexes.values():
            index.update(self, slot, gpu)


class _Updated(Protocol):
    """An index of the slots of GPUs that can be updated with one GPU that has changed."""

    index: SlotIndex | AmountIndex | GroupIndex

    def update(self, gpus: IndexedGpus, slot: int, gpu: Gpu) -> None: ...


_Index = TypeVar("_Index", bound=_Updated)


class _BySlot(_Updated):
    index: SlotIndex

    def __init__(self, gpus: IndexedGpus, view: RequestView) -> None:
        self._view = view
        self.index = SlotIndex([gpus.offered_mb(gpu, view) for gpu in gpus.slots])

    def update(self, gpus: IndexedGpus, slot: int, gpu: Gpu) -> None:
        self.index.set(slot, gpus.offered_mb(gpu, self._view))


class _ByMemory(_Updated):
    index: AmountIndex

    def __init__(self, gpus: IndexedGpus, view: RequestView) -> None:
        self._view = view
        self.index = AmountIndex([gpus.offered_mb(gpu, view) for gpu in gpus.slots])

    def update(self, gpus: IndexedGpus, slot: int, gpu: Gpu) -> None:
        self.index.set(slot, gpus.offered_mb(gpu, self._view))


class _ByKey(_Updated):
    index: GroupIndex

    def __init__(self, gpus: IndexedGpus, view: RequestView, key: Key, ties: TieBreak) -> None:
        self._view = view
        self._key = key
        amounts = [gpus.offered_mb(gpu, view) for gpu in gpus.slots]
        self.index = GroupIndex(amounts, [key(gpu) for gpu in gpus.slots], ties)

    def update(self, gpus: IndexedGpus, slot: int, gpu: Gpu) -> None:
        self.index.set(slot, gpus.offered_mb(gpu, self._view), self._key(gpu))


class _ByLastClaim(_Updated):
    """GPUs by the generation of their last claim, which grows with time."""

    index: AmountIndex

    def __init__(self, gpus: IndexedGpus) -> None:
        self.index = AmountIndex([gpu.given for gpu in gpus.slots])

    def update(self, _gpus: IndexedGpus, slot: int, gpu: Gpu) -> None:
        self.index.set(slot, gpu.given)


class _HostsByLeases(_Updated):
    """Hosts by the number of leases on their GPUs, each with the most that one of its GPUs offers."""

    index: GroupIndex

    def __init__(self, gpus: IndexedGpus, view: RequestView) -> None:
        self._view = view
        self._number = gpus.host_numbers()
        loads = [self._load(gpus, host) for host in self._number]
        amounts, leases = [amount for amount, _ in loads], [leases for _, leases in loads]
        self.index = GroupIndex(amounts, leases, TieBreak.POOL_ORDER)

    def update(self, gpus: IndexedGpus, _slot: int, gpu: Gpu) -> None:
        self.index.set(self._number[gpu.host], *self._load(gpus, gpu.host))

    def _load(self, gpus: IndexedGpus, host: str) -> tuple[int, int]:
        """Return the most MiB that one GPU of *host* offers, and the number of leases on its GPUs."""
        on_host = gpus.on_host(host)
        most = max(gpus.offered_mb(gpu, self._view) for gpu in on_host)
        return most, sum(gpu.leases for gpu in on_host)


def _place_and_traits(gpu: Gpu) -> tuple[Any, ...]:
    return (gpu.host, gpu.device_index, gpu.traits, gpu.memory_mb)


def _memory_by_traits(gpus: Iterable[Gpu]) -> dict[Traits, tuple[int, int]]:
    sizes: dict[Traits, tuple[int, int]] = {}
    for gpu in gpus:
        least, most = sizes.get(gpu.traits, (gpu.memory_mb, gpu.memory_mb))
        sizes[gpu.traits] = min(least, gpu.memory_mb), max(most, gpu.memory_mb)
    return sizes
