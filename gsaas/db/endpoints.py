# SPDX-License-Identifier: Apache-2.0
"""RODVR endpoints: what each one reported last, and when."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, bindparam, func, select
from sqlalchemy.orm import Session

from gsaas import exceptions
from gsaas.db import clock, hosts, pool_versions
from gsaas.db.models import EndpointRow, HostRow
from gsaas.db.ordering import order_of, row_values

SORT_KEYS = {"host": EndpointRow.host_name, "seen_at": EndpointRow.seen_at}
"""Columns that a list of endpoints may be sorted by."""


_ENDPOINT = select(EndpointRow).where(EndpointRow.host_name == bindparam("this"))
_GPU_ADDRESSES = (
    select(HostRow.name, func.coalesce(EndpointRow.gpu_address, HostRow.gpu_address))
    .outerjoin(EndpointRow, EndpointRow.host_name == HostRow.name)
    .where(HostRow.name.in_(bindparam("these", expanding=True)))
)


def register(session: Session, host_name: str, report: dict[str, Any]) -> None:
    """Record the *report* (JSON values) of the endpoint of *host_name*, and that it is alive now."""
    hosts.ensure(session, host_name)
    endpoint = session.get(EndpointRow, host_name)
    if endpoint is None:
        endpoint = EndpointRow(host_name=host_name)
        session.add(endpoint)
        pool_versions.renew(session, "endpoints")
    endpoint.seen_at = clock.now(session.connection())
    endpoint.report = report
    # An endpoint that is starting does not know its address yet; the stored address then stays.
    if report.get("gpu_address"):
        endpoint.gpu_address = report["gpu_address"]
    session.flush()


def get(session: Session, host_name: str) -> EndpointRow:
    """Return the endpoint of one host; raises `NotFound`."""
    endpoint = session.scalar(_ENDPOINT, {"this": host_name})
    if endpoint is None:
        raise exceptions.NotFound(noun="endpoint", id=host_name)
    return endpoint


def gpu_addresses(session: Session, host_names: Collection[str]) -> dict[str, str]:
    """Return the addresses on the GPU network of these hosts, by host; without hosts that have not reported one."""
    found = session.execute(_GPU_ADDRESSES, {"these": list(host_names)})
    return {name: address for name, address in found if address is not None}


def page(
    session: Session,
    *,
    limit: int,
    marker: str | None = None,
    sort: Sequence[tuple[str, bool]] = (),
) -> list[EndpointRow]:
    """Return up to *limit* endpoints after the endpoint of the host *marker*.

    *sort* are names of `SORT_KEYS`, each with whether it is descending; by default they are sorted by host name.
    Raises `BadRequest` if *marker* is no endpoint and its name alone does not say where the page begins.
    """
    order = order_of(SORT_KEYS, "host", sort)
    after = None if marker is None else row_values(session, EndpointRow, order, marker, "endpoint")
    return list(session.scalars(order.page(select(EndpointRow), limit, after)))


def report_of(connection: Connection, host_name: str) -> Mapping[str, Any] | None:
    """Return the last report of the endpoint of a host; None if the host has no endpoint."""
    query = select(EndpointRow.report).where(EndpointRow.host_name == host_name)
    return connection.scalar(query)
