"""RODVR endpoints: what each one reported last, and when."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from oslo_utils import timeutils
from sqlalchemy import Connection, func, select
from sqlalchemy.orm import Session

from gsaas import exceptions
from gsaas.db import hosts
from gsaas.db.models import EndpointRow, HostRow


def register(session: Session, host_name: str, report: dict[str, Any]) -> None:
    """Record the *report* (JSON values) of the endpoint of *host_name*, and that it is alive now."""
    hosts.ensure(session, host_name)
    endpoint = session.get(EndpointRow, host_name)
    if endpoint is None:
        endpoint = EndpointRow(host_name=host_name)
        session.add(endpoint)
    endpoint.seen_at = timeutils.utcnow()
    endpoint.report = report
    # An endpoint that is starting does not know its address yet; the stored address then stays.
    if report.get("gpu_address"):
        endpoint.gpu_address = report["gpu_address"]
    session.flush()


def get(session: Session, host_name: str) -> EndpointRow:
    """Return the endpoint of one host; raises `NotFound`."""
    endpoint = session.scalar(select(EndpointRow).where(EndpointRow.host_name == host_name))
    if endpoint is None:
        raise exceptions.NotFound(noun="endpoint", id=host_name)
    return endpoint


def gpu_addresses(session: Session, host_names: Collection[str]) -> dict[str, str]:
    """Return the addresses on the GPU network of these hosts, by host; without hosts that have not reported one."""
    query = (
        select(HostRow.name, func.coalesce(EndpointRow.gpu_address, HostRow.gpu_address))
        .outerjoin(EndpointRow, EndpointRow.host_name == HostRow.name)
        .where(HostRow.name.in_(host_names))
    )
    return {name: address for name, address in session.execute(query) if address is not None}


def page(session: Session, *, limit: int, marker: str | None = None) -> list[EndpointRow]:
    """Return up to *limit* endpoints whose host names come after *marker*, by host name."""
    query = select(EndpointRow).order_by(EndpointRow.host_name).limit(limit)
    if marker is not None:
        query = query.where(EndpointRow.host_name > marker)
    return list(session.scalars(query))


def report_of(connection: Connection, host_name: str) -> Mapping[str, Any] | None:
    """Return the last report of the endpoint of a host; None if the host has no endpoint."""
    query = select(EndpointRow.report).where(EndpointRow.host_name == host_name)
    return connection.scalar(query)
