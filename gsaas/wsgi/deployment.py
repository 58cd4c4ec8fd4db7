"""The API of a cloud: composed from its configuration, with what operators expect in front of it.

A WSGI server may load the application once and fork its workers afterwards. So nothing here connects to anything until
a worker is asked for the first time; then the parts are made, once per process. A database that is not there yet costs
that request a 503, and the next one tries again.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable
from typing import Any

from oslo_config import cfg
from oslo_context.context import generate_request_id
from oslo_db import exception as db_exception
from oslo_log import log
from oslo_middleware import cors, http_proxy_to_wsgi

from gsaas import rpc
from gsaas.api.app import Authenticate, create_app
from gsaas.api.auth import TokenFile
from gsaas.api.errors import FOREIGN
from gsaas.api.keystone import Keystone
from gsaas.api.microversions import HEADER as VERSION_HEADER
from gsaas.cloud import base as cloud
from gsaas.db.database import Database
from gsaas.gpgpums.claims import Claims, MaskedAddresses
from gsaas.remoting import base as remoting
from gsaas.rpc.engine import EngineClient

LOG = log.getLogger(__name__)

Wsgi = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]

OUR_HEADERS = [VERSION_HEADER, "X-OpenStack-Request-ID"]


class Deployment:
    """A WSGI application. Safe to share between threads, and to make before a fork."""

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        """Raises what says that the configuration cannot be used: `KeystoneNotConfigured`,
        `TokenFileError`, `ValueError` for drivers that are not installed."""
        self._conf = conf
        self._authenticate = _authenticator(conf)
        self._remoting = remoting.load(conf.remoting.driver, conf)
        self._cloud = cloud.load(conf.engine.cloud, conf)
        self._app: Wsgi | None = None
        self._lock = threading.Lock()

    def __call__(
        self, environ: dict[str, Any], start_response: Callable[..., Any]
    ) -> Iterable[bytes]:
        try:
            app = self._app or self._once()
        except db_exception.DBError as error:
            LOG.error("the database cannot be reached: %s", error)
            return _no_database(start_response)
        return app(environ, start_response)

    def _once(self) -> Wsgi:
        with self._lock:
            if self._app is None:
                self._app = self._build()
            return self._app

    def _build(self) -> Wsgi:
        conf = self._conf
        database = Database.connect(conf, max_retries=0)  # whoever asks is waiting
        app = create_app(
            conf,
            database=database,
            claims=Claims(
                database,
                attempts=conf.gpgpums.claim_attempts,
                heartbeat_timeout=conf.gpgpums.heartbeat_timeout,
                masked=MaskedAddresses(conf.rodvr.masked_prefix, self._remoting.default_port),
                policy=conf.gpgpums.policy,
            ),
            engine=EngineClient(rpc.connect(conf)),
            cloud=self._cloud,
            remoting=self._remoting,
            authenticate=self._authenticate,
        )
        return _in_front(conf, app)


def _authenticator(conf: cfg.ConfigOpts) -> Authenticate:
    if conf.api.auth_strategy == "token-file":
        return TokenFile(conf.api.token_file)
    return Keystone(conf)


def _in_front(conf: cfg.ConfigOpts, app: Wsgi) -> Wsgi:
    """Put before *app* what `[oslo_middleware]` and `[cors]` configure.

    The size of bodies is limited inside (`[api]max_body_bytes`), where a refusal has the API's form.
    """
    cors.set_defaults(
        allow_headers=["X-Auth-Token", "X-OpenStack-Request-ID", VERSION_HEADER, "Content-Type"],
        expose_headers=OUR_HEADERS,
        allow_methods=["GET", "POST", "PATCH", "DELETE"],
    )
    return cors.CORS(http_proxy_to_wsgi.HTTPProxyToWSGI(app, conf), conf)


def _no_database(start_response: Callable[..., Any]) -> Iterable[bytes]:
    """Answer 503 in the API's form, before there is an API that could."""
    status, code, detail = FOREIGN[db_exception.DBConnectionError]
    request_id = generate_request_id()
    error = {
        "request_id": request_id,
        "code": code,
        "status": status,
        "title": "Service Unavailable",
        "detail": detail,
        "links": [],
    }
    body = json.dumps({"errors": [error]}).encode()
    headers = [
        ("Content-Type", "application/json"),
        ("Content-Length", str(len(body))),
        ("X-OpenStack-Request-ID", request_id),
    ]
    start_response(f"{status} Service Unavailable", headers)
    return [body]
