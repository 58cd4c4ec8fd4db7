# SPDX-License-Identifier: Apache-2.0
"""Decides on which GPUs a reservation is placed, and which of its shares it can begin to keep. Pure.

`gsaas.objects.reservation` has the rules.
"""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from gsaas.gpgpums.pool import Ordering, Pool
from gsaas.objects.gpu import Gpu
from gsaas.objects.placement import Placement, Refusal
from gsaas.objects.request import Request
from gsaas.objects.reservation import Reservation, ReservedShare


def admit(
    gpus: Iterable[Gpu],
    compute_hosts: Collection[str],
    others: Sequence[Reservation],
    request: Request,
    policy: Ordering,
    start: datetime.datetime,
    end: datetime.datetime,
) -> Placement | Refusal:
    """Return where *policy* places a reservation of *request* from *start* to *end*; a refusal if that is nowhere.

    *others* are the reservations that have shares. What leases have claimed counts as free, because nobody knows when
    they end; GPUs that are withheld now are not used.
    """
    most = most_reserved(others, start, end)
    then = [
        gpu.with_(
            used_mb=0,
            exclusive=False,
            leases=0,
            reserved_mb=min(most.get(gpu.uuid, 0), gpu.memory_mb),
        )
        for gpu in gpus
    ]
    return Pool(then, compute_hosts).propose(request, policy)


def most_reserved(
    reservations: Sequence[Reservation], start: datetime.datetime, end: datetime.datetime
) -> Mapping[str, int]:
    """Return the most MiB that *reservations* have of each GPU at any moment from *start* until before *end*."""
    overlapping = [one for one in reservations if one.start < end and start < one.end]
    # Reservations only become more at the beginning of one of them, so no other moment has the most.
    most: Counter[str] = Counter()
    for moment in {start, *(one.start for one in overlapping if one.start > start)}:
        at_once: Counter[str] = Counter()
        for one in overlapping:
            if one.start <= moment < one.end:
                for share in one.shares:
                    at_once[share.gpu_uuid] += share.memory_mb
        most |= at_once
    return most


def to_keep(reservation: Reservation, gpus: Mapping[str, Gpu]) -> list[ReservedShare]:
    """Return the shares of *reservation* that it does not keep yet and could keep now.

    *gpus* are the GPUs of its shares as they are now, by UUID; those that are gone are left out. A whole GPU, which an
    exclusive request asks for, is kept once no lease has any of it.
    """
    free = {uuid: gpu.free_mb for uuid, gpu in gpus.items()}
    found = []
    for share in reservation.shares:
        if not share.kept and free.get(share.gpu_uuid, 0) >= share.memory_mb:
            free[share.gpu_uuid] -= share.memory_mb
            found.append(share)
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
