# SPDX-License-Identifier: Apache-2.0
"""What claims and their return do to the rows of GPUs and claims."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from sqlalchemy import Connection, bindparam, delete, func, select, update

from gsaas.db.models import ClaimRow, GpuRow, LeaseRow, change_number, table_of
from gsaas.db.prepared import Prepared
from gsaas.objects.gpu import Gpu
from gsaas.objects.lease import Claim

_GPUS, _CLAIMS = table_of(GpuRow), table_of(ClaimRow)

_FIRST_GPU = select(_GPUS.c.uuid).order_by(_GPUS.c.uuid).limit(1).with_for_update()

_SWAP = Prepared(
    update(_GPUS)
    .where(
        _GPUS.c.uuid == bindparam("this"),
        _GPUS.c.generation == bindparam("known"),
        # A database that lost commits may give a generation twice.
        _GPUS.c.used_mb == bindparam("known_used"),
        _GPUS.c.reserved_mb == bindparam("known_reserved"),
        _GPUS.c.disabled.is_(False),
        _GPUS.c.withdrawn_reason.is_(None),
    )
    .values(
        used_mb=bindparam("used"),
        reserved_mb=bindparam("reserved"),
        leases=_GPUS.c.leases + 1,
        given=bindparam("next"),
        generation=bindparam("next"),
        exclusive_lease_id=bindparam("holder"),
        change_number=bindparam("change"),
    )
)

_RETURN = (
    update(_GPUS)
    .where(_GPUS.c.uuid == bindparam("this"))
    .values(
        used_mb=_GPUS.c.used_mb - bindparam("size"),
        leases=_GPUS.c.leases - 1,
        exclusive_lease_id=None,
        generation=_GPUS.c.generation + 1,
        change_number=bindparam("change"),
    )
)

_GIVE_BACK = Prepared(_RETURN)
_GIVE_BACK_KNOWN = Prepared(_RETURN.where(_GPUS.c.generation == bindparam("known")))

_DELETE = Prepared(
    delete(_CLAIMS).where(
        _CLAIMS.c.lease_id == bindparam("lease"), _CLAIMS.c.position == bindparam("this")
    )
)


def wait_for_claims(connection: Connection) -> None:
    """Lock the row that all claims know, the first one that they would lock in any case.

    Other claims that were overtaken wait for it until this transaction ends.
    """
    connection.execute(_FIRST_GPU)


def swap(connection: Connection, before: Gpu, after: Gpu, lease_id: str) -> bool:
    """Write *after* if the GPU is still as it was *before*; return whether. The lease is stored already."""
    swapped = _SWAP.run(
        connection,
        this=before.uuid,
        known=before.generation,
        known_used=before.used_mb,
        known_reserved=before.reserved_mb,
        used=after.used_mb,
        reserved=after.reserved_mb,
        next=after.generation,
        holder=lease_id if after.exclusive else None,
        change=change_number(connection),
    )
    return swapped == 1


def give_back(
    connection: Connection,
    lease_id: str,
    claims: Sequence[Claim],
    known: Callable[[str], Gpu | None],
) -> tuple[list[tuple[Gpu, Gpu]], int | None]:
    """Give back the *claims* of a lease whose row is locked, and delete them.

    *known* returns a GPU by its UUID as the caller knows it. Returns the GPUs that are as the caller knows them, each
    before and after; and the number of the change if that is all that it has changed, else None.
    """
    sizes: Counter[str] = Counter()
    for claim in claims:
        sizes[claim.gpu_uuid] += claim.memory_mb
    if not sizes:
        return [], None
    changed = []
    number = change_number(connection)
    for uuid, size in sorted(sizes.items()):
        change = {"this": uuid, "size": size, "change": number}
        gpu = known(uuid)
        if gpu and _GIVE_BACK_KNOWN.run(connection, **change, known=gpu.generation):
            changed.append((gpu, gpu.release(size, generation=gpu.generation + 1)))
        else:
            _GIVE_BACK.run(connection, **change)
    for claim in claims:
        # One by one: deleting a range would lock the gaps around it, where others insert.
        _DELETE.run(connection, lease=lease_id, this=claim.position)
    return changed, number if len(changed) == len(sizes) else None


def masked_ips(connection: Connection, host: str) -> list[str]:
    """Return the masked addresses that consumers on *host* use now."""
    query = select(_CLAIMS.c.masked_ip).where(_CLAIMS.c.masked_host == host)
    return [ip for ip in connection.scalars(query) if ip is not None]


def masked_ips_of(connection: Connection, host: str, project_id: str) -> int:
    """Return how many masked addresses consumers of a project's leases use on *host* now."""
    query = select(func.count()).select_from(_CLAIMS.join(table_of(LeaseRow)))
    query = query.where(_CLAIMS.c.masked_host == host, LeaseRow.project_id == project_id)
    return connection.scalars(query).one()


def daemon_ports(connection: Connection, host: str) -> list[int]:
    """Return the TCP ports of all daemons on *host*: those of single cGPUs, and those of its GPUs."""
    query = (
        select(_CLAIMS.c.daemon_port)
        .where(_CLAIMS.c.daemon_host == host)
        .union(select(_GPUS.c.daemon_port).where(_GPUS.c.host_name == host))
    )
    return [port for port in connection.scalars(query) if port is not None]
