"""Why a request is refused, in one sentence, and what would fit instead.

Looks at every GPU: only refusals are explained. All cGPUs of a request are equal, so counting is
exact: a GPU with `a` MiB available holds `a // size` of them, and no order of placing them gains
one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence, Set

from gsaas.gpgpums.state import EXCLUSIVE, LOCAL, REMOTE, Gpu, Refusal, Request, Withheld

NOT_COMPUTE_HOST = "not-compute-host"
HELD_EXCLUSIVELY = "exclusive"
IN_USE = "in-use"
MEMORY = "memory"

SAYINGS = {
    MEMORY: ("lacks {memory_mb} MiB free", "lack {memory_mb} MiB free"),
    IN_USE: ("is in use", "are in use"),
    HELD_EXCLUSIVELY: ("is held exclusively", "are held exclusively"),
    NOT_COMPUTE_HOST: ("is on a host that runs no VMs", "are on hosts that run no VMs"),
    Withheld.HOST_SILENT: (
        "is on a host whose monitor is silent",
        "are on hosts whose monitor is silent",
    ),
    Withheld.HOST_DISABLED: ("is on a disabled host", "are on disabled hosts"),
    Withheld.DISABLED: ("is disabled", "are disabled"),
}
"""What a filter says of one GPU, and of several; told in this order, nearest to fitting first."""

Available = Callable[[Gpu], int]


def refuse(request: Request, gpus: Sequence[Gpu], compute_hosts: Set[str], policy: str) -> Refusal:
    """Explain why *policy* found no place for *request* among *gpus*, all that the cloud owns."""
    if not gpus:
        return Refusal(True, "no GPU host has reported any GPU yet")

    def owned(gpu: Gpu) -> int:
        return gpu.memory_mb

    def free(gpu: Gpu) -> int:
        return gpu.available(request.mode)

    filters = _filters(request, gpus, compute_hosts)
    nearest = _nearest(request, gpus, compute_hosts, free)
    most_ever = _most(request, gpus, compute_hosts, owned)
    if most_ever < request.count:
        reason = _impossible(request, gpus, compute_hosts, most_ever)
        return Refusal(True, reason, filters, nearest)
    most_now = _most(request, gpus, compute_hosts, free)
    if most_now >= request.count:
        fitting = sum(request.fits(gpu) for gpu in gpus)
        reason = f"the policy {policy} wants none of the {_gpus(fitting)} that would fit"
        return Refusal(False, reason, filters)
    reason = _busy(request, gpus, filters, most_now)
    if nearest is None:
        return Refusal(False, f"{reason}; nothing smaller would fit now either", filters)
    reason = f"{reason}; the largest request that would fit now is {_wanted(nearest)}"
    return Refusal(False, reason, filters, nearest)


def capacity(gpus: Iterable[Gpu], mode: str, memory_mb: int | None) -> int:
    """How many cGPUs of *memory_mb* MiB (whole GPUs in exclusive mode) *gpus* can hold now."""
    return sum(_holds(gpu.available(mode), memory_mb) for gpu in gpus)


def _holds(available: int, memory_mb: int | None) -> int:
    return int(available > 0) if memory_mb is None else available // memory_mb


def _most(
    request: Request, gpus: Iterable[Gpu], compute_hosts: Set[str], available: Available
) -> int:
    """The largest count for which a request of this size and locality has a place."""
    by_host: Counter[str] = Counter()
    for gpu in gpus:
        by_host[gpu.host] += _holds(available(gpu), request.memory_mb)
    at_compute_hosts = [by_host[host] for host in compute_hosts]
    if request.locality == LOCAL:
        return max(at_compute_hosts, default=0)
    if request.locality == REMOTE:  # one compute host, with least to lose, is left for the VM
        return by_host.total() - min(at_compute_hosts) if at_compute_hosts else 0
    return by_host.total()


def _nearest(
    request: Request, gpus: Sequence[Gpu], compute_hosts: Set[str], free: Available
) -> Request | None:
    """The largest request like this one that fits now: of its size if any, else of its count."""
    most = _most(request, gpus, compute_hosts, free)
    if most:
        return request.with_(count=min(most, request.count))
    if request.memory_mb is None:
        return None
    fits, too_large = 0, request.memory_mb
    while too_large - fits > 1:
        middle = (fits + too_large) // 2
        smaller = request.with_(memory_mb=middle)
        if _most(smaller, gpus, compute_hosts, free) >= request.count:
            fits = middle
        else:
            too_large = middle
    return request.with_(memory_mb=fits) if fits else None


def _filters(
    request: Request, gpus: Iterable[Gpu], compute_hosts: Set[str]
) -> tuple[tuple[str, int], ...]:
    """(filter, GPUs it drops); a GPU is dropped by the first of them that applies."""
    dropped = Counter(_dropped_by(request, gpu, compute_hosts) for gpu in gpus)
    return tuple((str(name), dropped[name]) for name in SAYINGS if dropped[name])


def _dropped_by(request: Request, gpu: Gpu, compute_hosts: Set[str]) -> str | None:
    if gpu.withheld is not None:
        return gpu.withheld
    if request.locality == LOCAL and gpu.host not in compute_hosts:
        return NOT_COMPUTE_HOST
    if gpu.exclusive:
        return HELD_EXCLUSIVELY
    if request.mode == EXCLUSIVE and gpu.used_mb:
        return IN_USE
    return None if request.fits(gpu) else MEMORY


def _busy(
    request: Request, gpus: Sequence[Gpu], filters: tuple[tuple[str, int], ...], most_now: int
) -> str:
    clauses = []
    for name, count in filters:
        one, several = SAYINGS[name]
        clauses.append((count, (one if count == 1 else several).format(**request.to_dict())))
    fitting = len(gpus) - sum(count for _, count in filters)
    if fitting:
        clauses.append((fitting, f"would fit, but {_shortage(request, fitting, most_now)}"))
    (first, saying), *others = clauses
    told = [f"{first} of {_gpus(len(gpus))} {saying}"]
    told += [f"{count} {saying}" for count, saying in others]
    return ", ".join(told)


def _shortage(request: Request, fitting: int, most_now: int) -> str:
    """Why GPUs that fit are not enough."""
    if request.locality == LOCAL:
        return f"no compute host has room for more than {most_now}"
    if request.locality == REMOTE:
        return f"with one compute host left for the VM there is room for {most_now}"
    together = "has" if fitting == 1 else "together have"
    return f"{together} room for only {most_now}"


def _impossible(
    request: Request, gpus: Sequence[Gpu], compute_hosts: Set[str], most_ever: int
) -> str:
    if request.locality == REMOTE and not compute_hosts:
        return "remote asks for a compute host without these GPUs, and no compute host is known"
    if request.locality == LOCAL and compute_hosts.isdisjoint(gpu.host for gpu in gpus):
        return "local asks for a compute host with GPUs, and there is none"
    largest = max(gpu.memory_mb for gpu in gpus)
    if request.memory_mb is not None and request.memory_mb > largest:
        return (
            f"{request.memory_mb} MiB is more than the largest GPU of this cloud has: {largest} MiB"
        )
    wanted = _wanted(request)
    if request.locality == LOCAL:
        return f"{wanted} on one host cannot be had: no compute host can hold more than {most_ever}"
    if request.locality == REMOTE:
        return f"{wanted} cannot be had: the GPUs beside one compute host can hold {most_ever}"
    return f"{wanted} cannot be had: the {_gpus(len(gpus))} of this cloud can hold {most_ever}"


def _wanted(request: Request) -> str:
    if request.memory_mb is None:
        return "1 whole GPU" if request.count == 1 else f"{request.count} whole GPUs"
    noun = "cGPU" if request.count == 1 else "cGPUs"
    return f"{request.count} {noun} of {request.memory_mb} MiB"


def _gpus(count: int) -> str:
    return "1 GPU" if count == 1 else f"{count} GPUs"
