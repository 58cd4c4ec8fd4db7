"""The API of a cloud: composed from its configuration, with what operators expect in front of it.

A WSGI server may load the application once and fork its workers afterwards. So nothing here connects to anything:
database, message bus, Keystone and Nova are reached by the first request that needs them, or by `warm_up` before it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from oslo_config import cfg
from oslo_middleware import cors, http_proxy_to_wsgi

from gsaas import limits, rpc
from gsaas.api.app import Authenticate, create_app
from gsaas.api.auth import TokenFile
from gsaas.api.keystone import Keystone
from gsaas.api.microversions import HEADER as VERSION_HEADER
from gsaas.api.subscriptions import LeaseSubscriptions
from gsaas.cloud import base as cloud
from gsaas.db.database import Database
from gsaas.gpgpums.addresses import MaskedAddresses
from gsaas.gpgpums.claims import Claims
from gsaas.gpgpums.policy_selection import PolicySelection
from gsaas.objects.gpu import EXCLUSIVE
from gsaas.objects.request import ANY, Request
from gsaas.remoting import base as remoting
from gsaas.rpc.announce import Announcer
from gsaas.rpc.api import ApiClient, ApiListener
from gsaas.rpc.engine import EngineClient

Wsgi = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]

REQUEST_ID = "X-OpenStack-Request-ID"
_ANY_GPU = Request(1, EXCLUSIVE, None, ANY)


def deploy(conf: cfg.ConfigOpts) -> tuple[Wsgi, list[Callable[[], None]]]:
    """Return the API that *conf* describes, and what makes its first request as fast as the others.

    It may be shared by threads, and made before a fork.

    Raises what says that the configuration cannot be used: `KeystoneNotConfigured`,
    `TokenFileError`, `ValueError` for drivers and policies that are not installed.
    """
    driver = remoting.load(conf.remoting.driver, conf)
    # No attempts beforehand: those would be made now, and keep the server from starting.
    database = Database.connect(conf, max_retries=0)
    bus = rpc.connect(conf)
    servers = cloud.load(conf.engine.cloud, conf)
    subscriptions = LeaseSubscriptions(conf.queue.long_polls)
    subscriptions.on_subscribe = ApiListener(bus, subscriptions.notify).start
    claims = Claims(
        database,
        attempts=conf.gpgpums.claim_attempts,
        heartbeat_timeout=conf.gpgpums.heartbeat_timeout,
        masked=MaskedAddresses(conf.rodvr.masked_prefix, driver.default_port),
        quotas=limits.load(conf),
        backfill=conf.queue.backfill,
        client_timeout=conf.queue.client_timeout,
        announce=Announcer(EngineClient(bus), ApiClient(bus), subscriptions.notify),
        attended=subscriptions.is_attended,
        choice=PolicySelection.from_conf(conf),
        utilisation_window=conf.monitor.utilisation_window,
        request_mix=conf.gpgpums.request_mix,
        daemon_ports=driver.daemon_ports,
        native=conf.remoting.native,
        local=MaskedAddresses(conf.rodvr.local_prefix, driver.default_port),
    )
    app = create_app(
        conf,
        database=database,
        claims=claims,
        engine=EngineClient(bus),
        cloud=servers,
        remoting=driver,
        authenticate=_authenticator(conf),
        subscriptions=subscriptions,
    )
    return _in_front(conf, app), [
        lambda: claims.check(_ANY_GPU),
        lambda: rpc.check(bus),
        servers.connect,
    ]


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
