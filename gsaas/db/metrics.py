# SPDX-License-Identifier: Apache-2.0
"""The numbers behind the gauges of `/metrics`: a few sums over the present state. History is not read."""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Row, case, distinct, func, or_, select
from sqlalchemy.orm import Session

from gsaas.db import clock, hosts, settings
from gsaas.db.leases import LIVE
from gsaas.db.models import (
    ClaimRow,
    DisputedGpuRow,
    EndpointRow,
    GpuReadingRow,
    GpuRow,
    HostRow,
    LeaseRow,
)
from gsaas.objects.device_kinds import CPU, CPU_PREFIX, CUDA
from gsaas.objects.endpoint_report import ConntrackLevel
from gsaas.objects.lifecycle import ENTITLED, Status

REASONS = ("unmapped", "refused")
"""Why endpoints drop packets; see `gsaas.objects.endpoint_report.BindingReport`."""

DAEMON_STATES = ("starting", "healthy", "unresponsive", "down", "draining")
"""States of daemons; see `gsaas.objects.daemon.DaemonState`."""


@dataclass(frozen=True)
class GpuTotals:
    """The GPUs of one model and kind; memory in MiB."""

    known: int
    idle: int
    """Offered, claimed by no lease, and not kept for a reservation."""
    withheld: int
    """Withdrawn, or disabled, or on disabled hosts."""
    memory_mb: int
    used_mb: int
    reserved_mb: int
    """Kept for reservations, and not used by a lease of theirs yet."""


@dataclass(frozen=True)
class AgentTotals:
    """Agents of hosts in service: how many there are, how many are silent, and the longest silence (seconds)."""

    known: int
    silent: int
    longest: float


@dataclass(frozen=True)
class BindingTotals:
    """Bindings, as the endpoints reported them last."""

    installed: int = 0
    pending: int = 0
    with_problems: int = 0
    """Endpoints with problems."""
    dropped: Mapping[str, int] = field(default_factory=dict)
    """Reason -> packets of the VMs that have a binding now."""
    conntrack: float = 0.0
    """How full the fullest of the hosts' tables of connections is, 0 to 1."""


@dataclass(frozen=True)
class DaemonTotals:
    """Daemons and fences of GPU hosts, as their monitors reported them last."""

    states: Mapping[str, int] = field(default_factory=dict)
    """State of a daemon -> number of daemons; contains every state."""
    restarts: int = 0
    """Of the daemons that run now."""
    refused: int = 0
    """By the fences."""
    with_problems: int = 0
    """Monitors that report problems."""


@dataclass(frozen=True)
class GpuGauge:
    """One GPU and its last reading: MiB, percent, degrees Celsius, watts; None for a value that it does not support."""

    host: str
    uuid: str
    model: str
    memory_mb: int
    claimed_mb: int
    used_mb: int | None
    utilisation: float | None
    temperature_c: float | None
    power_w: float | None


@dataclass(frozen=True)
class Verified:
    """What `gsaas-manage verify --record` found last."""

    at: float = 0.0
    """When, in seconds since 1970; 0: never."""
    differences: Mapping[str, int] = field(default_factory=dict)
    """Kind of difference -> how many were left; kinds without any are left out."""
    not_asked: int = 0
    """How many did not answer."""


@dataclass(frozen=True)
class CloudState:
    """The cloud at one moment."""

    leases: Mapping[str, int]
    """Status -> how many; every status but RELEASED."""
    degraded: int
    """Leases with a GPU that has failed, or whose monitor is silent."""
    longest_wait: float
    """Seconds since the first of those in the queue joined it; 0 if there is none."""
    cgpus: int
    disputed: int
    """GPUs that a host reports although another host has them."""
    gpus: Mapping[tuple[str, str], GpuTotals]
    """By model and kind."""
    monitors: AgentTotals
    endpoints: AgentTotals
    bindings: BindingTotals
    daemons: DaemonTotals
    verified: Verified


def state(session: Session, timeout: float) -> CloudState:
    """Return the state of the cloud. An agent is silent after *timeout* seconds without a report."""
    now = clock.now(session.connection())
    monitored = session.execute(
        select(
            HostRow.name,
            HostRow.disabled,
            HostRow.monitor_seen_at,
            HostRow.monitor_interval,
            HostRow.monitor_report,
            HostRow.monitor_problems,
        ).where(HostRow.monitor_seen_at.is_not(None))
    ).all()
    endpoints = list(session.scalars(select(EndpointRow)))
    in_service = [endpoint.seen_at for endpoint in endpoints if not endpoint.host.disabled]
    return CloudState(
        leases=_leases(session),
        degraded=_degraded(session, monitored, timeout, now),
        longest_wait=_longest_wait(session, now),
        cgpus=session.scalars(
            select(func.count()).select_from(ClaimRow).where(ClaimRow.position >= 0)
        ).one(),
        disputed=session.scalars(select(func.count(distinct(DisputedGpuRow.gpu_uuid)))).one(),
        gpus=_gpus(session),
        monitors=_agents(
            (
                (host.monitor_seen_at, hosts.silence_limit(timeout, host.monitor_interval))
                for host in monitored
                if not host.disabled
            ),
            now,
        ),
        endpoints=_agents(((at, timeout) for at in in_service), now),
        bindings=_bindings(endpoints),
        daemons=_daemons(host for host in monitored if not host.disabled),
        verified=_verified(session),
    )


def each_gpu(session: Session) -> list[GpuGauge]:
    """Return each GPU with its last reading, by host name and device index."""
    query = (
        select(
            GpuRow.host_name,
            GpuRow.uuid,
            GpuRow.model,
            GpuRow.memory_mb,
            GpuRow.used_mb,
            GpuReadingRow.used_mb,
            GpuReadingRow.utilisation,
            GpuReadingRow.temperature_c,
            GpuReadingRow.power_w,
        )
        .join_from(GpuRow, GpuReadingRow, isouter=True)
        .order_by(GpuRow.host_name, GpuRow.device_index)
    )
    return [GpuGauge(*row) for row in session.execute(query)]


def _verified(session: Session) -> Verified:
    found = settings.get(session, settings.VERIFIED)
    if found is None:
        return Verified()
    return Verified(found["at"], found["differences"], found["not_asked"])


def _leases(session: Session) -> dict[str, int]:
    number = func.count().label("number")
    query = (
        select(LeaseRow.status, number).where(LeaseRow.status.in_(LIVE)).group_by(LeaseRow.status)
    )
    found = {row.status: row.number for row in session.execute(query)}
    return {status: found.get(status, 0) for status in LIVE}


def _degraded(
    session: Session, monitored: Sequence[Row[Any]], timeout: float, now: datetime.datetime
) -> int:
    silent = [
        host.name
        for host in monitored
        if hosts.is_silent(host.monitor_seen_at, host.monitor_interval, timeout, now)
    ]
    query = (
        select(func.count(ClaimRow.lease_id.distinct()))
        .join_from(ClaimRow, GpuRow)
        .join(LeaseRow, LeaseRow.id == ClaimRow.lease_id)
        .where(
            LeaseRow.status.in_(ENTITLED),
            ClaimRow.position >= 0,
            or_(GpuRow.withdrawn_reason.is_not(None), GpuRow.host_name.in_(silent)),
        )
    )
    return session.scalars(query).one()


def _longest_wait(session: Session, now: datetime.datetime) -> float:
    first = session.scalar(
        select(func.min(LeaseRow.queued_at)).where(LeaseRow.status == Status.QUEUED)
    )
    return 0.0 if first is None else max(0.0, (now - first).total_seconds())


def _daemons(monitored: Iterable[Row[Any]]) -> DaemonTotals:
    states = Counter(dict.fromkeys(DAEMON_STATES, 0))
    restarts = refused = with_problems = 0
    for host in monitored:
        report = host.monitor_report or {}
        with_problems += bool(hosts.problems(host.monitor_problems, report))
        refused += (report.get("fence") or {}).get("refused", 0)
        for daemon in report.get("daemons", {}).values():
            states[daemon["state"]] += 1
            restarts += daemon["restarts"]
    return DaemonTotals(dict(states), restarts, refused, with_problems)


def _gpus(session: Session) -> dict[tuple[str, str], GpuTotals]:
    withheld = or_(
        GpuRow.disabled.is_(True), GpuRow.withdrawn_reason.is_not(None), HostRow.disabled.is_(True)
    )
    is_cpu = case((GpuRow.uuid.startswith(CPU_PREFIX), 1), else_=0).label("is_cpu")
    query = (
        select(
            GpuRow.model,
            is_cpu,
            func.count(),
            func.sum(case((withheld, 0), (GpuRow.used_mb + GpuRow.reserved_mb == 0, 1), else_=0)),
            func.sum(case((withheld, 1), else_=0)),
            func.sum(GpuRow.memory_mb),
            func.sum(GpuRow.used_mb),
            func.sum(GpuRow.reserved_mb),
        )
        .join_from(GpuRow, HostRow)
        .group_by(GpuRow.model, "is_cpu")  # by name: PostgreSQL takes two parameters for two values
    )
    return {
        (model, CPU if cpu else CUDA): GpuTotals(*map(int, sums))
        for model, cpu, *sums in session.execute(query)
    }


def _agents(seen: Iterable[tuple[datetime.datetime, float]], now: datetime.datetime) -> AgentTotals:
    """Return totals of agents, each given as (time of its last report, seconds after which it counts as silent)."""
    silences = [(max(0.0, (now - at).total_seconds()), timeout) for at, timeout in seen]
    return AgentTotals(
        known=len(silences),
        silent=sum(silence > timeout for silence, timeout in silences),
        longest=max((silence for silence, _ in silences), default=0.0),
    )


def _bindings(endpoints: Iterable[EndpointRow]) -> BindingTotals:
    installed: Counter[bool] = Counter()
    dropped = Counter(dict.fromkeys(REASONS, 0))
    with_problems = 0
    conntrack = 0.0
    for endpoint in endpoints:
        level = endpoint.report.get("conntrack")  # None: of an older release, or nothing is tracked
        if level:
            conntrack = max(conntrack, ConntrackLevel(**level).ratio)
        with_problems += bool(endpoint.report.get("problems"))
        for binding in endpoint.report.get("bindings", {}).values():
            installed[binding["installed"]] += 1
            counted = binding.get("dropped_packets", {})
            dropped.update({reason: counted.get(reason, 0) for reason in REASONS})
    return BindingTotals(installed[True], installed[False], with_problems, dict(dropped), conntrack)
