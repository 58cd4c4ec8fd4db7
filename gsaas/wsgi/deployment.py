# SPDX-License-Identifier: Apache-2.0
"""Compose the API of a cloud from its configuration, with WSGI filters around it.

A WSGI server may load the application once and fork its workers afterwards, and connections must not be shared between
processes. So nothing here connects: the first request that needs the database, the message bus, Keystone or Nova does,
or `warm_up` before it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from oslo_config import cfg

from gsaas import reports, rpc
from gsaas.api.app import Authenticate, create_app
from gsaas.api.auth import TokenFile
from gsaas.api.keystone import Keystone
from gsaas.api.service import ApiService
from gsaas.api.subscriptions import LeaseSubscriptions
from gsaas.cloud import base as cloud
from gsaas.db import processes
from gsaas.db.database import Database
from gsaas.gpgpums.claims import Claims
from gsaas.metrics import counted
from gsaas.notifications.emitter import Notifications
from gsaas.objects.gpu import EXCLUSIVE
from gsaas.objects.request import ANY, Request
from gsaas.remoting.drivers import Drivers
from gsaas.rpc import notifiers
from gsaas.rpc.announce import Announcer
from gsaas.rpc.api import ApiClient, ApiListener
from gsaas.rpc.engine import EngineClient
from gsaas.wsgi import bodies, filters
from gsaas.wsgi.filters import Wsgi

PROCESS = "gsaas-api"
_ANY_GPU = Request(1, EXCLUSIVE, None, ANY)


def deploy(conf: cfg.ConfigOpts) -> tuple[Wsgi, list[Callable[[], object]]]:
    """Return the API that *conf* describes, and tasks for `warm_up.schedule`.

    The application may be shared by threads, and may be made before a fork.

    Raises `KeystoneNotConfigured`, `TokenFileError`, or `ValueError` for a driver or policy that is not installed,
    or filters that cannot be loaded.
    """
    drivers = Drivers(conf)
    # No retries: oslo.db would connect, and retry, here and now, and so delay the start of the server.
    database = Database.connect(conf, max_retries=0)
    bus = rpc.connect(conf)
    servers = cloud.load(conf.engine.cloud, conf)
    notifications = Notifications(conf, database, *notifiers.connect(conf, PROCESS))
    service = compose(conf, drivers, database, bus, servers, notifications)
    app = create_app(service, _authenticator(conf))
    reports.prepare(conf)
    reports.add_section(
        "API",
        lambda: {
            "database connections": database.engine.pool.status(),
            "leases that long polls wait for": service.subscriptions.leases(),
        },
    )
    return bodies.readable(filters.surround(app, conf)), [
        lambda: reports.watch(conf, PROCESS),  # in a thread, which would not survive a fork
        # Reads all GPUs into memory, and loads the policies.
        lambda: service.claims.check(_ANY_GPU),
        lambda: rpc.check(bus),
        servers.connect,
        lambda: processes.keep_recording(database, PROCESS, threading.Event()),
    ]


def compose(
    conf: cfg.ConfigOpts,
    drivers: Drivers,
    database: Database,
    bus: rpc.Bus,
    servers: cloud.Cloud,
    notifications: Notifications,
) -> ApiService:
    """Return an API worker of these parts, for `create_app`; raises `ValueError` if *conf* cannot be used."""
    engine = EngineClient(bus)
    subscriptions = LeaseSubscriptions(conf.queue.long_polls)
    subscriptions.on_subscribe = ApiListener(bus, subscriptions.notify).start
    announcer = Announcer(engine, ApiClient(bus), subscriptions.notify)
    claims = Claims.from_conf(
        conf,
        database,
        drivers,
        announce=counted.counting_launches(announcer),
        is_client_waiting=subscriptions.is_client_waiting,
    )
    return ApiService(
        conf,
        database=database,
        claims=claims,
        engine=engine,
        cloud=servers,
        drivers=drivers,
        subscriptions=subscriptions,
        notifications=notifications,
    )


def _authenticator(conf: cfg.ConfigOpts) -> Authenticate:
    """Return what `[api]auth_strategy` names; raise `KeystoneNotConfigured` or `TokenFileError`."""
    if conf.api.auth_strategy == "token-file":
        return TokenFile(conf.api.token_file)
    return Keystone(conf)
