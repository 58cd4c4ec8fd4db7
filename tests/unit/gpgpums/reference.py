# SPDX-License-Identifier: Apache-2.0
"""A second implementation of the pool's rules, as simple as possible: it looks at every GPU for every cGPU."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from gsaas.gpgpums.indexed_gpus import Mix
from gsaas.objects.gpu import EXCLUSIVE, Gpu
from gsaas.objects.request import ANY, LOCAL, ONE, REMOTE, SPREAD, Request


@dataclass
class GpuState:
    """A GPU while a request is being placed."""

    gpu: Gpu
    usable: int
    """MiB that the request can still use of it; 0 if it cannot use it."""
    leases: int
    given: int
    taken: int = 0

    @property
    def place(self) -> tuple[str, int]:
        return (self.gpu.host, self.gpu.device_index)

    @property
    def free(self) -> int:
        return self.gpu.memory_mb - self.gpu.used_mb - self.taken


@dataclass
class Scene:
    """All that a policy sees: the request, the GPUs, and the recent requests."""

    request: Request
    cloud: list[GpuState]
    mix: Mix = field(default=())


Key = Callable[[GpuState, Scene], tuple]
"""The sort key of a policy: it takes the GPU with the smallest key."""


def round_robin(state: GpuState, scene: Scene) -> tuple:
    given = [other for other in scene.cloud if other.given]
    if not given:
        return state.place
    last = min(given, key=lambda other: (-other.given, other.place))
    return (state.place <= last.place, state.place)


def utilisation(state: GpuState, _scene: Scene) -> tuple:
    known = state.gpu.utilisation
    return (101 if known is None else known, state.leases, -state.usable, state.place)


def node(state: GpuState, scene: Scene) -> tuple:
    same_host = [other for other in scene.cloud if other.gpu.host == state.gpu.host]
    return (
        sum(other.leases for other in same_host),
        state.gpu.host,
        -state.usable,
        state.place,
    )


def fragmentation(state: GpuState, scene: Scene) -> tuple:
    mix = scene.mix or [(scene.request, 1.0)]
    gpu = state.gpu

    def wasted(free: int) -> float:
        total = 0.0
        for recent, frequency in mix:
            enough = free == gpu.memory_mb if recent.memory_mb is None else free >= recent.memory_mb
            if not (enough and is_of_kind(gpu, recent)):
                total += free * frequency
        return total / sum(frequency for _, frequency in mix)

    grown = wasted(state.free - (scene.request.memory_mb or gpu.memory_mb)) - wasted(state.free)
    capability = gpu.compute_capability or (0, 0)
    return (round(grown, 6), state.free, gpu.memory_mb, gpu.model, capability, state.place)


def local_gradient(state: GpuState, scene: Scene) -> tuple:
    """With its default price: a hundredth of the cGPU's memory."""
    grown, *ties = fragmentation(state, scene)
    is_remote = scene.request.consumer_host not in (None, state.gpu.host)
    price = 0.01 * (scene.request.memory_mb or state.gpu.memory_mb) if is_remote else 0.0
    return (round(grown + price, 6), is_remote, *ties)


KEYS: dict[str, Key] = {
    "best-fit": lambda state, _: (state.usable, state.place),
    "best-fit-utilisation": utilisation,
    "energy": lambda state, _: (
        state.gpu.used_mb + state.taken == 0,
        state.usable,
        state.place,
    ),
    "fewer-jobs-gpu": lambda state, _: (state.leases, -state.usable, state.place),
    "fewer-jobs-node": node,
    "first-fit": lambda state, _: state.place,
    "first-local": lambda state, scene: (
        state.gpu.host != (scene.request.consumer_host or state.gpu.host),
        state.place,
    ),
    "first-remote": lambda state, scene: (
        state.gpu.host == scene.request.consumer_host,
        state.place,
    ),
    "fragmentation-gradient": fragmentation,
    "least-load-fit": lambda state, _: (-state.usable, state.place),
    "local-gradient": local_gradient,
    "performance": lambda state, _: (state.leases, state.place),
    "round-robin": round_robin,
    "worst-fit": lambda state, _: (-state.usable, state.place),
}


def choose(
    request: Request,
    gpus: Iterable[Gpu],
    compute_hosts: frozenset[str],
    key: Key,
    mix: Mix = (),
) -> list[str] | None:
    """Return the UUIDs of the GPUs for cGPU 0, 1, …, or None."""
    gpus = list(gpus)
    consumer = request.consumer_host
    if request.locality == LOCAL and consumer is not None:
        if request.host not in (None, consumer):
            return None
        request = request.with_(locality=ANY, host=consumer)
    if request.locality == REMOTE and consumer is not None:
        excluded_gpus = [gpu for gpu in gpus if gpu.host == consumer]
        compute_hosts = frozenset(["the consumer's host"])
    else:
        excluded_gpus = []
    if request.host is not None:
        gpus = [gpu for gpu in gpus if gpu.host == request.host]
        request = request.with_(host=None, hosts=ANY)
    if request.locality == LOCAL or request.hosts == ONE or request.one_daemon:
        scene = make_scene(request, gpus, mix)
        here = [
            state
            for state in scene.cloud
            if state.usable and (request.locality != LOCAL or state.gpu.host in compute_hosts)
        ]
        for best in sorted(here, key=lambda state: key(state, scene)):
            if request.locality == REMOTE and not compute_hosts - {best.gpu.host}:
                continue
            if best.gpu in excluded_gpus:
                continue
            same_host = [gpu for gpu in gpus if gpu.host == best.gpu.host]
            chosen = place(request.with_(hosts=ANY), same_host, key, mix)
            if chosen is not None:
                return chosen
        return None
    chosen = place(request, gpus, key, mix, excluded_gpus[0].host if excluded_gpus else None)
    if request.locality != REMOTE or chosen is None:
        return chosen
    hosts = {gpu.uuid: gpu.host for gpu in gpus}
    first = excluded_gpus[0].host if excluded_gpus else None
    for excluded in [first, *(hosts[uuid] for uuid in reversed(_firsts(chosen, hosts)))]:
        chosen = place(request, gpus, key, mix, excluded)
        if chosen is not None and compute_hosts - {hosts[uuid] for uuid in chosen}:
            return chosen
    return None


def possible(request: Request, gpus: Iterable[Gpu], compute_hosts: frozenset[str]) -> bool:
    """Return whether any assignment exists. Tries all of them, so it is for a few GPUs only."""
    gpus = list(gpus)
    for chosen in itertools.combinations_with_replacement(gpus, request.count):
        hosts = {gpu.host for gpu in chosen}
        if not is_in_place(request, hosts, compute_hosts):
            continue
        if request.hosts == ONE and len(hosts) != 1:
            continue
        if request.one_daemon and (len(hosts), len(set(chosen))) != (1, request.count):
            continue
        if request.hosts == SPREAD and len(hosts) != request.count:
            continue
        if request.host is not None and hosts != {request.host}:
            continue
        if all(_holds(gpu, chosen.count(gpu), request) for gpu in set(chosen)):
            return True
    return False


def is_in_place(request: Request, hosts: set[str], compute_hosts: frozenset[str]) -> bool:
    """Return whether GPUs on these hosts meet the locality of *request*."""
    consumer = request.consumer_host
    if request.locality == LOCAL:
        return len(hosts) == 1 and hosts <= (compute_hosts if consumer is None else {consumer})
    if request.locality == REMOTE:
        return bool(compute_hosts - hosts) if consumer is None else consumer not in hosts
    return True


def make_scene(request: Request, gpus: Iterable[Gpu], mix: Mix) -> Scene:
    cloud = [GpuState(gpu, available(gpu, request), gpu.leases, gpu.given) for gpu in gpus]
    return Scene(request, cloud, mix)


def place(
    request: Request, gpus: list[Gpu], key: Key, mix: Mix, excluded: str | None = None
) -> list[str] | None:
    scene = make_scene(request, gpus, mix)
    excluded_hosts = {excluded}
    chosen: list[str] = []
    for position in range(request.count):
        fitting = [
            state for state in scene.cloud if state.usable and state.gpu.host not in excluded_hosts
        ]
        if not fitting:
            return None
        best = min(fitting, key=lambda state: key(state, scene))
        size = request.memory_mb or best.gpu.memory_mb
        best.taken += size
        best.usable = 0 if request.mode == EXCLUSIVE else best.usable - size
        if best.usable < size or request.one_daemon:
            best.usable = 0
        best.leases += best.gpu.uuid not in chosen
        best.given = 10**30 + position
        chosen.append(best.gpu.uuid)
        if request.hosts == SPREAD:
            excluded_hosts.add(best.gpu.host)
    return chosen


def is_of_kind(gpu: Gpu, request: Request) -> bool:
    if gpu.uuid.startswith("CPU-") != (request.kind == "cpu"):
        return False
    if request.gpu_model is not None and request.gpu_model.lower() not in gpu.model.lower():
        return False
    least = request.compute_capability
    return least is None or (gpu.compute_capability or (0, 0)) >= least


def available(gpu: Gpu, request: Request) -> int:
    """MiB that this request can use of *gpu*; 0 if it cannot use it at all."""
    if gpu.withheld or gpu.exclusive or not is_of_kind(gpu, request):
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
