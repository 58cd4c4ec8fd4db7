# SPDX-License-Identifier: Apache-2.0
"""The inventory of GPUs, as their monitors report it.

1. A report names every GPU of its host. A GPU that is not named is gone. Its row is deleted once no lease claims it
   and no operator has to act on it: a GPU that is disabled, that failed, or that another host reports would otherwise
   come back as if it were new. A monitor that cannot read its GPUs at all reports that (`blind`), and no row is
   deleted.
2. A report never changes claims: a GPU that is no longer reported, or reported with less memory, while leases claim it
   stays until they return it, and no lease gets any more of it.
3. Every change of a row increases its `generation`, by which claims notice the change, and sets its `change_number`, by
   which copies of the GPUs do. Readings are in a table of their own: they change all the time, and change neither.
4. A GPU belongs to the host that reported it first. If another host reports it, that report is not believed: GPU and
   leases stay where they are, and the dispute is recorded until an operator consents to the move (`adopt`) or
   the other host no longer reports the GPU.
5. A GPU is withdrawn while its monitor says so. After an error that its monitor calls fatal it stays withdrawn until
   an operator enables it, and then until the next such error.
"""

from __future__ import annotations

import datetime
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from sqlalchemy import Connection, Row, and_, case, delete, distinct, func, or_, select
from sqlalchemy.orm import Session, lazyload

from gsaas import exceptions
from gsaas.db import changes, clock, hosts, pool_versions
from gsaas.db.changes import GpuChange
from gsaas.db.models import ClaimRow, DisputedGpuRow, GpuReadingRow, GpuRow, HostRow
from gsaas.db.ordering import order_of, row_values
from gsaas.db.upsert import upsert
from gsaas.objects.gpu_report import GpuInfo, Reading, XidError

SORT_KEYS = {
    "uuid": GpuRow.uuid,
    "host": GpuRow.host_name,
    "index": GpuRow.device_index,
    "model": GpuRow.model,
    "memory_mb": GpuRow.memory_mb,
    "used_mb": GpuRow.used_mb,
    "disabled": GpuRow.disabled,
    "withdrawn": GpuRow.withdrawn_reason,
    "parent_uuid": GpuRow.parent_uuid,
}
"""Columns that a list of GPUs may be sorted by."""

NOT_REPORTED = "not reported by its monitor"
AWAITS_REPORT = "moved to this host by an operator, whose monitor has not reported it since"


def register(
    session: Session,
    host_name: str,
    gpu_address: str | None,
    infos: Sequence[GpuInfo],
    *,
    readings: Mapping[str, Reading] | None = None,
    interval: float | None = None,
    blind: str | None = None,
    problems: Sequence[str] = (),
) -> bool:
    """Record a report of the monitor of *host_name*: that it is alive, where its daemons listen, and all its GPUs.

    Returns whether more GPUs may be on offer than before: False for a report like the one before, which came in time.

    *gpu_address* is None if the address that was reported is not believed: the host keeps the one that it had.
    *readings* are the readings of the GPUs that answered, by UUID; *interval* is the seconds until the next report;
    *blind* says why the monitor can read no GPU at present, None if it can; *problems* are sentences for operators.
    """
    host = hosts.ensure(session, host_name)
    if gpu_address is not None:
        host.gpu_address = gpu_address
    now = clock.now(session.connection())
    news = _was_late(host, now)
    host.monitor_seen_at = now
    host.monitor_interval = interval
    reported = {info.uuid: info for info in infos}
    # Most reports bring nothing new. Only one that does waits for the row locks of claims.
    known = _known(session, host_name, reported)
    others = {gpu.uuid: gpu.host_name for gpu in known if gpu.host_name != host_name}
    reported = {uuid: info for uuid, info in reported.items() if uuid not in others}
    known = [gpu for gpu in known if gpu.uuid not in others]
    disputed = set(disputes(session, [gpu.uuid for gpu in known if gpu.uuid not in reported]))
    if not _is_up_to_date(reported, known, host_name, blind, disputed):
        news = True
        locked = _lock(session, [gpu.uuid for gpu in known])
        # An operator may have consented to a move since they were read.
        moved = {gpu.uuid: gpu.host_name for gpu in locked if gpu.host_name != host_name}
        others |= moved
        reported = {uuid: info for uuid, info in reported.items() if uuid not in moved}
        mine = [gpu for gpu in locked if gpu.uuid not in moved]
        disputed = set(disputes(session, [gpu.uuid for gpu in mine]))
        _take_over(session, host_name, reported, mine, blind, disputed)
    _record_disputes(session, host_name, others)
    told = [*problems, *(_dispute(host_name, *item) for item in sorted(others.items()))]
    if host.monitor_problems != told:
        host.monitor_problems = told
    session.flush()
    found = sorted((readings or {}).items())
    upsert(session, GpuReadingRow, [_row(*item, now) for item in found if item[0] in reported])
    return news


def _was_late(host: HostRow, now: datetime.datetime) -> bool:
    """Return whether the host may have counted as silent until *now*, whatever timeout is configured."""
    if host.monitor_seen_at is None:
        return True
    return hosts.is_silent(host.monitor_seen_at, host.monitor_interval, 0.0, now)


def get(session: Session, uuid: str) -> GpuRow:
    """Return one GPU with its host; raises `NotFound`."""
    gpu = session.scalar(select(GpuRow).where(GpuRow.uuid == uuid))
    if gpu is None:
        raise exceptions.NotFound(noun="GPU", id=uuid)
    return gpu


def readings(session: Session, uuids: Collection[str]) -> dict[str, GpuReadingRow]:
    """Return the last reading of each of these GPUs; GPUs without one are left out."""
    query = select(GpuReadingRow).where(GpuReadingRow.gpu_uuid.in_(uuids))
    return {reading.gpu_uuid: reading for reading in session.scalars(query)}


def page(
    session: Session,
    *,
    limit: int,
    marker: str | None = None,
    sort: Sequence[tuple[str, bool]] = (),
) -> list[GpuRow]:
    """Return up to *limit* GPUs after the GPU *marker*.

    *sort* are names of `SORT_KEYS`, each with whether it is descending; by default the order is that of the UUIDs.
    Raises `BadRequest` if *marker* is no GPU and its UUID alone does not say where the page begins.
    """
    order = order_of(SORT_KEYS, "uuid", sort)
    after = None if marker is None else row_values(session, GpuRow, order, marker, "GPU")
    return list(session.scalars(order.page(select(GpuRow), limit, after)))


def leases_on(session: Session, uuids: Collection[str]) -> dict[str, list[str]]:
    """Return the ids of the leases that claim something of each of these GPUs; idle GPUs are left out."""
    query = (
        select(ClaimRow.gpu_uuid, ClaimRow.lease_id)
        .where(ClaimRow.gpu_uuid.in_(uuids))
        .distinct()
        .order_by(ClaimRow.gpu_uuid, ClaimRow.lease_id)
    )
    found: dict[str, list[str]] = {}
    for uuid, lease_id in session.execute(query):
        found.setdefault(uuid, []).append(lease_id)
    return found


def hosts_of(session: Session, uuids: Collection[str]) -> dict[str, str]:
    """Return the name of the host of each of these GPUs."""
    query = select(GpuRow.uuid, GpuRow.host_name).where(GpuRow.uuid.in_(uuids))
    return {row.uuid: row.host_name for row in session.execute(query)}


def totals(session: Session) -> dict[str, int]:
    """Return the totals of the cloud: the numbers of `gpus` and of their `hosts`, and `memory_mb` (MiB).

    `free_mb` (MiB) and `idle` (GPUs that no lease claims) do not count GPUs that are disabled or withdrawn, nor what is
    kept for reservations.
    """
    on_offer = and_(
        GpuRow.disabled.is_(False), GpuRow.withdrawn_reason.is_(None), HostRow.disabled.is_(False)
    )
    taken = GpuRow.used_mb + GpuRow.reserved_mb
    row = session.execute(
        select(
            func.count().label("gpus"),
            func.sum(GpuRow.memory_mb).label("memory_mb"),
            func.sum(case((on_offer, GpuRow.memory_mb - taken), else_=0)).label("free_mb"),
            func.sum(case((and_(on_offer, taken == 0), 1), else_=0)).label("idle"),
            func.count(distinct(GpuRow.host_name)).label("hosts"),
        ).join_from(GpuRow, HostRow)
    ).one()
    return {key: int(value or 0) for key, value in row._mapping.items()}


def lost(connection: Connection, timeout: float, now: datetime.datetime) -> dict[str, str]:
    """Return the GPUs that leases claim and cannot use *now*, because they are withdrawn or their host is silent.

    Each has the reason. *timeout* is as for `hosts.is_silent`.
    """
    query = (
        select(
            *(GpuRow.uuid, GpuRow.withdrawn_reason, GpuRow.host_name),
            *(HostRow.monitor_seen_at, HostRow.monitor_interval),
        )
        .join_from(GpuRow, HostRow)
        .where(GpuRow.used_mb > 0)
    )
    found = {}
    for uuid, reason, host, seen_at, interval in connection.execute(query):
        if reason is not None:
            found[uuid] = reason
        elif hosts.is_silent(seen_at, interval, timeout, now):
            found[uuid] = f"the monitor of {host} does not report"
    return found


def set_disabled(session: Session, uuid: str, disabled: bool, reason: str | None = None) -> GpuRow:
    """Disable or enable a GPU, with a reason, and return it. Leases that claim it keep it.

    Enabling it also confirms that its fatal error was dealt with. Raises `NotFound`.
    """
    _lock(session, [uuid])
    gpu = get(session, uuid)
    gpu.disabled = disabled
    gpu.disabled_reason = reason if disabled else None
    before = gpu.withdrawn_reason
    if gpu.awaits_operator and not disabled:
        gpu.awaits_operator = False
        gpu.withdrawn_reason = None  # until its monitor says otherwise
    gpu.generation += 1
    session.flush()
    _note_withdrawal(session, gpu, before)
    return gpu


def adopt(session: Session, uuid: str, host_name: str) -> GpuRow:
    """Consent to the move of a GPU to *host_name*, which reports it, and return it.

    The GPU is withdrawn until the next report of that host. It can move only while no lease uses it: what a program had
    in it is lost, and bindings and daemons are on its former host.

    Raises `NotFound`, `GpuNotReported` and `GpuInUse`. A GPU that is there already is returned as it is.
    """
    _lock(session, [uuid])
    gpu = get(session, uuid)
    if gpu.host_name == host_name:
        return gpu
    dispute = session.get(DisputedGpuRow, (uuid, host_name), with_for_update=True)
    if dispute is None:
        raise exceptions.GpuNotReported(uuid=uuid, host=host_name, owner=gpu.host_name)
    if used_by := leases_on(session, [uuid]).get(uuid):
        raise exceptions.GpuInUse(uuid=uuid, leases=", ".join(used_by), owner=gpu.host_name)
    session.delete(dispute)
    before = gpu.withdrawn_reason
    _park(session, host_name, [gpu])
    gpu.withdrawn_reason = gpu.withdrawn_reason if gpu.awaits_operator else AWAITS_REPORT
    gpu.generation += 1
    session.flush()
    session.refresh(gpu, ["host"])
    _note_withdrawal(session, gpu, before)
    return gpu


def disputes(session: Session, uuids: Collection[str]) -> dict[str, list[str]]:
    """Return the hosts that report each of these GPUs and do not have it; GPUs without any are left out."""
    if not uuids:
        return {}
    query = (
        select(DisputedGpuRow.gpu_uuid, DisputedGpuRow.host_name)
        .where(DisputedGpuRow.gpu_uuid.in_(uuids))
        .order_by(DisputedGpuRow.gpu_uuid, DisputedGpuRow.host_name)
    )
    found: dict[str, list[str]] = {}
    for uuid, host_name in session.execute(query):
        found.setdefault(uuid, []).append(host_name)
    return found


def _record_disputes(session: Session, host_name: str, others: Collection[str]) -> None:
    """Record that *host_name* reports the GPUs *others*, which it does not have, and no further ones."""
    query = select(DisputedGpuRow.gpu_uuid).where(DisputedGpuRow.host_name == host_name)
    recorded = set(session.scalars(query))
    if gone := recorded - set(others):
        session.execute(
            delete(DisputedGpuRow)
            .where(DisputedGpuRow.host_name == host_name, DisputedGpuRow.gpu_uuid.in_(gone))
            .execution_options(synchronize_session=False)
        )
    session.add_all(
        DisputedGpuRow(gpu_uuid=uuid, host_name=host_name)
        for uuid in sorted(set(others) - recorded)
    )


def _dispute(host_name: str, uuid: str, owner: str) -> str:
    """Return the problem that *host_name* reports a GPU that *owner* has, as a sentence for operators."""
    return (
        f"{host_name} reports {uuid}, which belongs to {owner}, so the report is not accepted; if the GPU was moved: "
        f"gsaas gpus -adopt={uuid} -host={host_name}; if not, look for an intruder on {host_name}"
    )


def _known(session: Session, host_name: str, reported: dict[str, GpuInfo]) -> Sequence[Row[Any]]:
    """Return the GPUs that a report concerns: those of its host, and those that it names.

    They are plain rows: most reports change nothing, and need no objects of the mapper.
    """
    query = select(GpuRow.__table__).where(
        or_(GpuRow.host_name == host_name, GpuRow.uuid.in_(reported))
    )
    return session.execute(query).all()


def _lock(session: Session, uuids: Sequence[str]) -> list[GpuRow]:
    """Return GPUs as they are now, with their rows locked until the transaction ends.

    They are locked in the order of their UUIDs, as claims lock them, so that there is no deadlock; for the same reason
    their hosts are not locked.
    """
    query = (
        select(GpuRow)
        .where(GpuRow.uuid.in_(uuids))
        .order_by(GpuRow.uuid)
        .options(lazyload(GpuRow.host))
        .with_for_update()
        .execution_options(populate_existing=True)
    )
    return list(session.scalars(query))


def _is_up_to_date(
    reported: dict[str, GpuInfo],
    known: Sequence[Row[Any]],
    host_name: str,
    blind: str | None,
    disputed: Collection[str],
) -> bool:
    """Return whether the rows say already what was *reported*."""
    return reported.keys() <= {gpu.uuid for gpu in known} and all(
        _matches(gpu, reported[gpu.uuid], host_name)
        if gpu.uuid in reported
        else _row_stays(gpu, blind, disputed)
        and gpu.withdrawn_reason == _absence_reason(gpu, blind)
        for gpu in known
    )


def _row_stays(gpu: GpuRow | Row[Any], blind: str | None, disputed: Collection[str]) -> bool:
    """Return whether the row of a GPU that is not reported stays; other hosts report those that are *disputed*."""
    return bool(
        blind
        or gpu.used_mb
        or gpu.reserved_mb
        or gpu.disabled
        or gpu.awaits_operator
        or gpu.uuid in disputed
    )


def _absence_reason(gpu: GpuRow | Row[Any], blind: str | None) -> str | None:
    """Return why a GPU that is not reported is withdrawn."""
    return gpu.withdrawn_reason if gpu.awaits_operator else blind or NOT_REPORTED


def _matches(gpu: GpuRow | Row[Any], info: GpuInfo, host_name: str) -> bool:
    return (
        gpu.host_name == host_name
        and gpu.device_index == info.device_index
        and gpu.model == info.model
        and gpu.memory_mb == _memory(gpu, info)
        and gpu.daemon_port == info.daemon_port
        and gpu.parent_uuid == info.parent_uuid
        and gpu.compute_capability == info.compute_capability
        and not _is_new_error(gpu, info)
        and (gpu.awaits_operator or gpu.withdrawn_reason == info.withdrawn)
    )


def _is_new_error(gpu: GpuRow | Row[Any], info: GpuInfo) -> bool:
    return info.fatal_error_at is not None and (
        gpu.fatal_error_at is None or info.fatal_error_at > gpu.fatal_error_at
    )


def _memory(gpu: GpuRow | Row[Any], info: GpuInfo) -> int:
    """Return the MiB to store: if a report has less than is claimed, exactly what is claimed, so the GPU is full.

    A GPU that one lease has, or one reservation keeps, as a whole stays as large as it was then.
    """
    is_whole = gpu.exclusive_lease_id or gpu.reserved_mb == gpu.memory_mb
    return gpu.memory_mb if is_whole else max(info.memory_mb, gpu.used_mb + gpu.reserved_mb)


def _take_over(
    session: Session,
    host_name: str,
    reported: dict[str, GpuInfo],
    known: Sequence[GpuRow],
    blind: str | None,
    disputed: Collection[str],
) -> None:
    """Update the *known* rows, which are locked, to what was *reported*; insert and delete rows as needed."""
    for gpu in known:
        if gpu.uuid not in reported and not _row_stays(gpu, blind, disputed):
            session.delete(gpu)
    if session.deleted:
        pool_versions.renew(session, "gpus")
    remaining = [gpu for gpu in known if gpu not in session.deleted]
    if not blind:
        moving = [gpu for gpu in remaining if not _keeps_place(gpu, reported, host_name)]
        _park(session, host_name, moving)
    for gpu in remaining:
        info, before = reported.get(gpu.uuid), gpu.withdrawn_reason
        if info is None:
            _withdraw(gpu, _absence_reason(gpu, blind))
        elif not _matches(gpu, info, host_name):
            _adopt(gpu, info, host_name)
        _note_withdrawal(session, gpu, before)
    found = {gpu.uuid for gpu in known}
    session.add_all(
        GpuRow(
            uuid=info.uuid,
            host_name=host_name,
            device_index=info.device_index,
            model=info.model,
            memory_mb=info.memory_mb,
            daemon_port=info.daemon_port,
            parent_uuid=info.parent_uuid,
            compute_capability=info.compute_capability,
            **_health(info),
        )
        for info in reported.values()
        if info.uuid not in found
    )


def _keeps_place(gpu: GpuRow, reported: dict[str, GpuInfo], host_name: str) -> bool:
    info = reported.get(gpu.uuid)
    if info is None:
        return gpu.device_index < 0
    return (gpu.host_name, gpu.device_index) == (host_name, info.device_index)


def _park(session: Session, host_name: str, moving: list[GpuRow]) -> None:
    """Give GPUs negative device indices, which no monitor reports, so that others can get theirs.

    Without that, two GPUs could not exchange their indices, which are unique on a host. A GPU that is no longer
    reported but still claimed keeps its negative index: another GPU may have the former one.
    """
    lowest = session.scalar(
        select(func.min(GpuRow.device_index)).where(GpuRow.host_name == host_name)
    )
    place = min(lowest or 0, 0)
    for gpu in moving:
        place -= 1
        gpu.host_name = host_name
        gpu.device_index = place
    session.flush()


def _withdraw(gpu: GpuRow, reason: str | None) -> None:
    if gpu.withdrawn_reason != reason:
        gpu.withdrawn_reason = reason
        gpu.generation += 1


def _note_withdrawal(session: Session, gpu: GpuRow, before: str | None) -> None:
    """Note that a GPU, whose reason for being withdrawn was *before*, has been withdrawn or has returned."""
    if (gpu.withdrawn_reason is None) == (before is None):
        return
    connection = session.connection()
    change = GpuChange(
        *(gpu.uuid, gpu.host_name, gpu.model, gpu.memory_mb),
        *(gpu.withdrawn_reason, bool(gpu.awaits_operator), clock.now(connection)),
    )
    changes.note(connection, change)


def _adopt(gpu: GpuRow, info: GpuInfo, host_name: str) -> None:
    gpu.host_name = host_name
    gpu.device_index = info.device_index
    gpu.model = info.model
    gpu.memory_mb = _memory(gpu, info)
    gpu.daemon_port = info.daemon_port
    gpu.parent_uuid = info.parent_uuid
    gpu.compute_capability = info.compute_capability
    if _is_new_error(gpu, info) or not gpu.awaits_operator:
        for column, value in _health(info, gpu.fatal_error_at).items():
            setattr(gpu, column, value)
    gpu.generation += 1


def _health(info: GpuInfo, dealt_with: datetime.datetime | None = None) -> dict[str, Any]:
    """Return the columns that say whether a GPU can be used.

    Its fatal errors until the moment *dealt_with* are ignored: an operator has dealt with them.
    """
    fatal = info.fatal_error_at is not None and (
        dealt_with is None or info.fatal_error_at > dealt_with
    )
    return {
        "withdrawn_reason": info.fatal_error if fatal else info.withdrawn,
        "awaits_operator": fatal,
        "fatal_error_at": info.fatal_error_at if fatal else dealt_with,
    }


def _row(uuid: str, reading: Reading, now: datetime.datetime) -> dict[str, Any]:
    return {
        "gpu_uuid": uuid,
        "at": now,
        "used_mb": reading.used_mb,
        "utilisation": reading.utilisation,
        "mean_utilisation": reading.mean_utilisation,
        "temperature_c": reading.temperature_c,
        "power_w": reading.power_w,
        "processes": [asdict(process) for process in reading.processes],
        "xid_errors": [_error(error) for error in reading.xid_errors],
    }


def _error(error: XidError) -> dict[str, Any]:
    return {**asdict(error), "at": error.at.isoformat()}
