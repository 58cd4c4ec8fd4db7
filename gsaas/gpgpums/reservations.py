# SPDX-License-Identifier: Apache-2.0
"""Decides on which GPUs a reservation is placed, which of its shares move, and which it can begin to keep. Pure.

`gsaas.objects.reservation` has the rules.
"""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from gsaas.gpgpums.pool import Ordering, Pool
from gsaas.objects.gpu import EXCLUSIVE, Gpu
from gsaas.objects.lease import Lease
from gsaas.objects.placement import Placement, Refusal, Share
from gsaas.objects.request import SPREAD, Request
from gsaas.objects.reservation import Reservation, ReservedShare


def admit(
    gpus: Iterable[Gpu],
    compute_hosts: Collection[str],
    others: Sequence[Reservation],
    request: Request,
    policy: Ordering,
    start: datetime.datetime,
    end: datetime.datetime,
    *,
    free_now: bool = False,
    lasting: Mapping[str, int] | None = None,
) -> Placement | Refusal:
    """Return where *policy* places a reservation of *request* from *start* to *end*; a refusal if that is nowhere.

    *others* are the reservations that have shares. What leases have claimed counts as free, because it is not known of
    all when they end; with *free_now*, only what is free now does. *lasting* are MiB of each GPU that count as
    reserved, too. GPUs that are withheld now are not used.
    """
    most = Counter(most_reserved(others, start, end))
    most.update(lasting or {})
    then = [
        gpu.with_(
            used_mb=0,
            exclusive=False,
            leases=0,
            reserved_mb=max(
                min(most.get(gpu.uuid, 0), gpu.memory_mb),
                gpu.memory_mb - gpu.free_mb if free_now else 0,
            ),
        )
        for gpu in gpus
    ]
    return Pool(then, compute_hosts).propose(request, policy)


def lost(reservation: Reservation, gpus: Mapping[str, Gpu]) -> list[ReservedShare]:
    """Return the shares of *reservation* that no lease has and that are on a GPU that is withheld or gone.

    *gpus* are the GPUs of its shares as they are now, by UUID.
    """
    in_service = {uuid for uuid, gpu in gpus.items() if gpu.withheld is None}
    return [
        share
        for share in reservation.shares
        if share.lease_id is None and share.gpu_uuid not in in_service
    ]


def moves(
    reservation: Reservation,
    gpus: Iterable[Gpu],
    compute_hosts: Collection[str],
    others: Sequence[Reservation],
    policy: Ordering,
    now: datetime.datetime,
    *,
    keeps: bool,
) -> list[tuple[ReservedShare, Share]]:
    """Return which of the `lost` shares of *reservation* move, and where *policy* places each of them.

    They move one by one, so those stay that fit nowhere. All of a reservation that has to be on one host are placed
    together, unless some of them are in order: then the others move within that host. *others* are as for `admit`,
    without *reservation*. One that *keeps* its shares already moves only to what is free *now*: what leases have
    elsewhere would be no better than what it has.
    """
    known = {gpu.uuid: gpu for gpu in gpus}
    away = lost(reservation, known)
    shares = [share for share in reservation.shares if share not in away]
    request = Request.from_dict(reservation.cgpus)
    together = request.on_one_host and not shares
    found = []
    for group in [away] if together and away else [[share] for share in away]:
        hosts = {known[share.gpu_uuid].host for share in shares if share.gpu_uuid in known}
        taken = {share.gpu_uuid for share in shares} if request.one_daemon else set()
        answer = admit(
            [
                gpu
                for gpu in known.values()
                if _suits(gpu.host, hosts, request) and gpu.uuid not in taken
            ],
            compute_hosts,
            [*others, replace(reservation, shares=tuple(shares))],
            request.with_(count=len(group)),
            policy,
            max(reservation.start, now),
            reservation.end,
            free_now=keeps,
        )
        if isinstance(answer, Refusal):
            continue
        for share, to in zip(group, answer.shares, strict=True):
            found.append((share, to))
            shares.append(ReservedShare(share.position, to.gpu_uuid, to.memory_mb))
            if keeps:
                gpu = known[to.gpu_uuid]
                known[gpu.uuid] = gpu.reserve(to.memory_mb, generation=gpu.generation)
    return found


def gpus_of(pool: Pool, shares: Collection[ReservedShare]) -> dict[str, Gpu]:
    """Return the GPUs of these shares, by UUID; those that are gone are left out."""
    known = {share.gpu_uuid: pool.get(share.gpu_uuid) for share in shares}
    return {uuid: gpu for uuid, gpu in known.items() if gpu is not None}


def most_reserved(
    reservations: Sequence[Reservation], start: datetime.datetime, end: datetime.datetime
) -> Mapping[str, int]:
    """Return the most MiB that *reservations* have of each GPU at any moment from *start* until before *end*."""
    changes = []
    for one in reservations:
        if one.start < end and start < one.end:
            for share in one.shares:
                changes.append((max(one.start, start), share.memory_mb, share.gpu_uuid))
                changes.append((one.end, -share.memory_mb, share.gpu_uuid))
    most: Counter[str] = Counter()
    at_once: Counter[str] = Counter()
    for _, change, uuid in sorted(changes):  # what ends at a moment, before what begins then
        at_once[uuid] += change
        most[uuid] = max(most[uuid], at_once[uuid])
    return most


def first_in_the_way(
    others: Sequence[Reservation],
    lease: Lease,
    memory: Mapping[str, int],
    until: datetime.datetime | None,
) -> datetime.datetime | None:
    """Return from when on reservations need GPUs of *lease* before *until*, after its present end; None: they do not.

    *memory* are the MiB of its GPUs. What is reserved before its present end, the lease has been given in spite of it.
    """
    begin = lease.ends_at
    if begin is None:
        return None
    until = until or datetime.datetime.max
    claimed: Counter[str] = Counter()
    for claim in lease.claims:
        claimed[claim.gpu_uuid] += claim.memory_mb
    others = [one for one in others if one.id != lease.reservation_id]
    for one in sorted(others, key=lambda one: one.start):
        start = max(one.start, begin)
        if one.end <= start or start >= until:
            continue
        reserved = most_reserved(others, start, start + datetime.timedelta.resolution)
        if any(
            reserved.get(uuid, 0) and reserved[uuid] + size > memory.get(uuid, 0)
            for uuid, size in claimed.items()
        ):
            return start
    return None


def to_keep(reservation: Reservation, gpus: Mapping[str, Gpu]) -> list[ReservedShare]:
    """Return the shares of *reservation* that it does not keep yet and could keep now.

    *gpus* are the GPUs of its shares as they are now, by UUID; those that are gone are left out. A whole GPU, which an
    exclusive request asks for, is kept once no lease has any of it, and as large as it is now: another driver may leave
    a little more or less of its memory.
    """
    whole = reservation.cgpus.get("mode") == EXCLUSIVE
    free = {uuid: gpu.free_mb for uuid, gpu in gpus.items()}
    found = []
    for share in reservation.shares:
        if share.kept or share.gpu_uuid not in gpus:
            continue
        size = gpus[share.gpu_uuid].memory_mb if whole else share.memory_mb
        if free[share.gpu_uuid] >= size:
            free[share.gpu_uuid] -= size
            found.append(replace(share, memory_mb=size))
    return found


def pool_within(
    reservation: Reservation, gpus: Mapping[str, Gpu], compute_hosts: Collection[str]
) -> Pool:
    """Return the pool that a launch within *reservation* sees: its shares alone.

    What it does not keep yet, and what a lease has claimed, is in use.
    """
    sizes, free = Counter[str](), Counter[str]()
    for share in reservation.shares:
        sizes[share.gpu_uuid] += share.memory_mb
        if share.kept and share.lease_id is None:
            free[share.gpu_uuid] += share.memory_mb
    return Pool(
        (
            gpus[uuid].with_(
                memory_mb=size, used_mb=size - free[uuid], reserved_mb=0, exclusive=False
            )
            for uuid, size in sizes.items()
            if uuid in gpus
        ),
        compute_hosts,
    )


def propose_within(
    reservation: Reservation,
    gpus: Mapping[str, Gpu],
    compute_hosts: Collection[str],
    request: Request,
    policy: Ordering,
) -> Placement | Refusal:
    """Return where *policy* places a launch within *reservation*, or why nowhere; *gpus* are those of its shares."""
    answer = pool_within(reservation, gpus, compute_hosts).propose(request, policy)
    if isinstance(answer, Placement):
        return answer
    count = len(reservation.shares)
    reason = f"in reservation {reservation.id}: {answer.reason}"
    if request.count > count:
        reason = f"reservation {reservation.id} has only {count} cGPU{'s' if count != 1 else ''}"
    return replace(answer, reason=reason)


def taken_by(reservation: Reservation, placement: Placement) -> list[ReservedShare]:
    """Return the shares of *reservation* that a lease with this placement takes; it is from `pool_within`.

    Raises `ValueError` if a cGPU has another size than those of the reservation.
    """
    free = [share for share in reservation.shares if share.kept and share.lease_id is None]
    taken = []
    for wanted in placement.shares:
        found = next((share for share in free if share.share == wanted), None)
        if found is None:
            raise ValueError(f"{wanted.memory_mb} MiB are not a share of the reservation")
        free.remove(found)
        taken.append(found)
    return taken


def _suits(host: str, others: Collection[str], request: Request) -> bool:
    """Return whether a share may be on *host* if the *others* of its reservation, for *request*, are on these."""
    if request.on_one_host:
        return not others or host in others
    return request.hosts != SPREAD or host not in others
