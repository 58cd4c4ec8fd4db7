# SPDX-License-Identifier: Apache-2.0
"""Explains a refusal: the reason in one sentence, and the largest similar request that would fit.

It looks at every GPU, and is called for refusals only. All cGPUs of a request have the same size, so counting is exact:
a GPU with `a` MiB available has room for `a // size` of them, in whatever order they are placed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence, Set
from dataclasses import replace

from gsaas.objects.device_kinds import CUDA
from gsaas.objects.gpu import EXCLUSIVE, Gpu, WithheldReason, format_capability
from gsaas.objects.placement import Refusal
from gsaas.objects.request import ANY, LOCAL, REMOTE, SPREAD, Request

CONSUMERS_HOST = "consumers-host"
NOT_COMPUTE_HOST = "not-compute-host"
IN_EXCLUSIVE_USE = "exclusive"
IN_USE = "in-use"
MEMORY = "memory"
RESERVATION = "reservation"
OTHER_MODEL = "model"
LOWER_CAPABILITY = "compute-capability"
OTHER_HOST = "host"
OTHER_KIND = "kind"
MIG_INSTANCE = "mig-instance"

FILTER_PHRASES = {
    RESERVATION: ("is kept for a reservation", "are kept for reservations"),
    MEMORY: ("lacks {memory_mb} MiB free", "lack {memory_mb} MiB free"),
    IN_USE: ("is in use", "are in use"),
    IN_EXCLUSIVE_USE: ("is held exclusively", "are held exclusively"),
    NOT_COMPUTE_HOST: ("is on a host that runs no VMs", "are on hosts that run no VMs"),
    WithheldReason.HOST_SILENT: (
        "is on a host whose monitor is silent",
        "are on hosts whose monitor is silent",
    ),
    WithheldReason.HOST_DISABLED: ("is on a disabled host", "are on disabled hosts"),
    WithheldReason.DISABLED: ("is disabled", "are disabled"),
    WithheldReason.WITHDRAWN: ("has failed", "have failed"),
    WithheldReason.BARRED: ("is kept for a request that waits", "are kept for requests that wait"),
    LOWER_CAPABILITY: (
        "has no compute capability of {compute_capability}",
        "have no compute capability of {compute_capability}",
    ),
    MIG_INSTANCE: (
        "is a MIG instance, of which a lease gets one only here",
        "are MIG instances, of which a lease gets one only here",
    ),
    OTHER_MODEL: ("is no {gpu_model}", "are no {gpu_model}"),
    OTHER_HOST: ("is not on {host}", "are not on {host}"),
    OTHER_KIND: ("is of another kind", "are of another kind"),
}
"""Filter -> its phrase for one GPU, and for several. In this order, GPUs that are nearest to fitting come first."""

Available = Callable[[Gpu], int]
"""Returns how many MiB of a GPU count as available."""

RELAXABLE = {
    "hosts": "whatever the hosts",
    "host": "on another host",
    "compute_capability": "with a lower compute capability",
    "gpu_model": "on another model",
}
"""Requirement that a caller might give up -> phrase for a request without it; the least important first. The kind is
none: a program cannot use another one."""


def refuse(
    request: Request,
    gpus: Sequence[Gpu],
    compute_hosts: Set[str],
    policy: str,
    relaxable: Collection[str] = RELAXABLE,
) -> Refusal:
    """Return the refusal of *request*, for which the policy named *policy* found no place.

    *gpus* are all GPUs of the cloud. The refusal may suggest to give up one of the *relaxable* requirements.
    """
    if not gpus:
        return Refusal(True, "no GPU host has reported any GPU yet")
    if request.consumer_host is not None and request.locality != ANY:
        return _refuse_for_consumer_host(request, gpus, compute_hosts, policy)

    free = _free(request)
    filters = _count_filters(request, gpus, compute_hosts)
    count_when_idle = _largest_count(request, gpus, compute_hosts, _whole)
    count_now = _largest_count(request, gpus, compute_hosts, free)
    if count_now >= request.count:
        fitting = sum(request.fits(gpu) for gpu in gpus)
        reason = f"the policy {policy} wants none of the {_gpus_phrase(fitting)} that would fit"
        return Refusal(False, reason, filters)
    nearest, relaxed = _largest_fitting(request, gpus, compute_hosts, free), None
    if nearest is None:
        nearest, relaxed = _largest_relaxed(request, gpus, compute_hosts, free, relaxable)
    several = _with_several_daemons(request, gpus, compute_hosts)
    if count_when_idle < request.count:
        reason = _reason_never(request, gpus, compute_hosts, count_when_idle)
        if several and nearest is not None and relaxed is None:
            reason += f"; the largest request that would fit now is {_request_phrase(nearest)}"
        reason += _suggestion(nearest, relaxed) + several
        return Refusal(True, reason, filters, nearest, relaxed)
    reason = _reason_now(request, gpus, filters, count_now)
    if nearest is None:
        reason += "; nothing smaller would fit now either"
    elif relaxed is None:
        reason += f"; the largest request that would fit now is {_request_phrase(nearest)}"
    else:
        reason += _suggestion(nearest, relaxed)
    return Refusal(False, reason + several, filters, nearest, relaxed)


def _with_several_daemons(request: Request, gpus: Sequence[Gpu], compute_hosts: Set[str]) -> str:
    """Return the part of a reason that says what would fit if several daemons served the cGPUs; empty if nothing would.

    It is for requests that one daemon has to serve.
    """
    if not request.one_daemon:
        return ""
    other = request.with_(one_daemon=False)
    if _largest_count(other, gpus, compute_hosts, _free(other)) >= request.count:
        fit = "would fit now"
    elif _largest_count(other, gpus, compute_hosts, _whole) >= request.count:
        fit = "could be had"
    else:
        return ""
    return (
        "; one daemon serves all cGPUs of a lease here, so they are on one host, each on a GPU of its own: "
        f"{_request_phrase(request)} {fit} with several daemons, which your operator may allow "
        "([remoting]several_daemons)"
    )


def _whole(gpu: Gpu) -> int:
    return gpu.memory_mb


def _free(request: Request) -> Available:
    return lambda gpu: gpu.available(request.mode)


def _suggestion(nearest: Request | None, relaxed: str | None) -> str:
    """Return the part of a reason that says what would fit without one requirement; empty without a suggestion."""
    if nearest is None or relaxed is None:
        return ""
    return f"; {_request_phrase(nearest)} would fit now {RELAXABLE[relaxed]}"


def _refuse_for_consumer_host(
    request: Request, gpus: Sequence[Gpu], compute_hosts: Set[str], policy: str
) -> Refusal:
    """Return the refusal of a request with locality `local` or `remote` whose consumer's host is known."""
    consumer_host = request.consumer_host
    if request.locality == LOCAL:
        on_host = request.with_(locality=ANY, host=consumer_host)
        if request.host not in (None, consumer_host):
            reason = f"no GPU of {request.host} is local to a consumer on {consumer_host}"
            nearest = _largest_fitting(on_host, gpus, compute_hosts, _free(request))
            if nearest is None:
                return Refusal(True, reason)
            nearest = nearest.with_(locality=LOCAL, host=None)
            return Refusal(True, reason + _suggestion(nearest, "host"), (), nearest, "host")
        # A request that names the consumer's host, too, gains nothing by giving up the host alone.
        relaxable = RELAXABLE if request.host is None else RELAXABLE.keys() - {"host"}
        refusal = refuse(on_host, gpus, compute_hosts, policy, relaxable)
        nearest = refusal.nearest
        if nearest is not None and nearest.host is not None:
            nearest = nearest.with_(locality=LOCAL, host=request.host)
        relaxed = refusal.relaxed
        if relaxed == "host" and request.host is None:  # only `local` asked for this host
            relaxed = "locality"
        return replace(refusal, nearest=nearest, relaxed=relaxed)
    beside = [gpu for gpu in gpus if gpu.host != consumer_host]
    if not beside:
        return Refusal(
            True, f"all GPUs of this cloud are on {consumer_host}, the consumer's own host"
        )
    refusal = refuse(request.with_(locality=ANY), beside, compute_hosts, policy)
    on_consumer_host = len(gpus) - len(beside)
    return replace(
        refusal,
        reason=f"beside {consumer_host}, the consumer's own host: {refusal.reason}",
        filters=(
            (*refusal.filters, (CONSUMERS_HOST, on_consumer_host))
            if on_consumer_host
            else refusal.filters
        ),
        nearest=refusal.nearest and refusal.nearest.with_(locality=REMOTE),
    )


def capacity(gpus: Iterable[Gpu], request: Request) -> int:
    """Return how many cGPUs of *request* the GPUs that it wants have room for now."""
    wanted = filter(request.wants, gpus)
    return sum(_room(gpu.available(request.mode), request) for gpu in wanted)


def _room(available: int, request: Request) -> int:
    """Return how many cGPUs of *request* a GPU with *available* MiB has room for."""
    if request.memory_mb is None or request.one_daemon:
        return int(available >= (request.memory_mb or 1))
    return available // request.memory_mb


def _largest_count(
    request: Request, gpus: Iterable[Gpu], compute_hosts: Set[str], available: Available
) -> int:
    """Return the largest count for which a request of this size and these requirements has a place."""
    by_host: Counter[str] = Counter()
    for gpu in gpus:
        if request.wants(gpu):
            by_host[gpu.host] += _room(available(gpu), request)
    if request.hosts == SPREAD:
        by_host = Counter({host: min(1, room) for host, room in by_host.items()})
    at_compute_hosts = [by_host[host] for host in compute_hosts]
    if request.locality == LOCAL:
        return max(at_compute_hosts, default=0)
    if request.on_one_host:
        remote = request.locality == REMOTE
        allowed = (host for host in by_host if not (remote and compute_hosts <= {host}))
        return max((by_host[host] for host in allowed), default=0)
    if request.locality == REMOTE:  # the compute host with least room is left for the VM
        return by_host.total() - min(at_compute_hosts) if at_compute_hosts else 0
    return by_host.total()


def _largest_fitting(
    request: Request, gpus: Sequence[Gpu], compute_hosts: Set[str], free: Available
) -> Request | None:
    """Return the largest similar request that fits now: with the same size, or else with the same count."""
    most = _largest_count(request, gpus, compute_hosts, free)
    if most:
        return request.with_(count=min(most, request.count))
    if request.memory_mb is None:
        return None
    fits, too_large = 0, request.memory_mb  # bisect the size
    while too_large - fits > 1:
        middle = (fits + too_large) // 2
        smaller = request.with_(memory_mb=middle)
        if _largest_count(smaller, gpus, compute_hosts, free) >= request.count:
            fits = middle
        else:
            too_large = middle
    return request.with_(memory_mb=fits) if fits else None


def _largest_relaxed(
    request: Request,
    gpus: Sequence[Gpu],
    compute_hosts: Set[str],
    free: Available,
    relaxable: Collection[str],
) -> tuple[Request, str] | tuple[None, None]:
    """Return the largest request that fits now without one of the requirements, and the name of that one."""
    best: tuple[Request, str] | tuple[None, None] = (None, None)
    for name in RELAXABLE:
        if name not in relaxable or name not in request.requirements():
            continue
        other = request.with_(**{name: ANY if name == "hosts" else None})
        nearest = _largest_fitting(other, gpus, compute_hosts, free)
        if nearest is not None and (best[0] is None or _amount(nearest) > _amount(best[0])):
            best = (nearest, name)
    return best


def _amount(request: Request) -> int:
    """Return what requests are compared by that differ either in count or in memory, not in both."""
    return request.count * (request.memory_mb or 1)


def _count_filters(
    request: Request, gpus: Iterable[Gpu], compute_hosts: Set[str]
) -> tuple[tuple[str, int], ...]:
    """Return (filter, number of GPUs that it leaves out); a GPU counts for the first filter that applies."""
    counts = Counter(_filter_of(request, gpu, compute_hosts) for gpu in gpus)
    return tuple((str(name), counts[name]) for name in FILTER_PHRASES if counts[name])


def _filter_of(request: Request, gpu: Gpu, compute_hosts: Set[str]) -> str | None:
    """Return the first filter that leaves out *gpu*; None if it fits."""
    if gpu.kind != request.kind:
        return OTHER_KIND
    if request.host is not None and gpu.host != request.host:
        return OTHER_HOST
    if request.one_daemon and gpu.is_mig_instance:
        return MIG_INSTANCE
    if not request.with_(compute_capability=None).wants(gpu):
        return OTHER_MODEL
    if not request.wants(gpu):
        return LOWER_CAPABILITY
    if gpu.withheld is not None:
        return gpu.withheld
    if request.locality == LOCAL and gpu.host not in compute_hosts:
        return NOT_COMPUTE_HOST
    if gpu.exclusive:
        return IN_EXCLUSIVE_USE
    if request.mode == EXCLUSIVE and gpu.used_mb:
        return IN_USE
    if request.fits(gpu):
        return None
    return RESERVATION if request.fits(gpu.with_(reserved_mb=0)) else MEMORY


def _reason_now(
    request: Request, gpus: Sequence[Gpu], filters: tuple[tuple[str, int], ...], count_now: int
) -> str:
    """Return why there is no room now, by what keeps the GPUs from being used."""
    clauses = []
    for name, count in filters:
        one, several = FILTER_PHRASES[name]
        clauses.append((count, (one if count == 1 else several).format(**request.to_dict())))
    fitting = len(gpus) - sum(count for _, count in filters)
    if fitting:
        clauses.append((fitting, _shortage(request, fitting, count_now)))
    (first, phrase), *rest = clauses
    parts = [f"{first} of {_gpus_phrase(len(gpus))} {phrase}"]
    parts += [f"{count} {phrase}" for count, phrase in rest]
    return ", ".join(parts)


def _shortage(request: Request, fitting: int, count_now: int) -> str:
    """Return what follows the number of GPUs that fit: why they are not enough."""
    if request.locality == LOCAL:
        return f"would fit, but no compute host has room for more than {count_now}"
    if request.on_one_host:
        return f"would fit, but no host has room for more than {count_now}"
    if request.hosts == SPREAD and request.locality != REMOTE:
        return f"would fit, but they are on {count_now} host" + ("s" if count_now != 1 else "")
    if request.locality == REMOTE:
        return f"would fit, but with one compute host left for the VM there is room for {count_now}"
    if request.exclusive:
        return f"{'is' if fitting == 1 else 'are'} free, and the request is for {request.count}"
    have = "has" if fitting == 1 else "have"
    return f"would fit, but {have} room for only {count_now} of the {request.count} cGPUs"


def _reason_never(
    request: Request, gpus: Sequence[Gpu], compute_hosts: Set[str], count_when_idle: int
) -> str:
    """Return why there would be no room even if all GPUs were idle."""
    if request.locality == REMOTE and not compute_hosts:
        return "remote asks for a compute host without these GPUs, and no compute host is known"
    if request.locality == LOCAL and compute_hosts.isdisjoint(gpu.host for gpu in gpus):
        return "local asks for a compute host with GPUs, and there is none"
    kind = _requirements_phrase(request)
    asked = [gpu for gpu in gpus if request.wants(gpu)]
    if not asked:
        return _unmet_requirement(request, gpus)
    largest = max(gpu.memory_mb for gpu in asked)
    if request.memory_mb is not None and request.memory_mb > largest:
        return (
            f"{request.memory_mb} MiB is more than the largest GPU{kind or ' of this cloud'} has: "
            f"{largest} MiB"
        )
    wanted = _request_phrase(request)
    if request.locality == LOCAL:
        return f"{wanted} on one host cannot be had: no compute host has room for more than {count_when_idle}"
    if request.on_one_host:
        host = "host beside the VM's" if request.locality == REMOTE else "host"
        return f"{wanted} on one host cannot be had: no {host} has room for more than {count_when_idle}"
    if request.hosts == SPREAD and request.locality != REMOTE:
        hosts = len({gpu.host for gpu in asked})
        of_them = "the GPUs are" if not kind else f"the GPUs{kind} are"
        return f"{wanted} on as many hosts cannot be had: {of_them} on {hosts}"
    if request.locality == REMOTE:
        return (
            f"{wanted} cannot be had: beside one compute host there is room for {count_when_idle}"
        )
    if request.exclusive:
        return f"{wanted} cannot be had: this cloud has {_gpus_phrase(len(asked))}{kind}"
    owned = f"{_gpus_phrase(len(asked))}{kind or ' of this cloud'}"
    have = "has" if len(asked) == 1 else "have"
    return f"{wanted} cannot be had: the {owned} {have} room for {count_when_idle} when nobody else uses them"


def _unmet_requirement(request: Request, gpus: Sequence[Gpu]) -> str:
    """Return which requirement no GPU meets, and what could be asked for instead."""
    if request.host is not None and all(gpu.host != request.host for gpu in gpus):
        return f"there is no GPU host {request.host}"
    here = "of this cloud" if request.host is None else f"of {request.host}"
    there = [gpu for gpu in gpus if request.host in (None, gpu.host)]
    of_kind = [gpu for gpu in there if gpu.kind == request.kind]
    if not of_kind:
        kinds = ", ".join(sorted({gpu.kind for gpu in there}))
        return f"no GPU {here} is of kind {request.kind}; they are of kind {kinds}"
    there = of_kind
    if request.gpu_model is not None:
        of_model = [gpu for gpu in there if request.with_(compute_capability=None).wants(gpu)]
        if not of_model:
            models = ", ".join(sorted({gpu.model for gpu in there}))
            return f"no GPU {here} is of model {request.gpu_model}; the models are {models}"
        there, here = of_model, f"{here} of model {request.gpu_model}"
    asked = format_capability(request.compute_capability)
    highest = max((gpu.compute_capability for gpu in there if gpu.compute_capability), default=None)
    if highest is None:
        return f"the compute capability of the GPUs {here} is not known, so none can be chosen that has {asked}"
    return f"no GPU {here} has a compute capability of {asked}; the highest is {format_capability(highest)}"


def _requirements_phrase(request: Request) -> str:
    """Return the requirements as a phrase that follows the word GPU; empty if every GPU will do."""
    words = []
    if request.kind != CUDA:
        words.append(f" of kind {request.kind}")
    if request.gpu_model is not None:
        words.append(f" of model {request.gpu_model}")
    if request.compute_capability is not None:
        words.append(
            f" of compute capability {format_capability(request.compute_capability)} or more"
        )
    if request.host is not None:
        words.append(f" on {request.host}")
    return "".join(words)


def _request_phrase(request: Request) -> str:
    if request.memory_mb is None:
        return "1 whole GPU" if request.count == 1 else f"{request.count} whole GPUs"
    noun = "cGPU" if request.count == 1 else "cGPUs"
    return f"{request.count} {noun} of {request.memory_mb} MiB"


def _gpus_phrase(count: int) -> str:
    return "1 GPU" if count == 1 else f"{count} GPUs"
