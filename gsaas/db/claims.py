# SPDX-License-Identifier: Apache-2.0
"""Writes the rows of GPUs and claims when leases claim GPUs or return them."""

from __future__ import annotations

import functools
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypeAlias

from sqlalchemy import (
    BindParameter,
    Case,
    Column,
    Connection,
    Update,
    bindparam,
    case,
    delete,
    func,
    select,
    update,
)

from gsaas.db.models import ClaimRow, GpuRow, LeaseRow, change_number, table_of
from gsaas.objects.gpu import Gpu
from gsaas.objects.lease import Claim

Shares: TypeAlias = Mapping[str, tuple[int, int]]
"""UUID of a GPU -> the MiB of it that are returned, and how many leases do so."""

_GPUS, _CLAIMS = table_of(GpuRow), table_of(ClaimRow)

_FIRST_GPU = select(_GPUS.c.uuid).order_by(_GPUS.c.uuid).limit(1).with_for_update()

_CLAIMED = (
    update(_GPUS)
    .where(_GPUS.c.uuid == bindparam("this"))
    .values(
        used_mb=bindparam("used"),
        reserved_mb=bindparam("reserved"),
        leases=_GPUS.c.leases + bindparam("added"),
        given=bindparam("next"),
        generation=bindparam("next"),
        exclusive_lease_id=bindparam("holder"),
        change_number=bindparam("change"),
    )
)
_SWAP = _CLAIMED.where(
    _GPUS.c.generation == bindparam("known"),
    # A database that lost commits may give a generation twice.
    _GPUS.c.used_mb == bindparam("known_used"),
    _GPUS.c.reserved_mb == bindparam("known_reserved"),
    _GPUS.c.disabled.is_(False),
    _GPUS.c.withdrawn_reason.is_(None),
)


AT_ONCE = 32
"""GPUs that one statement writes with different values."""


@functools.cache
def _take(number: int) -> Update:
    """Return the statement that writes as many locked GPUs as claimed: one round trip, instead of one for each."""
    these: list[BindParameter[str]] = [bindparam(f"this{place}") for place in range(number)]

    def of_each(column: Column[Any], name: str) -> Case[Any]:
        """Return the value for *column* of whichever GPU it is."""
        return case(
            *(
                (_GPUS.c.uuid == this, bindparam(f"{name}{place}", type_=column.type))
                for place, this in enumerate(these)
            )
        )

    return (
        update(_GPUS)
        .where(_GPUS.c.uuid.in_(these))
        .values(
            used_mb=of_each(_GPUS.c.used_mb, "used"),
            leases=_GPUS.c.leases + of_each(_GPUS.c.leases, "added"),
            given=of_each(_GPUS.c.given, "next"),
            generation=of_each(_GPUS.c.generation, "next"),
            exclusive_lease_id=of_each(_GPUS.c.exclusive_lease_id, "holder"),
            change_number=bindparam("change"),
        )
    )


def _returned(size: Any, leases: Any, number: Any) -> dict[str, Any]:
    """Return the values of a GPU's columns after *leases* have returned *size* MiB of it."""
    return {
        "used_mb": _GPUS.c.used_mb - size,
        "leases": _GPUS.c.leases - leases,
        "exclusive_lease_id": None,
        "generation": _GPUS.c.generation + 1,
        "change_number": number,
    }


_GIVE_BACK = (
    update(_GPUS)
    .where(_GPUS.c.uuid == bindparam("this"))
    .values(_returned(bindparam("size"), bindparam("ended"), bindparam("change")))
)
_GIVE_BACK_KNOWN = _GIVE_BACK.where(_GPUS.c.generation == bindparam("known"))

_THESE = _GPUS.c.uuid.in_(bindparam("these", expanding=True))
"""A statement that is built once with a list for a parameter costs a fraction of one that is built for each list."""
_LOCK_UNCHANGED = (
    select(
        _GPUS.c.uuid, _GPUS.c.daemon_port, _GPUS.c.generation, _GPUS.c.used_mb, _GPUS.c.reserved_mb
    )
    .where(_THESE, _GPUS.c.disabled.is_(False), _GPUS.c.withdrawn_reason.is_(None))
    .order_by(_GPUS.c.uuid)
    .with_for_update(skip_locked=True)
)
_GPUS_ON = select(_GPUS.c.uuid).where(_GPUS.c.host_name == bindparam("host"))
_GENERATIONS = select(_GPUS.c.uuid, _GPUS.c.generation).where(_THESE).order_by(_GPUS.c.uuid)
_LOCK = _GENERATIONS.with_for_update()
_LOCK_FREE = _GENERATIONS.with_for_update(skip_locked=True)
_GIVE_BACK_ALL = (
    update(_GPUS)
    .where(_THESE)
    .values(_returned(bindparam("size"), bindparam("ended"), bindparam("change")))
)

_DELETE = delete(_CLAIMS).where(_CLAIMS.c.lease_id.in_(bindparam("these", expanding=True)))


def wait_for_claims(connection: Connection) -> None:
    """Lock the row that all claims know, the first one that they would lock in any case.

    Other claims that were overtaken wait for it until this transaction ends.
    """
    connection.execute(_FIRST_GPU)


def swap(connection: Connection, before: Gpu, after: Gpu, lease_id: str) -> bool:
    """Write *after* if the GPU is still as it was *before*; return whether it was. The lease is stored already."""
    values = {
        "this": before.uuid,
        "known": before.generation,
        "known_used": before.used_mb,
        "known_reserved": before.reserved_mb,
        "used": after.used_mb,
        "reserved": after.reserved_mb,
        "added": 1,
        "next": after.generation,
        "holder": lease_id if after.exclusive else None,
        "change": change_number(connection),
    }
    return connection.execute(_SWAP, values).rowcount == 1


def lock_unchanged(connection: Connection, known: Mapping[str, Gpu]) -> dict[str, int]:
    """Lock those GPUs that are as they are *known*, by UUID, and may be claimed; return the TCP ports of their daemons.

    GPUs that other transactions have locked are left out: they are about to change.
    """
    return {
        uuid: daemon_port
        for uuid, daemon_port, *stored in connection.execute(
            _LOCK_UNCHANGED, {"these": list(known)}
        )
        if stored == [known[uuid].generation, known[uuid].used_mb, known[uuid].reserved_mb]
    }


def take(connection: Connection, taken: Sequence[tuple[Gpu, Sequence[str]]]) -> None:
    """Write locked GPUs as they are when leases have claimed them; the leases are stored already, and here by id."""
    number = change_number(connection)
    for first in range(0, len(taken), AT_ONCE):
        some = taken[first : first + AT_ONCE]
        values: dict[str, Any] = {"change": number}
        for place, (gpu, lease_ids) in enumerate(some):
            values |= {
                f"this{place}": gpu.uuid,
                f"used{place}": gpu.used_mb,
                f"added{place}": len(lease_ids),
                f"next{place}": gpu.generation,
                f"holder{place}": lease_ids[-1] if gpu.exclusive else None,
            }
        connection.execute(_take(len(some)), values)


def lock_free(connection: Connection, uuids: Collection[str]) -> dict[str, int]:
    """Lock those of these GPUs that no other transaction has locked; return their generations by UUID."""
    if not uuids:
        return {}
    rows = connection.execute(_LOCK_FREE, {"these": list(uuids)})
    return {row.uuid: row.generation for row in rows}


def give_back(
    connection: Connection,
    claims: Sequence[Claim],
    known: Callable[[str], Gpu | None],
    locked: Mapping[str, int] | None = None,
) -> tuple[list[tuple[Gpu, Gpu]], int | None]:
    """Give back *claims*, all those of leases whose rows are locked, and delete them.

    *known* returns a GPU by its UUID as the caller knows it; *locked* are the generations of the GPUs, by UUID, if
    these are locked already. Returns the GPUs that are as the caller knows them, each
    before and after; and the number of the change if that is all that it has changed, else None.
    """
    if not claims:
        return [], None
    number = change_number(connection)
    sizes, holders = Counter[str](), defaultdict[str, set[str]](set)
    for claim in claims:
        sizes[claim.gpu_uuid] += claim.memory_mb
        holders[claim.gpu_uuid].add(claim.lease_id)
    gpus = {uuid: known(uuid) for uuid in sizes}
    shares = {uuid: (size, len(holders[uuid])) for uuid, size in sizes.items()}
    if len(shares) == 1:
        unchanged = _give_back_one(connection, gpus, shares, number)
    else:
        if locked is None:
            rows = connection.execute(_LOCK, {"these": list(shares)})
            locked = {row.uuid: row.generation for row in rows}
        unchanged = _give_back_several(connection, gpus, shares, number, locked)
    connection.execute(_DELETE, {"these": sorted({claim.lease_id for claim in claims})})
    changed = []
    for gpu in unchanged:
        size, ended = shares[gpu.uuid]
        after = gpu.release(size, leases=ended, generation=gpu.generation + 1)
        changed.append((gpu, after))
    return changed, number if len(changed) == len(shares) else None


def _give_back_one(
    connection: Connection, gpus: Mapping[str, Gpu | None], shares: Shares, number: int
) -> list[Gpu]:
    """Give back shares of one GPU; return it if it was as in *gpus*."""
    [(uuid, (size, ended))] = shares.items()
    change = {"this": uuid, "size": size, "ended": ended, "change": number}
    gpu = gpus[uuid]
    if gpu is not None:
        known = {**change, "known": gpu.generation}
        if connection.execute(_GIVE_BACK_KNOWN, known).rowcount:
            return [gpu]
    connection.execute(_GIVE_BACK, change)
    return []


def _give_back_several(
    connection: Connection,
    gpus: Mapping[str, Gpu | None],
    shares: Shares,
    number: int,
    generations: Mapping[str, int],
) -> list[Gpu]:
    """Give back shares of several locked GPUs, which have these *generations*; return those that were as in *gpus*."""
    same = defaultdict[tuple[int, int], list[str]](list)
    for uuid, share in shares.items():
        same[share].append(uuid)
    for (size, ended), uuids in same.items():
        values = {"these": uuids, "size": size, "ended": ended, "change": number}
        connection.execute(_GIVE_BACK_ALL, values)
    return [
        gpu
        for uuid in shares
        if (gpu := gpus[uuid]) is not None and gpu.generation == generations.get(uuid)
    ]


def gpus_on(connection: Connection, host: str) -> list[str]:
    """Return the UUIDs of the GPUs of *host*, for a query of what claims them.

    Asked for both at once, MariaDB looks at every claim of the cloud while its statistics are those of a smaller one.
    """
    return list(connection.scalars(_GPUS_ON, {"host": host}))


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
