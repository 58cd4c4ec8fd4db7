# SPDX-License-Identifier: Apache-2.0
"""The GPUs of the pool that fit a request, as scheduling policies see them: in the order that a policy requests."""

from __future__ import annotations

from collections.abc import Container, Hashable, Iterable, Iterator
from itertools import chain
from typing import Any

from gsaas.gpgpums.equal_order import EqualSlots
from gsaas.gpgpums.index import TieBreak
from gsaas.gpgpums.indexed_gpus import GPUS, IndexedGpus, Key, Mix
from gsaas.objects.gpu import Gpu
from gsaas.objects.request import Request


class Candidates:
    """The GPUs that fit a request now.

    Every iterator is lazy. It is valid until the pool changes, which is not before the policy has returned.

    "Ties in pool order" are the GPUs that a policy finds equal. Each process may begin in their midst and go around
    (`gsaas.gpgpums.equal_order`), so that processes that choose at the same time do not all choose the same GPU.
    """

    def __init__(
        self,
        gpus: IndexedGpus,
        request: Request,
        *,
        local: bool = False,
        excluded: Container[str] = (),
    ) -> None:
        """*local* admits only GPUs of hosts that can run VMs; GPUs of the *excluded* hosts are left out."""
        self._gpus = gpus
        self._request = request
        self._excluded = excluded
        self._local = local
        self._view = gpus.view(request, local)
        self._at_least = request.memory_mb or 1

    def __iter__(self) -> Iterator[Gpu]:
        return self.in_pool_order()

    @property
    def mix(self) -> Mix:
        """Return the recent requests of the whole cloud."""
        return self._gpus.mix

    def in_pool_order(self) -> Iterator[Gpu]:
        """Yield GPUs by host and device index."""
        return self._pick(self._gpus.by_slot(self._view).ascending(self._at_least))

    def after_last_claimed(self) -> Iterator[Gpu]:
        """Yield GPUs in pool order, beginning after the GPU that was claimed last, and around."""
        index, start = self._gpus.by_slot(self._view), self._gpus.last_claimed_slot() + 1
        before = (slot for slot in index.ascending(self._at_least) if slot < start)
        return self._pick(chain(index.ascending(self._at_least, start), before))

    def most_free_first(self) -> Iterator[Gpu]:
        """Yield GPUs by free memory, descending; ties in pool order. In exclusive mode all memory is free."""
        index = self._gpus.by_memory(self._view)
        return self._arranged(self._view, index.descending(self._at_least))

    def least_free_first(self) -> Iterator[Gpu]:
        """Yield GPUs by free memory, ascending; ties in pool order."""
        index = self._gpus.by_memory(self._view)
        return self._arranged(self._view, index.ascending(self._at_least))

    def groups(
        self, key: Key, ties: TieBreak = TieBreak.POOL_ORDER
    ) -> Iterator[tuple[Any, Iterator[Gpu]]]:
        """Yield each value of *key*, smallest first, with the GPUs that have it, in the order *ties*.

        *key* must be the same function each time: the pool keeps an index for it.
        """
        index = self._gpus.by_key(self._view, key, ties)
        for value, sets in index.groups(self._at_least):
            yield value, self._arranged((self._view, key, ties, value), sets)

    def by(self, key: Key, ties: TieBreak = TieBreak.POOL_ORDER) -> Iterator[Gpu]:
        """Yield GPUs by *key*, ascending, and those with equal keys in the order *ties*; see `groups`."""
        return chain.from_iterable(gpus for _, gpus in self.groups(key, ties))

    def on_host(self, host: str) -> Candidates:
        """Return the candidates on *host*; there may be none."""
        gpus = () if host in self._excluded else self._gpus.on_host(host)
        subset = self._gpus.subset(gpus)
        return Candidates(subset, self._request, local=self._local, excluded=self._excluded)

    def by_host_leases(self) -> Iterator[Candidates]:
        """Yield the candidates of each host: hosts with fewest leases on their GPUs first, ties in pool order.

        A lease counts once for each GPU that it has a share of.
        """
        for host in self._gpus.hosts_by_leases(self._view, self._at_least):
            if host not in self._excluded:
                yield self.on_host(host)

    def allows(self, gpu: Gpu) -> bool:
        """Return whether *gpu* is a candidate."""
        return (
            self._request.fits(gpu)
            and gpu.traits not in self._gpus.barred_traits
            and gpu.host not in self._excluded
            and (not self._local or gpu.host in self._gpus.compute_hosts)
        )

    def _arranged(self, name: Hashable, sets: Iterable[tuple[int, EqualSlots]]) -> Iterator[Gpu]:
        """Yield the GPUs of sets of equal ones; *name* is that of what yields the sets."""
        for number, equal in sets:
            yield from self._pick(self._gpus.equal_order.arrange(GPUS, (name, number), equal))

    def _pick(self, slots: Iterable[int]) -> Iterator[Gpu]:
        for slot in slots:
            gpu = self._gpus.slots[slot]
            if gpu.host not in self._excluded:
                yield gpu
