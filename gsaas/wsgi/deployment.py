"""The API of a cloud: composed from its configuration, with what operators expect in front of it.

A WSGI server may load the application once and fork its workers afterwards. So nothing here connects
to anything: database, message bus, Keystone and Nova are reached by the first request that needs them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from oslo_config import cfg
from oslo_middleware import cors, http_proxy_to_wsgi

from gsaas import rpc
from gsaas.api.app import Authenticate, create_app
from gsaas.api.auth import TokenFile
from gsaas.api.keystone import Keystone
from gsaas.api.microversions import HEADER as VERSION_HEADER
from gsaas.cloud import base as cloud
from gsaas.db.database import Database
from gsaas.gpgpums.claims import Claims, MaskedAddresses
from gsaas.remoting import base as remoting
from gsaas.rpc.engine import EngineClient

Wsgi = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]

REQUEST_ID = "X-OpenStack-Request-ID"


def deploy(conf: cfg.ConfigOpts) -> Wsgi:
    """Return the API that *conf* describes; it may be shared by threads, and made before a fork.

    Raises what says that the configuration cannot be used: `KeystoneNotConfigured`,
    `TokenFileError`, `ValueError` for drivers that are not installed.
    """
    driver = remoting.load(conf.remoting.driver, conf)
    # No attempts beforehand: those would be made now, and keep the server from starting.
    database = Database.connect(conf, max_retries=0)
    app = create_app(
        conf,
        database=database,
        claims=Claims(
            database,
            attempts=conf.gpgpums.claim_attempts,
            heartbeat_timeout=conf.gpgpums.heartbeat_timeout,
            masked=MaskedAddresses(conf.rodvr.masked_prefix, driver.default_port),
            policy=conf.gpgpums.policy,
        ),
        engine=EngineClient(rpc.connect(conf)),
        cloud=cloud.load(conf.engine.cloud, conf),
        remoting=driver,
        authenticate=_authenticator(conf),
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
        allow_headers=["X-Auth-Token", REQUEST_ID, VERSION_HEADER, "Content-Type"],
        expose_headers=[VERSION_HEADER, REQUEST_ID],
        allow_methods=["GET", "POST", "PATCH", "DELETE"],
    )
    return cors.CORS(http_proxy_to_wsgi.HTTPProxyToWSGI(app, conf), conf)
