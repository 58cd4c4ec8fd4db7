"""The pool's rules written down a second time, in the slowest and plainest way: look at
everything, every time."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from gsaas.gpgpums.indexed_gpus import Mix
from gsaas.objects.gpu import EXCLUSIVE, Gpu
from gsaas.objects.request import ANY, LOCAL, ONE, REMOTE, SPREAD, Request


@dataclass
class Seen:
    """A GPU while a request is being placed."""

    gpu: Gpu
    left: int
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
class Picture:
    """What a policy looks at."""

    request: Request
    cloud: list[Seen]
    mix: Mix = field(default=())


Key = Callable[[Seen, Picture], tuple]
"""How much a policy dislikes a GPU: it takes one that it dislikes least."""


def round_robin(seen: Seen, picture: Picture) -> tuple:
    given = [other for other in picture.cloud if other.given]
    if not given:
        return seen.place
    last = min(given, key=lambda other: (-other.given, other.place))
    return (seen.place <= last.place, seen.place)


def utilisation(seen: Seen, _picture: Picture) -> tuple:
    known = seen.gpu.utilisation
    return (101 if known is None else known, seen.leases, -seen.left, seen.place)


def node(seen: Seen, picture: Picture) -> tuple:
    mates = [other for other in picture.cloud if other.gpu.host == seen.gpu.host]
    return (sum(mate.leases for mate in mates), seen.gpu.host, -seen.left, seen.place)


def fragmentation(seen: Seen, picture: Picture) -> tuple:
    mix = picture.mix or [(picture.request, 1.0)]
    gpu = seen.gpu

    def wasted(free: int) -> float:
        total = 0.0
        for wanted, often in mix:
            enough = free == gpu.memory_mb if wanted.memory_mb is None else free >= wanted.memory_mb
            if not (enough and is_of_kind(gpu, wanted)):
                total += free * often
        return total / sum(often for _, often in mix)

    grown = wasted(seen.free - (picture.request.memory_mb or gpu.memory_mb)) - wasted(seen.free)
    capability = gpu.compute_capability or (0, 0)
    return (round(grown, 6), seen.free, gpu.memory_mb, gpu.model, capability, seen.place)


KEYS: dict[str, Key] = {
    "best-fit": lambda seen, _: (seen.left, seen.place),
    "best-fit-utilisation": utilisation,
    "energy": lambda seen, _: (seen.gpu.used_mb + seen.taken == 0, seen.left, seen.place),
    "fewer-jobs-gpu": lambda seen, _: (seen.leases, -seen.left, seen.place),
    "fewer-jobs-node": node,
    "first-fit": lambda seen, _: seen.place,
    "first-local": lambda seen, picture: (
        seen.gpu.host != (picture.request.consumer_host or seen.gpu.host),
        seen.place,
    ),
    "first-remote": lambda seen, picture: (
        seen.gpu.host == picture.request.consumer_host,
        seen.place,
    ),
    "fragmentation-gradient": fragmentation,
    "least-load-fit": lambda seen, _: (-seen.left, seen.place),
    "performance": lambda seen, _: (seen.leases, seen.place),
    "round-robin": round_robin,
    "worst-fit": lambda seen, _: (-seen.left, seen.place),
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
        gone = [gpu for gpu in gpus if gpu.host == consumer]
        compute_hosts = frozenset(["wherever the consumer is"])
    else:
        gone = []
    if request.host is not None:
        gpus = [gpu for gpu in gpus if gpu.host == request.host]
        request = request.with_(host=None, hosts=ANY)
    if request.locality == LOCAL or request.hosts == ONE:
        picture = look(request, gpus, mix)
        here = [
            seen
            for seen in picture.cloud
            if seen.left and (request.locality != LOCAL or seen.gpu.host in compute_hosts)
        ]
        for best in sorted(here, key=lambda seen: key(seen, picture)):
            if request.locality == REMOTE and not compute_hosts - {best.gpu.host}:
                continue
            if best.gpu in gone:
                continue
            mates = [gpu for gpu in gpus if gpu.host == best.gpu.host]
            chosen = place(request.with_(hosts=ANY), mates, key, mix)
            if chosen is not None:
                return chosen
        return None
    chosen = place(request, gpus, key, mix, gone[0].host if gone else None)
    if request.locality != REMOTE or chosen is None:
        return chosen
    hosts = {gpu.uuid: gpu.host for gpu in gpus}
    first = gone[0].host if gone else None
    for spared in [first, *(hosts[uuid] for uuid in reversed(_firsts(chosen, hosts)))]:
        chosen = place(request, gpus, key, mix, spared)
        if chosen is not None and compute_hosts - {hosts[uuid] for uuid in chosen}:
            return chosen
    return None


def possible(request: Request, gpus: Iterable[Gpu], compute_hosts: frozenset[str]) -> bool:
    """Is there any assignment at all? Tries every one: for a handful of GPUs."""
    gpus = list(gpus)
    for chosen in itertools.combinations_with_replacement(gpus, request.count):
        hosts = {gpu.host for gpu in chosen}
        if not is_in_place(request, hosts, compute_hosts):
            continue
        if request.hosts == ONE and len(hosts) != 1:
            continue
        if request.hosts == SPREAD and len(hosts) != request.count:
            continue
        if request.host is not None and hosts != {request.host}:
            continue
        if all(_holds(gpu, chosen.count(gpu), request) for gpu in set(chosen)):
            return True
    return False


def is_in_place(request: Request, hosts: set[str], compute_hosts: frozenset[str]) -> bool:
    """Is locality content with GPUs on these hosts?"""
    consumer = request.consumer_host
    if request.locality == LOCAL:
        return len(hosts) == 1 and hosts <= (compute_hosts if consumer is None else {consumer})
    if request.locality == REMOTE:
        return bool(compute_hosts - hosts) if consumer is None else consumer not in hosts
    return True


def look(request: Request, gpus: Iterable[Gpu], mix: Mix) -> Picture:
    cloud = [Seen(gpu, available(gpu, request), gpu.leases, gpu.given) for gpu in gpus]
    return Picture(request, cloud, mix)


def place(
    request: Request, gpus: list[Gpu], key: Key, mix: Mix, spared: str | None = None
) -> list[str] | None:
    picture = look(request, gpus, mix)
    closed = {spared}
    chosen: list[str] = []
    for turn in range(request.count):
        fitting = [seen for seen in picture.cloud if seen.left and seen.gpu.host not in closed]
        if not fitting:
            return None
        best = min(fitting, key=lambda seen: key(seen, picture))
        size = request.memory_mb or best.gpu.memory_mb
        best.taken += size
        best.left = 0 if request.mode == EXCLUSIVE else best.left - size
        if best.left < size:
            best.left = 0
        best.leases += best.gpu.uuid not in chosen
        best.given = 10**30 + turn
        chosen.append(best.gpu.uuid)
        if request.hosts == SPREAD:
            closed.add(best.gpu.host)
    return chosen


def is_of_kind(gpu: Gpu, request: Request) -> bool:
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
