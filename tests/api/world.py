# SPDX-License-Identifier: Apache-2.0
"""A small cloud with the API in front of it, and callers with every role."""

from __future__ import annotations

import functools
import json
import re
import tempfile
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import flask
import jsonschema
import sqlalchemy
import werkzeug.routing
from oslo_config import cfg
from oslo_utils import timeutils

import gsaas.conf
from gsaas import limits, rpc
from gsaas.api import app, auth, microversions, schemas
from gsaas.api.app import Authenticate
from gsaas.api.route import Route
from gsaas.api.routes import ROUTES
from gsaas.api.service import ApiService
from gsaas.api.subscriptions import LeaseSubscriptions
from gsaas.conf.grants import allows_direct
from gsaas.db import endpoints, gpus, models
from gsaas.db.database import Database
from gsaas.gpgpums.claims import Claims
from gsaas.gpgpums.rules import MaskedAddresses, PolicySelection
from gsaas.limits.base import UNITS, UNLIMITED
from gsaas.notifications.emitter import Notifications
from gsaas.objects.gpu_report import GpuInfo
from gsaas.remoting.drivers import Drivers
from gsaas.rpc import notifiers
from tests.api import fields
from tests.api.doubles import MemoryCloud, MemoryEngine
from tests.support import sqlite
from tests.support.scheduling import open_claims

CALLERS = {
    "admin": ("operations", ["admin"]),
    "manager": ("blue", ["manager", "member", "reader"]),
    "member": ("blue", ["member", "reader"]),
    "reader": ("blue", ["reader"]),
    "stranger": ("red", ["member", "reader"]),
    "service": ("service", ["service"]),
    "nobody": ("blue", []),
    "admin of blue": ("blue", ["admin"]),
    "service of blue": ("blue", ["service"]),
    "manager of red": ("red", ["manager", "member", "reader"]),
    "reader of red": ("red", ["reader"]),
}
"""Name of a caller -> its project and roles."""


def token(caller: str) -> str:
    """Return the token of one of `CALLERS`."""
    return f"token-of-the-{caller.replace(' ', '-')}"


def write_tokens(path: Path) -> Path:
    """Write the tokens of all `CALLERS` to a token file and return its path."""
    entries = [
        {"token": token(name), "user_id": name, "project_id": project, "roles": roles}
        for name, (project, roles) in CALLERS.items()
    ]
    path.write_text(json.dumps(entries), encoding="utf-8")
    path.chmod(0o600)
    return path


@functools.cache
def _token_file() -> auth.TokenFile:
    with tempfile.TemporaryDirectory() as folder:
        return auth.TokenFile(write_tokens(Path(folder, "tokens.json")))


def fill(database: Database, hosts: int = 2, gpus_per_host: int = 4) -> None:
    """Register hosts gpu1… with GPUs of 8192 MiB, which are compute hosts as well, and compute1 without GPUs."""
    with database.write() as session:
        for number in range(1, hosts + 1):
            infos = [
                GpuInfo(f"GPU-{number:04d}-{index}", index, "Quadro M4000", 8192, 8308)
                for index in range(gpus_per_host)
            ]
            address = f"192.168.{50 + number // 250}.{1 + number % 250}"
            gpus.register(session, f"gpu{number}", address, infos)
            endpoints.register(session, f"gpu{number}", {"bindings": {}, "problems": []})
        endpoints.register(session, "compute1", {"bindings": {}, "problems": []})


@functools.cache
def _filled(hosts: int) -> bytes:
    """Return the content of a database with *hosts* GPU hosts, cached because making it takes longer than a test."""

    def make(database: Database) -> None:
        models.Base.metadata.create_all(database.engine)
        fill(database, hosts)

    return sqlite.image(make)


def _report_now(database: Database) -> None:
    """Set the last report of every agent to the current time."""
    now = timeutils.utcnow()
    with database.write() as session:
        has_monitor = models.HostRow.monitor_seen_at.is_not(None)
        session.execute(
            sqlalchemy.update(models.HostRow).where(has_monitor).values(monitor_seen_at=now)
        )
        session.execute(sqlalchemy.update(models.EndpointRow).values(seen_at=now))


class _Rule(werkzeug.routing.Rule):
    """A route that caches what Werkzeug compiles to build URLs of it, which takes half of the time of `create_app`."""

    _builders: ClassVar[dict[tuple[str, bool], Any]] = {}

    def _compile_builder(self, append_unknown: bool = True) -> Any:
        key = (self.rule, append_unknown)
        if key not in self._builders:
            self._builders[key] = super()._compile_builder(append_unknown)
        return self._builders[key]


flask.Flask.url_rule_class = _Rule


@dataclass
class World:
    """The API and the parts that it uses, for tests to inspect and change."""

    conf: cfg.ConfigOpts
    database: Database
    claims: Claims
    cloud: MemoryCloud
    engine: MemoryEngine
    subscriptions: LeaseSubscriptions
    notifications: Notifications
    app: flask.Flask

    @classmethod
    def build(
        cls,
        folder: Path,
        hosts: int = 2,
        driver: str = "simulated",
        settings: str = "",
        authenticate: Authenticate | None = None,
        bus: str | None = rpc.IN_PROCESS,
        database: Database | None = None,
        own_daemons: bool = False,
    ) -> World:
        """Return a world with *database* or that in *folder*; if there is none, it is created with *hosts* GPU hosts.

        *settings* is the content of its configuration file. Callers are those of `CALLERS`, unless *authenticate*
        identifies them. *bus* is the URL for notifications, None the one in *settings*. Leases have no daemons of
        their own, which nothing would start here, but with *own_daemons*, as the driver has them.
        """
        (folder / "gsaas.conf").write_text(settings, encoding="utf-8")
        conf = gsaas.conf.load(files=[str(folder / "gsaas.conf")])
        conf.set_override("driver", driver, "remoting")
        drivers = Drivers(conf)
        # Most tests are about other things, and have more leases than a project gets by default, or no key for grants.
        for resource in UNITS:
            conf.set_default(resource, UNLIMITED, "quotas")
        conf.set_default("direct", "always", "grants")
        conf.set_default("min_share_mb", 1, "gpgpums")
        for days in ("reservation_days", "reservation_days_ahead"):
            conf.set_default(days, 0, "quotas")
        if database is None:
            path = folder / "gsaas.db"
            if path.exists():
                database = sqlite.opened(f"sqlite:///{path}")
            else:
                database = sqlite.in_file(path, _filled(hosts))
                _report_now(database)
        subscriptions = LeaseSubscriptions(conf.queue.long_polls)
        # Connecting takes as long as a whole test, and most send nothing.
        wanted = notifiers.SECTION in settings
        ours = notifiers.connect(conf, "gsaas-api", bus) if wanted else ()
        notifications = Notifications(conf, database, *ours)

        def announce(lease_id: str, *_: Any) -> None:
            subscriptions.notify(lease_id)

        claims = open_claims(
            database,
            attempts=conf.gpgpums.claim_attempts,
            heartbeat_timeout=3600,
            masked=MaskedAddresses(conf.rodvr.masked_prefix, 8308, drivers.masked_ports),
            daemon_ports=drivers.daemon_ports if own_daemons else {},
            native=conf.remoting.native,
            local=MaskedAddresses(conf.rodvr.local_prefix, 8308, drivers.masked_ports),
            local_per_project=conf.rodvr.local_per_project,
            direct=allows_direct(conf),
            quotas=limits.load(conf),
            backfill=conf.queue.backfill,
            reserve_for=conf.queue.reserve_for,
            client_timeout=conf.queue.client_timeout,
            announce=announce,
            is_client_waiting=subscriptions.is_client_waiting,
            policies=PolicySelection.from_conf(conf),
        )
        cloud = MemoryCloud(["gpu1", "gpu2", "compute1"])
        engine = MemoryEngine(database, claims, cloud)
        service = ApiService(
            conf,
            database=database,
            claims=claims,
            engine=engine,
            cloud=cloud,
            drivers=drivers,
            subscriptions=subscriptions,
            notifications=notifications,
        )
        api = app.create_app(service, authenticate or _token_file())
        return cls(conf, database, claims, cloud, engine, subscriptions, notifications, api)

    def call(
        self, caller: str | None, method: str, path: str, body: Any = None, **more: Any
    ) -> Any:
        """Send one request as *caller* (None: without a token) and return Flask's response.

        Fails the test if the OpenAPI document does not allow the response.
        """
        headers = dict(more.pop("headers", {}))
        if caller is not None:
            headers[auth.HEADER] = token(caller)
        if body is not None:
            more["json"] = body
        response = self.app.test_client().open(path, method=method, headers=headers, **more)
        for route in ROUTES:
            if route.method == method and is_of(route, response.request.path):
                expect_documented(route, response)
        return response

    def launch(self, caller: str = "member", server: Any = None, **cgpus: Any) -> dict[str, Any]:
        """Launch a lease through the API and return it as the API does."""
        lease = {"cgpus": {"count": 1} | cgpus, "server": server or {}}
        response = self.call(caller, "POST", "/v1/leases", {"lease": lease})
        # 201 if an engine in a thread of its own has made the lease ACTIVE by then.
        assert response.status_code in (201, 202), response.json
        lease_in_response: dict[str, Any] = response.json["lease"]
        return lease_in_response

    def rows(self) -> dict[str, list[tuple[Any, ...]]]:
        """Return all rows of the database, by table."""
        with closing(self.database.engine.raw_connection()) as connection:
            return {name: _rows(connection.cursor(), name) for name in models.Base.metadata.tables}


def _rows(cursor: Any, table: str) -> list[tuple[Any, ...]]:
    cursor.execute(f"SELECT * FROM {table}")
    return sorted(map(tuple, cursor.fetchall()), key=repr)


def is_of(route: Route, path: str) -> bool:
    """Return whether *path* is a URL of *route*."""
    return re.fullmatch(re.sub(r"{\w+}", "[^/]+", route.path), path) is not None


def _validator(schema: Any) -> jsonschema.Draft202012Validator:
    checker = jsonschema.FormatChecker(["date-time"])
    return jsonschema.Draft202012Validator(schema, format_checker=checker)


@functools.cache
def _reply(route: Route, version: str) -> jsonschema.Draft202012Validator:
    """What validates the JSON that *route* answers in a microversion."""
    return _validator(fields.at(route.returns.schema, version))


ERRORS = _validator(schemas.common.ERRORS)


def expect_documented(route: Route, response: Any) -> None:
    """Fail unless the schemas of its microversion and the statuses of *route* allow *response*."""
    success = response.status_code in route.returns.statuses
    assert success or response.status_code in route.error_statuses()
    if response.is_json:
        spoken = response.headers.get(microversions.HEADER, "gpu-scheduling 1.0").split()[1]
        allowed = _reply(route, spoken) if success else ERRORS
        allowed.validate(response.json)
    else:
        assert success
        assert route.returns.text
        assert response.mimetype == "text/plain"


def only_error(response: Any) -> dict[str, Any]:
    """Return the only error of a response, after checking that it has the API-SIG form."""
    assert response.content_type == "application/json"
    error: dict[str, Any]
    (error,) = response.json["errors"]
    assert error["status"] == response.status_code
    assert error["request_id"] == response.headers["X-Openstack-Request-Id"]
    assert error["detail"]
    return error


IDS = {
    "reservation_id": "00000000-0000-4000-8000-000000000001",
    "lease_id": "00000000-0000-4000-8000-000000000000",
    "uuid": "GPU-0001-0",
    "name": "gpu1",
    "host": "gpu1",
    "policy": "first-fit",
}


def address(route: Route, **ids: str) -> str:
    """Return a path of *route* with *ids*, or with default ones."""
    return route.path.format(**(IDS | ids))
