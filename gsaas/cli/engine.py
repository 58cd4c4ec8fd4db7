"""`gsaas-engine`: drives leases to their wanted state. Any number of them may run, on any controllers."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack

from oslo_config import cfg

from gsaas import service
from gsaas.cloud import base as cloud
from gsaas.engine.driver import LeaseDriver
from gsaas.engine.service import Engine
from gsaas.gpgpums.claims import Claims, MaskedAddresses
from gsaas.metrics import exposition
from gsaas.remoting import base as remoting
from gsaas.rpc.rodvr import EndpointClient

DESCRIPTION = """\
Drive GSaaS's leases to their wanted state, and serve its agents. Run as many as you like: they share the work, and
what one leaves half done another finishes.
"""


def main(argv: Sequence[str] | None = None) -> int:
    return service.run("gsaas-engine", DESCRIPTION, start, argv)


def start(conf: cfg.ConfigOpts, parts: ExitStack) -> None:
    """Start an engine; raises `service.Unstartable` and `gsaas.db.ready.Unusable`."""
    load_remoting = functools.cache(functools.partial(remoting.load, conf=conf))
    try:
        masked = MaskedAddresses(
            conf.rodvr.masked_prefix, load_remoting(conf.remoting.driver).default_port
        )
        servers = cloud.load(conf.engine.cloud, conf)
    except ValueError as error:
        raise service.Unstartable(f"the configuration cannot be used: {error}") from error
    database = service.database(conf)
    parts.callback(database.close)
    bus = service.bus(conf)
    parts.callback(bus.cleanup)
    endpoint = EndpointClient(bus, conf.engine.endpoint_timeout)
    claims = Claims(
        database,
        attempts=conf.gpgpums.claim_attempts,
        heartbeat_timeout=conf.gpgpums.heartbeat_timeout,
        masked=masked,
        policy=conf.gpgpums.policy,
    )
    driver = LeaseDriver(
        conf,
        database=database,
        claims=claims,
        cloud=servers,
        remoting=load_remoting,
        endpoint=endpoint,
    )
    engine = Engine(conf, database=database, bus=bus, endpoint=endpoint, driver=driver)
    parts.callback(engine.stop)
    engine.start()
    if conf.engine.metrics_listen:
        parts.callback(_serve_metrics(conf.engine.metrics_listen))


def _serve_metrics(listen: str) -> Callable[[], None]:
    """Return what ends it."""
    try:
        _, stop = exposition.serve(listen)
    except (OSError, OverflowError) as error:
        raise service.Unstartable(
            f"metrics cannot be served at {listen}: {error}; see [engine]metrics_listen"
        ) from error
    return stop


if __name__ == "__main__":
    sys.exit(main())
