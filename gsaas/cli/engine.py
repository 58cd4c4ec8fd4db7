# SPDX-License-Identifier: Apache-2.0
"""`gsaas-engine`: moves leases to their wanted state. Any number of them may run, on any controllers."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack

from oslo_config import cfg

from gsaas import limits, reports, rpc, service
from gsaas.api import rbac
from gsaas.api.decisions import DecisionCache
from gsaas.cloud import base as cloud
from gsaas.db import processes
from gsaas.db.database import Database
from gsaas.db.stored_leases import StoredLeases
from gsaas.engine.agents import Agents
from gsaas.engine.reconciler import LeaseReconciler
from gsaas.engine.service import Engine
from gsaas.gpgpums.claims import Claims
from gsaas.gpgpums.plain_servers import PlainServers
from gsaas.grants import keyring
from gsaas.metrics import counted, exposition
from gsaas.notifications.emitter import Notifications
from gsaas.objects.gpu_network import GpuNetwork
from gsaas.remoting.drivers import Drivers
from gsaas.rpc import notifiers
from gsaas.rpc.announce import Announcer
from gsaas.rpc.api import ApiClient
from gsaas.rpc.engine import EngineClient
from gsaas.rpc.monitor import MonitorClient
from gsaas.rpc.rodvr import EndpointClient

DESCRIPTION = """\
Move GSaaS's leases to their wanted states, and serve its agents. Any number of engines may run: they share the work,
and another engine finishes what one has left half done.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run an engine until it is stopped; return the exit status."""
    return service.run("gsaas-engine", DESCRIPTION, start, argv)


def start(conf: cfg.ConfigOpts, parts: ExitStack) -> None:
    """Start an engine; *parts* stops it when it is closed. Raises `service.Unstartable`."""
    try:
        drivers = Drivers(conf)
        servers = cloud.load(conf.engine.cloud, conf)
    except ValueError as error:
        raise _unusable(error) from error
    database = service.database(conf)
    parts.callback(database.close)
    bus = service.bus(conf)
    parts.callback(bus.cleanup)
    try:
        notifications = Notifications(conf, database, *notifiers.connect(conf, "gsaas-engine"))
    except rpc.BusError as error:
        raise service.Unstartable(
            f"notifications cannot be sent: {error}; correct transport_url in [oslo_messaging_notifications]"
        ) from error
    parts.callback(notifications.close)
    try:
        engine = compose(conf, drivers, database, bus, servers, notifications)
    except ValueError as error:
        raise _unusable(error) from error
    parts.callback(engine.stop)
    engine.start()
    reports.add_section("Engine", engine.describe)
    stopping = threading.Event()
    parts.callback(stopping.set)
    threading.Thread(
        target=processes.keep_recording,
        args=[database, "gsaas-engine", stopping],
        name="engine-record",
        daemon=True,
    ).start()
    if conf.engine.metrics_listen:
        parts.callback(_serve_metrics(conf.engine.metrics_listen))


def compose(
    conf: cfg.ConfigOpts,
    drivers: Drivers,
    database: Database,
    bus: rpc.Bus,
    servers: cloud.Cloud,
    notifications: Notifications,
) -> Engine:
    """Return an engine of these parts, not yet started; raises `ValueError` if *conf* cannot be used."""
    network = GpuNetwork.of(conf.gpu_network.prefixes, conf.gpu_network.hosts)
    agents = Agents(EndpointClient(bus, conf.engine.endpoint_timeout), MonitorClient(bus), network)
    announcer = Announcer(EngineClient(bus), ApiClient(bus))
    claims = Claims.from_conf(
        conf, database, drivers, announce=counted.counting_launches(announcer)
    )
    return Engine(
        conf,
        database=database,
        bus=bus,
        reconciler=LeaseReconciler(
            conf,
            database=database,
            claims=claims,
            cloud=servers,
            remoting=drivers.named,
            agents=agents,
            announce=announcer.status_changed,
        ),
        claims=claims,
        keyring=keyring.from_conf(conf),
        audit=notifications.audit,
        plain_servers=PlainServers.from_conf(
            conf,
            database,
            claims,
            servers,
            drivers,
            quotas=limits.load(conf),
            stored=StoredLeases(database, conf.api.most_leases_stored),
            may_launch=DecisionCache(rbac.enforcer(conf)).may_launch,
        ),
    )


def _unusable(error: ValueError) -> service.Unstartable:
    return service.Unstartable(f"the configuration cannot be used: {error}")


def _serve_metrics(listen: str) -> Callable[[], None]:
    """Serve metrics at *listen*; return the function that ends this. Raises `service.Unstartable`."""
    try:
        _, stop = exposition.serve(listen)
    except (OSError, OverflowError) as error:
        raise service.Unstartable(
            f"metrics cannot be served at {listen}: {error}; see [engine]metrics_listen"
        ) from error
    return stop


if __name__ == "__main__":
    sys.exit(main())
