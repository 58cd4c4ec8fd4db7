"""What a claim and its return do to the rows of GPUs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from sqlalchemy import Connection, bindparam, case, delete, func, select, update

from gsaas.db import plain, queue
from gsaas.db.models import ClaimRow, GpuRow
from gsaas.db.prepared import Prepared

if TYPE_CHECKING:
    from gsaas.objects import gpu as gpus

_GPUS, _CLAIMS = GpuRow.__table__, ClaimRow.__table__

_TURNSTILE = select(_GPUS.c.uuid).order_by(_GPUS.c.uuid).limit(1).with_for_update()

_SWAP = Prepared(
    update(_GPUS)
    .where(
        _GPUS.c.uuid == bindparam("this"),
        _GPUS.c.generation == bindparam("known"),
        _GPUS.c.disabled.is_(False),
        _GPUS.c.withdrawn_reason.is_(None),
    )
    .values(
        used_mb=bindparam("used"),
        leases=_GPUS.c.leases + 1,
        given=bindparam("next"),
        generation=bindparam("next"),
        exclusive_lease_id=bindparam("holder"),
    )
)

_RETURN = (
    update(_GPUS)
    .where(_GPUS.c.uuid == bindparam("this"))
    .values(
        used_mb=_GPUS.c.used_mb - bindparam("size"),
        leases=_GPUS.c.leases - 1,
        exclusive_lease_id=None,
        # New to everybody as a rule, and larger than before in any case.
        generation=case(
            (_GPUS.c.generation < bindparam("next"), bindparam("next")),
            else_=_GPUS.c.generation + 1,
        ),
    )
)

_GIVE_BACK = Prepared(_RETURN)
_GIVE_BACK_KNOWN = Prepared(_RETURN.where(_GPUS.c.generation == bindparam("known")))

_LOOK = Prepared(select(func.max(_GPUS.c.generation), queue.TOP_PRIORITY.scalar_subquery()))

_DELETE = Prepared(
    delete(_CLAIMS).where(
        _CLAIMS.c.lease_id == bindparam("lease"), _CLAIMS.c.position == bindparam("this")
    )
)


def queue_up(connection: Connection) -> None:
    """Wait for the row that all claims know: the first they would lock in any case."""
    connection.execute(_TURNSTILE)


def swap(connection: Connection, before: gpus.Gpu, after: gpus.Gpu, lease_id: str) -> bool:
    """Write *after* if the GPU is still as it was *before*; say whether. The lease is there already."""
    swapped = _SWAP.run(
        connection,
        this=before.uuid,
        known=before.generation,
        used=after.used_mb,
        next=after.generation,
        holder=lease_id if after.exclusive else None,
    )
    return swapped == 1


def look(connection: Connection) -> tuple[int, bool]:
    """Return the largest generation of all GPUs, and whether anybody waits in the queue."""
    newest, top_priority = _LOOK.rows(connection)[0]
    return newest or 0, top_priority is not None


def give_back(
    connection: Connection,
    lease_id: str,
    claims: Sequence[plain.Claim],
    known: Callable[[str], gpus.Gpu | None],
    newest: int,
) -> list[tuple[gpus.Gpu, gpus.Gpu]]:
    """Return the claims of a lease whose row is held.

    *known* is asked for GPUs by UUID. Those that are as it says are returned as they were and as they will be.
    *newest* is the largest generation.
    """
    sizes: Counter[str] = Counter()
    for claim in claims:
        sizes[claim.gpu_uuid] += claim.memory_mb
    following = newest + 1
    changed = []
    for uuid, size in sorted(sizes.items()):
        change = {"this": uuid, "size": size, "next": following}
        gpu = known(uuid)
        if gpu and _GIVE_BACK_KNOWN.run(connection, **change, known=gpu.generation):
            changed.append((gpu, gpu.release(size, generation=following)))
        else:
            _GIVE_BACK.run(connection, **change)
    for claim in claims:
        # One by one: deleting a range would lock the gaps around it, where others insert.
        _DELETE.run(connection, lease=lease_id, this=claim.position)
    return changed
