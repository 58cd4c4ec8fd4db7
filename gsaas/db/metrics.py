"""What the gauges of `/metrics` are made from: a few sums over what is there now. History is not read."""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from oslo_utils import timeutils
from sqlalchemy import case, func, or_, select
from sqlalchemy.orm import Session

from gsaas.db.leases import LIVE
from gsaas.db.models import Claim, Endpoint, Gpu, Host, Lease

REASONS = ("unmapped", "refused")
"""Why endpoints drop packets; see `gsaas.rodvr.report.BindingReport`."""


@dataclass(frozen=True)
class Gpus:
    """The GPUs of one model; memory in MiB."""

    known: int
    idle: int
    """On offer, and nobody holds anything of them."""
    withheld: int
    """They, or their hosts, are disabled."""
    memory_mb: int
    used_mb: int


@dataclass(frozen=True)
class Agents:
    """Those of hosts in service: how many there are, how many are silent, and for how long at most (seconds)."""

    known: int
    silent: int
    longest: float


@dataclass(frozen=True)
class Bindings:
    """What the endpoints said last."""

    installed: int = 0
    pending: int = 0
    troubled: int = 0
    """Endpoints with problems."""
    dropped: Mapping[str, int] = field(default_factory=dict)
    """Reason -> packets of the VMs that are bound now."""


@dataclass(frozen=True)
class State:
    """The cloud at one moment."""

    leases: Mapping[str, int]
    """Status -> how many; every status but RELEASED."""
    cgpus: int
    gpus: Mapping[str, Gpus]
    """By model."""
    monitors: Agents
    endpoints: Agents
    bindings: Bindings


def state(session: Session, patience: float) -> State:
    """Read the state of the cloud. An agent is silent after *patience* seconds without a word."""
    monitors = session.scalars(
        select(Host.monitor_seen_at).where(
            Host.monitor_seen_at.is_not(None), Host.disabled.is_(False)
        )
    )
    endpoints = list(session.scalars(select(Endpoint)))
    in_service = [endpoint.seen_at for endpoint in endpoints if not endpoint.host.disabled]
    return State(
        leases=_leases(session),
        cgpus=session.scalar(select(func.count()).select_from(Claim)),
        gpus=_gpus(session),
        monitors=_agents(monitors, patience),
        endpoints=_agents(in_service, patience),
        bindings=_bindings(endpoints),
    )


def _leases(session: Session) -> dict[str, int]:
    number = func.count().label("number")
    query = select(Lease.status, number).where(Lease.status.in_(LIVE)).group_by(Lease.status)
    found = {row.status: row.number for row in session.execute(query)}
    return {status: found.get(status, 0) for status in LIVE}


def _gpus(session: Session) -> dict[str, Gpus]:
    withheld = or_(Gpu.disabled.is_(True), Host.disabled.is_(True))
    query = (
        select(
            Gpu.model,
            func.count(),
            func.sum(case((withheld, 0), (Gpu.used_mb == 0, 1), else_=0)),
            func.sum(case((withheld, 1), else_=0)),
            func.sum(Gpu.memory_mb),
            func.sum(Gpu.used_mb),
        )
        .join_from(Gpu, Host)
        .group_by(Gpu.model)
    )
    return {model: Gpus(*map(int, sums)) for model, *sums in session.execute(query)}


def _agents(seen: Iterable[datetime.datetime], patience: float) -> Agents:
    now = timeutils.utcnow()
    silences = [max(0.0, (now - at).total_seconds()) for at in seen]
    return Agents(
        known=len(silences),
        silent=sum(silence > patience for silence in silences),
        longest=max(silences, default=0.0),
    )


def _bindings(endpoints: Iterable[Endpoint]) -> Bindings:
    installed: Counter[bool] = Counter()
    dropped = Counter(dict.fromkeys(REASONS, 0))
    troubled = 0
    for endpoint in endpoints:
        troubled += bool(endpoint.report.get("problems"))
        for binding in endpoint.report.get("bindings", {}).values():
            installed[binding["installed"]] += 1
            counted = binding.get("dropped_packets", {})
            dropped.update({reason: counted.get(reason, 0) for reason in REASONS})
    return Bindings(installed[True], installed[False], troubled, dict(dropped))
