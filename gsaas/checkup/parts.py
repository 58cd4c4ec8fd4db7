# SPDX-License-Identifier: Apache-2.0
"""Run all checks, in an order in which an earlier finding may explain later ones."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from oslo_config import cfg
from sqlalchemy import select

from gsaas import rpc
from gsaas.checkup import (
    agents,
    bus,
    claims,
    configuration,
    database,
    findings,
    identity,
    nova,
    quotas,
    releases,
    reservations,
    unused,
)
from gsaas.checkup.findings import Finding, fail, reason
from gsaas.conf import agent
from gsaas.db import ready
from gsaas.db.models import EndpointRow


def check_all(conf: cfg.ConfigOpts) -> Iterator[Finding]:
    """Check everything that *conf* describes; yield each finding at once, as some services are slow to fail."""
    yield from _guarded(configuration.PART, configuration.check(conf))
    hosts: set[str] = set()
    from_database = list(_guarded(database.PART, _check_database(conf, hosts)))
    yield from from_database
    yield from _guarded(bus.PART, _check_bus(conf))
    yield bus.check_signatures(conf.bus.secrets, enforce=conf.bus.enforce)
    if conf.api.auth_strategy == "keystone":
        yield from _guarded(identity.PART, identity.check(conf))
    if conf.engine.cloud == "nova":
        endpoints = None if findings.failed(from_database) else hosts
        yield from _guarded(nova.PART, nova.check(conf, endpoints))
    yield from _guarded(quotas.PART, quotas.check(conf))


def _guarded(part: str, found: Iterator[Finding]) -> Iterator[Finding]:
    """Yield *found*; turn an exception into a finding, so that the checks of other parts go on."""
    try:
        yield from found
    except Exception as error:  # noqa: BLE001  (it becomes a finding)
        yield fail(part, f"it cannot be checked: {reason(error)}", "repair that, and check again")


def _check_database(conf: cfg.ConfigOpts, hosts: set[str]) -> Iterator[Finding]:
    """Check the database and the agents' reports in it; add the hosts that have an endpoint to *hosts*."""
    try:
        opened = ready.connect(conf)
    except ready.Unusable as error:
        yield fail(database.PART, str(error), "start it, or correct [database]connection")
        return
    with contextlib.closing(opened):
        found = list(database.check(opened))
        yield from found
        if found[0].todo:
            return  # without its tables there is nothing to read
        with opened.reading() as connection:
            yield from claims.check(connection)
            yield from reservations.check(connection, conf)
            yield from unused.check(connection)
        with opened.read() as session:
            yield from agents.check(
                session, conf.gpgpums.heartbeat_timeout, agent.silence_timeout(conf)
            )
            yield from releases.check_middleware(session, conf.remoting.client_version)
            hosts.update(session.scalars(select(EndpointRow.host_name)))


def _check_bus(conf: cfg.ConfigOpts) -> Iterator[Finding]:
    """Check the message bus, and Nova's notifications on it or on their own."""
    try:
        connected = rpc.connect(conf)
    except rpc.Misconfigured as error:
        yield fail(bus.PART, str(error), "correct the section [bus]")
        return
    except rpc.BusError as error:
        yield fail(
            bus.PART, f"transport_url cannot be used: {reason(error)}", "correct transport_url"
        )
        return
    try:
        found = list(bus.check(connected))
    finally:
        connected.cleanup()
    yield from found
    if conf.engine.cloud == "nova" and (found[0].todo is None or conf.nova.notification_url):
        yield from nova.notifications(conf)
