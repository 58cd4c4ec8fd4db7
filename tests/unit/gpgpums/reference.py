"""The pool's rules written down a second time, in the slowest and plainest way: look at
everything, every time."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable

from gsaas.gpgpums.state import EXCLUSIVE, LOCAL, REMOTE, Gpu, Request

Key = Callable[[Gpu, int], tuple]
"""How much a policy dislikes a GPU with so much memory available."""

KEYS: dict[str, Key] = {
    "first-fit": lambda gpu, _available: (gpu.host, gpu.device_index),
    "least-load-fit": lambda gpu, available: (-available, gpu.host, gpu.device_index),
}


def choose(
    request: Request, gpus: Iterable[Gpu], compute_hosts: frozenset[str], key: Key
) -> list[str] | None:
    """Return the UUIDs of the GPUs for cGPU 0, 1, …, or None."""
    gpus = list(gpus)
    if request.locality == LOCAL:
        here = [gpu for gpu in gpus if gpu.host in compute_hosts and available(gpu, request)]
        for best in sorted(here, key=lambda gpu: key(gpu, available(gpu, request))):
            chosen = place(request, [gpu for gpu in gpus if gpu.host == best.host], key)
            if chosen is not None:
                return chosen
        return None
    chosen = place(request, gpus, key)
    if request.locality != REMOTE or chosen is None:
        return chosen
    hosts = {gpu.uuid: gpu.host for gpu in gpus}
    for spared in [None, *(hosts[uuid] for uuid in reversed(_firsts(chosen, hosts)))]:
        chosen = place(request, [gpu for gpu in gpus if gpu.host != spared], key)
        if chosen is not None and compute_hosts - {hosts[uuid] for uuid in chosen}:
            return chosen
    return None


def possible(request: Request, gpus: Iterable[Gpu], compute_hosts: frozenset[str]) -> bool:
    """Is there any assignment at all? Tries every one: for a handful of GPUs."""
    gpus = list(gpus)
    for chosen in itertools.combinations_with_replacement(gpus, request.count):
        hosts = {gpu.host for gpu in chosen}
        if request.locality == LOCAL and not (len(hosts) == 1 and hosts <= compute_hosts):
            continue
        if request.locality == REMOTE and not compute_hosts - hosts:
            continue
        if all(_holds(gpu, chosen.count(gpu), request) for gpu in set(chosen)):
            return True
    return False


def place(request: Request, gpus: list[Gpu], key: Key) -> list[str] | None:
    left = {gpu.uuid: available(gpu, request) for gpu in gpus}
    chosen = []
    for _ in range(request.count):
        fitting = [gpu for gpu in gpus if left[gpu.uuid]]
        if not fitting:
            return None
        best = min(fitting, key=lambda gpu: key(gpu, left[gpu.uuid]))
        chosen.append(best.uuid)
        if request.mode == EXCLUSIVE:
            left[best.uuid] = 0
        else:
            left[best.uuid] -= request.memory_mb
            if left[best.uuid] < request.memory_mb:
                left[best.uuid] = 0
    return chosen


def available(gpu: Gpu, request: Request) -> int:
    """MiB that this request can use of *gpu*; 0 if it cannot use it at all."""
    if gpu.withheld or gpu.exclusive:
        return 0
    if request.mode == EXCLUSIVE:
        return 0 if gpu.used_mb else gpu.memory_mb
    free = gpu.memory_mb - gpu.used_mb
    return free if free >= request.memory_mb else 0


def _holds(gpu: Gpu, count: int, request: Request) -> bool:
    if request.mode == EXCLUSIVE:
        return count == 1 and available(gpu, request) > 0
    return available(gpu, request) >= count * request.memory_mb


def _firsts(chosen: list[str], hosts: dict[str, str]) -> list[str]:
    """For each host in *chosen* its first GPU, in the order in which the hosts appear."""
    firsts: dict[str, str] = {}
    for uuid in chosen:
        firsts.setdefault(hosts[uuid], uuid)
    return list(firsts.values())
