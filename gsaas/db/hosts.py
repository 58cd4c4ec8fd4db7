# SPDX-License-Identifier: Apache-2.0
"""Reading hosts, taking them out of service, and forgetting those that are gone for good.

The rows of a host are inserted when its agents first report. A host that is forgotten goes in two steps: its leases
lose it at once, and its rows are deleted when the last of these leases has returned its GPUs (`delete_forgotten`). So
even if such a host comes back, none of its GPUs is given to a lease while a former lease can still reach it.
"""

from __future__ import annotations

import datetime
import math
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, bindparam, delete, exists, select, update
from sqlalchemy.orm import Session, joinedload, selectinload

from gsaas import exceptions
from gsaas.db import clock, leases, pool_versions, reservations
from gsaas.db.models import ClaimRow, EndpointRow, GpuRow, HostRow, LeaseRow
from gsaas.db.ordering import order_of, row_values
from gsaas.db.upsert import upsert
from gsaas.objects.lease import Lease
from gsaas.objects.lifecycle import TRANSITIONS, Event, Status
from gsaas.objects.move import DRAIN, DRAIN_CANCELLED

GONE = "gone for good"
"""The reason for which a forgotten host is disabled. It stays disabled if it reports before its rows are deleted."""


@dataclass(frozen=True)
class Draining:
    """How leases leave a host that is drained."""

    by: datetime.datetime | None = None
    """From when on open connections may be cut, UTC; None: never, unless their owners consent."""
    now: bool = False
    """They may be cut at once."""


SORT_KEYS = {
    "name": HostRow.name,
    "gpu_address": HostRow.gpu_address,
    "disabled": HostRow.disabled,
    "monitor_seen_at": HostRow.monitor_seen_at,
}
"""Columns that a list of hosts may be sorted by."""

_WHOLE = (selectinload(HostRow.gpus), joinedload(HostRow.endpoint))

# Statements that each report or step needs are made once: that takes as long as to execute one.
_MONITOR_REPORTS = select(HostRow.name, HostRow.monitor_report).where(
    HostRow.name.in_(bindparam("these", expanding=True)), HostRow.monitor_report.is_not(None)
)
_WITH_GPU_ADDRESS = (
    select(HostRow.name)
    .where(HostRow.gpu_address == bindparam("this"), HostRow.forgotten.is_(False))
    .union(select(EndpointRow.host_name).where(EndpointRow.gpu_address == bindparam("this")))
)

MISSED_REPORTS = 3.5
"""A monitor may be silent for this many of its report intervals, even if that is longer than the timeout."""


def get(session: Session, name: str) -> HostRow:
    """Return one host with its GPUs and its endpoint; raises `NotFound`."""
    host = session.scalar(select(HostRow).where(HostRow.name == name).options(*_WHOLE))
    if host is None:
        raise exceptions.NotFound(noun="host", id=name)
    return host


def page(
    session: Session,
    *,
    limit: int,
    marker: str | None = None,
    sort: Sequence[tuple[str, bool]] = (),
) -> list[HostRow]:
    """Return up to *limit* hosts after the host *marker*.

    *sort* are names of `SORT_KEYS`, each with whether it is descending; by default the order is that of the names.
    Raises `BadRequest` if *marker* is no host and its name alone does not say where the page begins.
    """
    order = order_of(SORT_KEYS, "name", sort)
    after = None if marker is None else row_values(session, HostRow, order, marker, "host")
    return list(session.scalars(order.page(select(HostRow).options(*_WHOLE), limit, after)))


def set_disabled(
    session: Session,
    name: str,
    disabled: bool,
    reason: str | None = None,
    draining: Draining | None = None,
) -> HostRow:
    """Disable or enable the GPUs of a host, with a reason, and return it.

    With *draining*, leases that claim them begin to move away; without, they keep them, and a drain is over. The leases
    have it among their events. Raises `NotFound`, and `HostWithoutGpus` for a host without GPUs.
    """
    host = get(session, name)
    if draining is not None and not host.gpus:
        raise exceptions.HostWithoutGpus(name=name)
    _drain(session, host, draining)
    host.disabled = disabled
    host.disabled_reason = reason if disabled else None
    host.forgotten = host.forgotten and disabled
    session.execute(
        update(GpuRow).where(GpuRow.host_name == name).values(generation=GpuRow.generation + 1)
    )
    session.flush()
    pool_versions.renew(session, "hosts")
    return host


@dataclass(frozen=True)
class Drain:
    """A host that is drained."""

    host: str
    since: datetime.datetime
    by: datetime.datetime | None
    """From when on connections may be cut; None: never."""
    waits: Mapping[str, str] | None
    """Lease -> why it is still there, as `note_waits` stored it last."""


def drains(connection: Connection) -> list[Drain]:
    """Return the hosts that are drained, by name."""
    columns = (HostRow.name, HostRow.draining_since, HostRow.drain_by, HostRow.drain_waits)
    query = select(*columns).where(HostRow.draining_since.is_not(None)).order_by(HostRow.name)
    return [
        Drain(name, since, by, waits)
        for name, since, by, waits in connection.execute(query)
        if since is not None
    ]


def note_waits(
    connection: Connection, name: str, since: datetime.datetime, waits: Mapping[str, str]
) -> None:
    """Store why leases are still on a host that is drained *since* then; nothing if that is over meanwhile."""
    connection.execute(
        update(HostRow)
        .where(HostRow.name == name, HostRow.draining_since == since)
        .values(drain_waits=dict(waits))
    )


def _drain(session: Session, host: HostRow, draining: Draining | None) -> None:
    """Begin, change or end the drain of a host, and tell its leases."""
    connection = session.connection()
    now = clock.now(connection)
    if draining is not None and draining.now:
        draining = Draining(now)
    before = None if host.draining_since is None else Draining(host.drain_by)
    if draining == before:
        return
    if draining is None:
        host.draining_since = host.drain_by = host.drain_waits = None
        event, detail = DRAIN_CANCELLED, f"host {host.name} is drained no longer"
    else:
        host.draining_since, host.drain_by = host.draining_since or now, draining.by
        event, detail = DRAIN, f"host {host.name} is drained"
        if draining.by is not None:
            detail += f"; connections are cut from {draining.by:%Y-%m-%d %H:%M:%S} UTC on"
    for lease in leases.on_gpus_of(connection, host.name):
        leases.note(connection, lease.id, event, detail)


@dataclass(frozen=True)
class Forgotten:
    """What happened to the leases of a host that is gone, by their ids."""

    failed: list[str]
    """Leases that claimed its GPUs, and are in ERROR now."""
    unbound: list[str]
    """Leases whose VMs it ran: no binding is left there, an operator says."""


def forget(session: Session, name: str, *, timeout: float | None, servers_stay: bool) -> Forgotten:
    """Forget a host that an operator says is gone for good, with its GPUs, its VMs and its bindings.

    Raises `HostAlive` if one of its agents reported in the last *timeout* seconds (None: do not check), and `NotFound`
    for a host that is not known and has no binding. With *servers_stay*, a server that was in use is left to its
    owner; otherwise it is deleted with its lease.
    """
    host = session.get(HostRow, name, with_for_update=True, populate_existing=True)
    unbound = list(
        session.scalars(
            select(LeaseRow.id).where(LeaseRow.bound_host == name).order_by(LeaseRow.id)
        )
    )
    if host is None and not unbound:
        raise exceptions.NotFound(noun="host", id=name)
    failed = []
    if host is not None:
        if timeout is not None:
            _check_silence(session, host, timeout)
        host.draining_since = host.drain_by = host.drain_waits = None
        # This also increases the generations of its GPUs, so claims that chose them before are overtaken.
        set_disabled(session, name, True, GONE)
        host.forgotten = True
        session.execute(delete(EndpointRow).where(EndpointRow.host_name == name))
        pool_versions.renew(session, "endpoints")
        failed = _fail_leases(session, name, servers_stay)
    for lease_id in unbound:
        leases.update(session.connection(), lease_id, bound_host=None)
    # According to the operator its daemons are gone, too: no release has to wait for their end. Their ports stay taken
    # while a binding elsewhere may lead there: the host may come back.
    is_bound = exists().where(LeaseRow.id == ClaimRow.lease_id, LeaseRow.bound_host.is_not(None))
    session.execute(
        update(ClaimRow)
        .where(ClaimRow.daemon_host == name, ~is_bound)
        .values(daemon_host=None, daemon_port=None, daemon_device=0, daemon_turn=0)
        .execution_options(synchronize_session=False)
    )
    session.expire_all()
    delete_forgotten(session)
    return Forgotten(failed, unbound)


def has_forgotten(session: Session) -> bool:
    """Return whether there is a host that `delete_forgotten` might delete."""
    return (
        session.scalar(select(HostRow.name).where(HostRow.forgotten.is_(True)).limit(1)) is not None
    )


def delete_forgotten(session: Session) -> None:
    """Delete the rows of forgotten hosts whose GPUs no lease claims any more."""
    claimed = exists().where(GpuRow.host_name == HostRow.name, GpuRow.used_mb > 0)
    query = select(HostRow.name).where(HostRow.forgotten.is_(True), ~claimed).order_by(HostRow.name)
    for name in session.scalars(query.with_for_update()).all():
        reservations.lose(session.connection(), name)
        for table, column in (
            (GpuRow, GpuRow.host_name),
            (EndpointRow, EndpointRow.host_name),
            (HostRow, HostRow.name),
        ):
            session.execute(
                delete(table).where(column == name).execution_options(synchronize_session=False)
            )
        pool_versions.renew(session, "gpus")
        pool_versions.renew(session, "endpoints")


def _check_silence(session: Session, host: HostRow, timeout: float) -> None:
    """Raise `HostAlive` if one of the agents of *host* reported less than *timeout* seconds ago."""
    endpoint = session.scalar(select(EndpointRow.seen_at).where(EndpointRow.host_name == host.name))
    reports = [at for at in (host.monitor_seen_at, endpoint) if at is not None]
    if not reports:
        return
    now = clock.now(session.connection())
    ago = max(0.0, (now - max(reports)).total_seconds())
    enough = silence_limit(timeout, host.monitor_interval)
    if ago < enough:
        raise exceptions.HostAlive(name=host.name, ago=ago, wait=math.ceil(enough - ago))


def _fail_leases(session: Session, name: str, servers_stay: bool) -> list[str]:
    """Fail the leases that claim GPUs of a host and return their ids; leases that are being released go on."""
    claims_there = exists().where(
        ClaimRow.lease_id == LeaseRow.id,
        ClaimRow.gpu_uuid == GpuRow.uuid,
        GpuRow.host_name == name,
        ClaimRow.position >= 0,  # a lease that moves, and is not there yet or any more, goes on
    )
    query = select(LeaseRow).where(claims_there).order_by(LeaseRow.id).with_for_update()
    failed = []
    for lease in session.scalars(query).all():
        if (Status(lease.status), Event.FAIL) not in TRANSITIONS:
            continue
        lost = sum(claim.gpu.host_name == name for claim in lease.claims if claim.position >= 0)
        why = "with the host of their GPUs"
        connection = session.connection()
        present = leases.get(connection, lease.id)
        fail_without_gpus(connection, present, lost, why, servers_stay=servers_stay)
        failed.append(lease.id)
    return failed


def fail_without_gpus(
    connection: Connection, lease: Lease, lost: int, why: str, *, servers_stay: bool
) -> None:
    """Fail a lease that lost some of its cGPUs for good; *why* ends a sentence for its owner.

    With *servers_stay*, a server that was in use is left to its owner. Raises `IllegalTransition`.
    """
    message = f"it lost {lost} of its {lease.count} cGPUs for good, {why}; "
    changes = {}
    if lease.status == Status.ACTIVE and servers_stay and lease.server_id is not None:
        message += (
            f"server {lease.server_id} stays as it is, without cGPUs, and is yours to delete when "
            "you have saved what you need; then launch again"
        )
        changes = {"server_id": None, "server_host": None}
    else:
        message += "launch again"
    fault = {"fault_step": "keep-gpus", "fault_message": message}
    leases.transition(connection, lease.id, Event.FAIL, message, **fault, **changes)


def is_silent(
    seen_at: datetime.datetime | None,
    interval: float | None,
    timeout: float,
    now: datetime.datetime,
) -> bool:
    """Return whether a monitor has not reported for too long *now*, by the clock of the database.

    It reported last at *seen_at* (None: never), and was to report again after *interval* seconds. Too long is more
    than *timeout* seconds, and more than `MISSED_REPORTS` intervals.
    """
    if seen_at is None:
        return True
    return (now - seen_at).total_seconds() > silence_limit(timeout, interval)


def silence_limit(timeout: float, interval: float | None) -> float:
    """Return for how many seconds a monitor that reports every *interval* seconds may be silent."""
    return max(timeout, MISSED_REPORTS * (interval or 0.0))


def ensure(session: Session, name: str) -> HostRow:
    """Return the host of an agent that reports, inserted now if this is its first report.

    The row is locked until the transaction ends, so reports of one host are taken over one after the other.
    """
    host = _lock(session, name)
    host.forgotten = False  # it reports; whether it is disabled stays as the operator left it
    return host


def _lock(session: Session, name: str) -> HostRow:
    """Return a host, inserted if it is new, with its row locked until the transaction ends."""
    host = session.get(HostRow, name, with_for_update=True, populate_existing=True)
    if host is None:
        # The other agent of the host may report for the first time at the same moment.
        upsert(session, HostRow, [{"name": name}])
        host = session.get_one(HostRow, name, with_for_update=True, populate_existing=True)
    return host


def next_serial(session: Session, name: str) -> int:
    """Return a number larger than any before it for *name*, and lock the host's row until the transaction ends.

    It is at least the milliseconds since 1970: if the host was forgotten, or the database was restored from a backup,
    an agent may have seen a larger number than the database contains.
    """
    host = _lock(session, name)
    host.wanted_serial = max(host.wanted_serial + 1, time.time_ns() // 1_000_000)
    session.flush()
    return host.wanted_serial


def with_monitor(session: Session) -> list[str]:
    """Return the names of all hosts whose monitors have ever reported; not those of forgotten hosts."""
    query = select(HostRow.name).where(
        HostRow.monitor_seen_at.is_not(None), HostRow.forgotten.is_(False)
    )
    return sorted(session.scalars(query))


def with_gpu_address(session: Session, address: str) -> list[str]:
    """Return the hosts whose monitor or endpoint has reported this address on the GPU network; not forgotten ones."""
    return sorted(session.scalars(_WITH_GPU_ADDRESS, {"this": address}))


def gpu_addresses_of(session: Session, name: str) -> list[str]:
    """Return the addresses on the GPU network that the monitor and the endpoint of a host have reported."""
    monitor = select(HostRow.gpu_address).where(HostRow.name == name)
    endpoint = select(EndpointRow.gpu_address).where(EndpointRow.host_name == name)
    return sorted(address for address in session.scalars(monitor.union(endpoint)) if address)


def forget_addresses(session: Session, name: str, addresses: Collection[str]) -> None:
    """Forget that a host has one of these *addresses*; its monitor's stays while leases use GPUs of the host."""
    session.execute(
        update(EndpointRow)
        .where(EndpointRow.host_name == name, EndpointRow.gpu_address.in_(addresses))
        .values(gpu_address=None)
    )
    # With locks: a claim may be committed at this moment.
    used = select(GpuRow.used_mb).where(GpuRow.host_name == name).with_for_update()
    if not any(session.scalars(used)):
        session.execute(
            update(HostRow)
            .where(HostRow.name == name, HostRow.gpu_address.in_(addresses))
            .values(gpu_address=None)
        )


def monitor_reports(session: Session, names: Collection[str]) -> dict[str, dict[str, Any]]:
    """Return the last reports on daemons and fences of these hosts, by host; hosts without a report are left out."""
    found = session.execute(_MONITOR_REPORTS, {"these": list(names)})
    return {row.name: row.monitor_report for row in found}


def problems(of_gpus: Sequence[str] | None, report: Mapping[str, Any] | None) -> list[str]:
    """Return all problems of a GPU host: those *of_gpus*, and those in the *report* on its daemons and fence."""
    return [*(of_gpus or ()), *(report or {}).get("problems", ())]
