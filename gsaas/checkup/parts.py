"""Every part of the check-up, in the order in which a finding explains those after it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from oslo_config import cfg
from sqlalchemy import select

from gsaas import rpc
from gsaas.checkup import agents, bus, database, findings, identity, nova, quotas
from gsaas.checkup.findings import Finding, fail, reason
from gsaas.conf import agent
from gsaas.db import ready
from gsaas.db.models import Endpoint


def look(conf: cfg.ConfigOpts) -> Iterator[Finding]:
    """Look at everything that *conf* describes; slow where something does not answer."""
    hosts: set[str] = set()
    stored = list(_guarded(database.PART, _stored(conf, hosts)))
    yield from stored
    yield from _guarded(bus.PART, _bus(conf))
    if conf.api.auth_strategy == "keystone":
        yield from _guarded(identity.PART, identity.look(conf))
    if conf.engine.cloud == "nova":
        yield from _guarded(nova.PART, nova.look(conf, None if findings.failed(stored) else hosts))
    yield from _guarded(quotas.PART, quotas.look(conf))


def _guarded(part: str, found: Iterator[Finding]) -> Iterator[Finding]:
    """Go on with the other parts, whatever the libraries of this one raise."""
    try:
        yield from found
    except Exception as error:  # noqa: BLE001  (it is told, and that is what this is for)
        yield fail(part, f"it cannot be looked at: {reason(error)}", "mend that, and look again")


def _stored(conf: cfg.ConfigOpts, hosts: set[str]) -> Iterator[Finding]:
    """What the database tells; *hosts* learns which have an endpoint."""
    try:
        opened = ready.connect(conf)
    except ready.Unusable as error:
        yield fail(database.PART, str(error), "start it, or correct [database]connection")
        return
    with contextlib.closing(opened):
        found = list(database.look(opened))
        yield from found
        if found[0].todo:
            return
        with opened.read() as session:
            yield from agents.look(
                session, conf.gpgpums.heartbeat_timeout, agent.silence_timeout(conf)
            )
            hosts.update(session.scalars(select(Endpoint.host_name)))


def _bus(conf: cfg.ConfigOpts) -> Iterator[Finding]:
    try:
        connected = rpc.connect(conf)
    except rpc.BusError as error:
        yield fail(
            bus.PART, f"transport_url cannot be used: {reason(error)}", "correct transport_url"
        )
        return
    try:
        found = list(bus.look(connected))
    finally:
        connected.cleanup()
    yield from found
    if conf.engine.cloud == "nova" and (found[0].todo is None or conf.nova.notification_url):
        yield from nova.notifications(conf)
