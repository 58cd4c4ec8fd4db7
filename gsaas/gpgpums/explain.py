"""Why a request is refused, in one sentence, and what would fit instead.

Looks at every GPU: only refusals are explained. All cGPUs of a request are equal, so counting is
exact: a GPU with `a` MiB available holds `a // size` of them, and no order of placing them gains
one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence, Set
from dataclasses import replace

from gsaas.objects.gpu import EXCLUSIVE, Gpu, WithheldReason, format_capability
from gsaas.objects.placement import Refusal
from gsaas.objects.request import ANY, LOCAL, ONE, REMOTE, SPREAD, Request

CONSUMERS_HOST = "consumers-host"
NOT_COMPUTE_HOST = "not-compute-host"
HELD_EXCLUSIVELY = "exclusive"
IN_USE = "in-use"
MEMORY = "memory"
OTHER_MODEL = "model"
LOWER_CAPABILITY = "compute-capability"
OTHER_HOST = "host"

SAYINGS = {
    MEMORY: ("lacks {memory_mb} MiB free", "lack {memory_mb} MiB free"),
    IN_USE: ("is in use", "are in use"),
    HELD_EXCLUSIVELY: ("is held exclusively", "are held exclusively"),
    NOT_COMPUTE_HOST: ("is on a host that runs no VMs", "are on hosts that run no VMs"),
    WithheldReason.HOST_SILENT: (
        "is on a host whose monitor is silent",
        "are on hosts whose monitor is silent",
    ),
    WithheldReason.HOST_DISABLED: ("is on a disabled host", "are on disabled hosts"),
    WithheldReason.DISABLED: ("is disabled", "are disabled"),
    WithheldReason.WITHDRAWN: ("has failed", "have failed"),
    WithheldReason.RESERVED: ("is kept for those who wait", "are kept for those who wait"),
    LOWER_CAPABILITY: (
        "has no compute capability of {compute_capability}",
        "have no compute capability of {compute_capability}",
    ),
    OTHER_MODEL: ("is no {gpu_model}", "are no {gpu_model}"),
    OTHER_HOST: ("is not on {host}", "are not on {host}"),
}
"""What a filter says of one GPU, and of several; told in this order, nearest to fitting first."""

Available = Callable[[Gpu], int]


RELAXABLE = {
    "hosts": "whatever the hosts",
    "host": "on another host",
    "compute_capability": "with a lower compute capability",
    "gpu_model": "on another model",
}
"""Requirements that a refused caller might give up, and what the request is then; least dear first."""


def refuse(
    request: Request,
    gpus: Sequence[Gpu],
    compute_hosts: Set[str],
    policy: str,
    relaxable: Collection[str] = RELAXABLE,
) -> Refusal:
    """Explain why *policy* found no place for *request* among *gpus*, all that the cloud owns.

    Of its requirements, the *relaxable* ones might be given up.
    """
    if not gpus:
        return Refusal(True, "no GPU host has reported any GPU yet")
    if request.consumer_host is not None and request.locality != ANY:
        return _seen_from_consumer(request, gpus, compute_hosts, policy)

    def owned(gpu: Gpu) -> int:
        return gpu.memory_mb

    free = _free(request)
    filters = _filters(request, gpus, compute_hosts)
    most_ever = _most(request, gpus, compute_hosts, owned)
    most_now = _most(request, gpus, compute_hosts, free)
    if most_now >= request.count:
        fitting = sum(request.fits(gpu) for gpu in gpus)
        reason = f"the policy {policy} wants none of the {_gpus(fitting)} that would fit"
        return Refusal(False, reason, filters)
    nearest, relaxed = _nearest(request, gpus, compute_hosts, free), None
    if nearest is None:
        nearest, relaxed = _relaxed(request, gpus, compute_hosts, free, relaxable)
    if most_ever < request.count:
        reason = _impossible(request, gpus, compute_hosts, most_ever)
        return Refusal(True, reason + _instead(nearest, relaxed), filters, nearest, relaxed)
    reason = _busy(request, gpus, filters, most_now)
    if nearest is None:
        reason += "; nothing smaller would fit now either"
    elif relaxed is None:
        reason += f"; the largest request that would fit now is {_wanted(nearest)}"
    else:
        reason += _instead(nearest, relaxed)
    return Refusal(False, reason, filters, nearest, relaxed)


def _free(request: Request) -> Available:
    return lambda gpu: gpu.available(request.mode)


def _instead(nearest: Request | None, relaxed: str | None) -> str:
    """What giving up one requirement would bring; nothing if none was given up."""
    if nearest is None or relaxed is None:
        return ""
    return f"; {_wanted(nearest)} would fit now {RELAXABLE[relaxed]}"


def _seen_from_consumer(
    request: Request, gpus: Sequence[Gpu], compute_hosts: Set[str], policy: str
) -> Refusal:
    """Explain in terms of hosts what `local` and `remote` are about, once it is known where the consumer is."""
    here = request.consumer_host
    if request.locality == LOCAL:
        on_it = request.with_(locality=ANY, host=here)
        if request.host not in (None, here):
            reason = f"no GPU of {request.host} is local to a consumer on {here}"
            nearest = _nearest(on_it, gpus, compute_hosts, _free(request))
            if nearest is None:
                return Refusal(True, reason)
            nearest = nearest.with_(locality=LOCAL, host=None)
            return Refusal(True, reason + _instead(nearest, "host"), (), nearest, "host")
        # Who asks for this host in both words gains nothing by giving up one of them.
        relaxable = RELAXABLE if request.host is None else RELAXABLE.keys() - {"host"}
        refusal = refuse(on_it, gpus, compute_hosts, policy, relaxable)
        nearest = refusal.nearest
        if nearest is not None and nearest.host is not None:
            nearest = nearest.with_(locality=LOCAL, host=request.host)
        relaxed = refusal.relaxed
        if relaxed == "host" and request.host is None:  # which nobody asked for
            relaxed = "locality"
        return replace(refusal, nearest=nearest, relaxed=relaxed)
    beside = [gpu for gpu in gpus if gpu.host != here]
    if not beside:
        return Refusal(True, f"all GPUs of this cloud are on {here}, the consumer's own host")
    refusal = refuse(request.with_(locality=ANY), beside, compute_hosts, policy)
    spared = len(gpus) - len(beside)
    return replace(
        refusal,
        reason=f"beside {here}, the consumer's own host: {refusal.reason}",
        filters=(*refusal.filters, (CONSUMERS_HOST, spared)) if spared else refusal.filters,
        nearest=refusal.nearest and refusal.nearest.with_(locality=REMOTE),
    )


def capacity(gpus: Iterable[Gpu], mode: str, memory_mb: int | None) -> int:
    """How many cGPUs of *memory_mb* MiB (whole GPUs in exclusive mode) *gpus* can hold now."""
    return sum(_holds(gpu.available(mode), memory_mb) for gpu in gpus)


def _holds(available: int, memory_mb: int | None) -> int:
    return int(available > 0) if memory_mb is None else available // memory_mb


def _most(
    request: Request, gpus: Iterable[Gpu], compute_hosts: Set[str], available: Available
) -> int:
    """The largest count for which a request of this size and these requirements has a place."""
    by_host: Counter[str] = Counter()
    for gpu in gpus:
        if request.wants(gpu):
            by_host[gpu.host] += _holds(available(gpu), request.memory_mb)
    if request.hosts == SPREAD:
        by_host = Counter({host: min(1, holds) for host, holds in by_host.items()})
    at_compute_hosts = [by_host[host] for host in compute_hosts]
    if request.locality == LOCAL:
        return max(at_compute_hosts, default=0)
    if request.hosts == ONE:
        remote = request.locality == REMOTE
        allowed = (host for host in by_host if not (remote and compute_hosts <= {host}))
        return max((by_host[host] for host in allowed), default=0)
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


def _relaxed(
    request: Request,
    gpus: Sequence[Gpu],
    compute_hosts: Set[str],
    free: Available,
    relaxable: Collection[str],
) -> tuple[Request, str] | tuple[None, None]:
    """The largest request that gives up one requirement and fits now, and which one it gives up."""
    best: tuple[Request, str] | tuple[None, None] = (None, None)
    for word in RELAXABLE:
        if word not in relaxable or word not in request.requirements():
            continue
        other = request.with_(**{word: ANY if word == "hosts" else None})
        nearest = _nearest(other, gpus, compute_hosts, free)
        if nearest is not None and (best[0] is None or _size(nearest) > _size(best[0])):
            best = (nearest, word)
    return best


def _size(request: Request) -> int:
    """What requests are compared by that differ in count or in memory, not in both."""
    return request.count * (request.memory_mb or 1)


def _filters(
    request: Request, gpus: Iterable[Gpu], compute_hosts: Set[str]
) -> tuple[tuple[str, int], ...]:
    """(filter, GPUs it drops); a GPU is dropped by the first of them that applies."""
    dropped = Counter(_dropped_by(request, gpu, compute_hosts) for gpu in gpus)
    return tuple((str(name), dropped[name]) for name in SAYINGS if dropped[name])


def _dropped_by(request: Request, gpu: Gpu, compute_hosts: Set[str]) -> str | None:
    if request.host is not None and gpu.host != request.host:
        return OTHER_HOST
    if not request.with_(compute_capability=None).wants(gpu):
        return OTHER_MODEL
    if not request.wants(gpu):
        return LOWER_CAPABILITY
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
    format_capability = [f"{first} of {_gpus(len(gpus))} {saying}"]
    format_capability += [f"{count} {saying}" for count, saying in others]
    return ", ".join(format_capability)


def _shortage(request: Request, fitting: int, most_now: int) -> str:
    """Why GPUs that fit are not enough."""
    if request.locality == LOCAL:
        return f"no compute host has room for more than {most_now}"
    if request.hosts == ONE:
        return f"no host has room for more than {most_now}"
    if request.hosts == SPREAD and request.locality != REMOTE:
        return f"they are on {most_now} host" + ("s" if most_now != 1 else "")
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
    kind = _kind(request)
    asked = [gpu for gpu in gpus if request.wants(gpu)]
    if not asked:
        return _none_such(request, gpus)
    largest = max(gpu.memory_mb for gpu in asked)
    if request.memory_mb is not None and request.memory_mb > largest:
        return (
            f"{request.memory_mb} MiB is more than the largest GPU{kind or ' of this cloud'} has: "
            f"{largest} MiB"
        )
    wanted = _wanted(request)
    if request.locality == LOCAL:
        return f"{wanted} on one host cannot be had: no compute host can hold more than {most_ever}"
    if request.hosts == ONE:
        host = "host beside the VM's" if request.locality == REMOTE else "host"
        return f"{wanted} on one host cannot be had: no {host} can hold more than {most_ever}"
    if request.hosts == SPREAD and request.locality != REMOTE:
        hosts = len({gpu.host for gpu in asked})
        of_them = "the GPUs are" if not kind else f"the GPUs{kind} are"
        return f"{wanted} on as many hosts cannot be had: {of_them} on {hosts}"
    if request.locality == REMOTE:
        return f"{wanted} cannot be had: the GPUs beside one compute host can hold {most_ever}"
    owned = f"{_gpus(len(asked))}{kind or ' of this cloud'}"
    return f"{wanted} cannot be had: the {owned} can hold {most_ever}"


def _none_such(request: Request, gpus: Sequence[Gpu]) -> str:
    """Which requirement no GPU meets, and what could be asked for instead."""
    if request.host is not None and all(gpu.host != request.host for gpu in gpus):
        return f"there is no GPU host {request.host}"
    here = "of this cloud" if request.host is None else f"of {request.host}"
    there = [gpu for gpu in gpus if request.host in (None, gpu.host)]
    if request.gpu_model is not None:
        of_model = [gpu for gpu in there if request.with_(compute_capability=None).wants(gpu)]
        if not of_model:
            models = ", ".join(sorted({gpu.model for gpu in there}))
            return f"no GPU {here} is of model {request.gpu_model}; the models are {models}"
        there, here = of_model, f"{here} of model {request.gpu_model}"
    asked = format_capability(request.compute_capability)
    highest = max((gpu.compute_capability for gpu in there if gpu.compute_capability), default=None)
    if highest is None:
        return f"no GPU {here} tells its compute capability, so none is known to have {asked}"
    return f"no GPU {here} has a compute capability of {asked}; the highest is {format_capability(highest)}"


def _kind(request: Request) -> str:
    """The kind of GPUs asked for, to follow the word GPU; empty if every kind will do."""
    words = []
    if request.gpu_model is not None:
        words.append(f" of model {request.gpu_model}")
    if request.compute_capability is not None:
        words.append(
            f" of compute capability {format_capability(request.compute_capability)} or more"
        )
    if request.host is not None:
        words.append(f" on {request.host}")
    return "".join(words)


def _wanted(request: Request) -> str:
    if request.memory_mb is None:
        return "1 whole GPU" if request.count == 1 else f"{request.count} whole GPUs"
    noun = "cGPU" if request.count == 1 else "cGPUs"
    return f"{request.count} {noun} of {request.memory_mb} MiB"


def _gpus(count: int) -> str:
    return "1 GPU" if count == 1 else f"{count} GPUs"
