# SPDX-License-Identifier: Apache-2.0
"""The message bus between controllers and agents: oslo.messaging on threads.

    bus = rpc.connect(conf)                     # RabbitMQ, or rpc.IN_PROCESS for gsaas-standalone
    engine = rpc.engine.EngineClient(bus)

engine    calls of agents and the API to the engine   hosts    calls to agents, with a circuit breaker for each host
monitor   calls of the engine to monitors             rodvr    calls of the engine to RODVR endpoints
api       messages to API workers                     announce announces leases that have left the queue
notifiers notifications that this service sends      queues   the state of RabbitMQ's queues, for checks
threads   keeps the process on real threads

Servers check the arguments of every call: the bus carries whatever its peers send. Other modules import
oslo.messaging only after this one, which chooses its threading backend.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

from oslo_config import cfg

from gsaas.rpc.threads import keep_to_threads

keep_to_threads()

import oslo_messaging  # noqa: E402  (only now: it looks for eventlet when it is imported)
from amqp.exceptions import AMQPError  # noqa: E402
from kombu.exceptions import OperationalError  # noqa: E402

from gsaas.context import RequestContext  # noqa: E402

Bus: TypeAlias = oslo_messaging.Transport
BusError: TypeAlias = oslo_messaging.MessagingException
Timeout: TypeAlias = oslo_messaging.MessagingTimeout
Undelivered: TypeAlias = oslo_messaging.MessageDeliveryFailure
Target: TypeAlias = oslo_messaging.Target
Notifier: TypeAlias = oslo_messaging.Notifier

IN_PROCESS = "in-process://"
"""URL of the transport within one process."""
EXCHANGE = "gsaas"
ENGINE = "gsaas-engine"
"""Topic of the engines: one of them takes each message, unless it is a fanout."""
API = "gsaas-api"
"""Topic of the API workers: messages always go to all of them."""
RODVR = "gsaas-rodvr"
"""Topic of the RODVR endpoints: messages always go to the one of a host."""
MONITOR = "gsaas-monitor"
"""Topic of the monitors: messages go to the one of a GPU host, or to all of them."""

RETRIES = 1
"""Attempts after a first that failed: a connection may have died while it was idle."""

_UNDECLARED_OPTIONS = {
    "oslo_messaging_tracing": "tracing_enabled",
    "oslo_messaging_metrics": "metrics_enabled",
}
"""Group -> option: oslo.messaging 18 reads these from the given configuration, but declares them only in the global."""


class ContextSerializer(oslo_messaging.NoOpSerializer):  # type: ignore[misc]  # the library has no types
    """Sends the caller's context with each message; arguments are plain JSON values already."""

    def serialize_context(self, context: RequestContext) -> dict[str, Any]:
        return context.to_dict()

    def deserialize_context(self, context: dict[str, Any]) -> RequestContext:
        return RequestContext.from_dict(context, overwrite=False)


def connect(conf: cfg.ConfigOpts, url: str | None = None) -> Bus:
    """Return the bus that *url* names, by default the `transport_url` of *conf*."""
    oslo_messaging.set_transport_defaults(EXCHANGE)
    _declare_missing_options(conf)
    bus: Bus = oslo_messaging.get_rpc_transport(conf, url)
    return bus


def check(bus: Bus) -> None:
    """Return if the bus accepts messages now; raise `BusError` if it does not."""
    # No process serves this topic, so the message has no effect.
    RpcClient(bus, "gsaas-nobody", "1.0").cast(RequestContext(overwrite=False), "nothing", retry=0)


class RpcClient:
    """Sends messages to the servers of *topic*, which must support *version*.

    While the bus is down, `BusError` is raised within seconds. All callers repeat what they do later anyway, and a
    thread that waits for the bus can neither do anything else nor be stopped.
    """

    def __init__(self, bus: Bus, topic: str, version: str) -> None:
        target = Target(topic=topic, version=version)
        self._client = oslo_messaging.get_rpc_client(bus, target, serializer=ContextSerializer())

    def cast(
        self,
        context: RequestContext,
        method: str,
        *,
        retry: int = RETRIES,
        fanout: bool = False,
        **arguments: Any,
    ) -> None:
        """Send a message that is not answered; with *fanout*, to all servers of the topic. Raises `BusError`."""
        with as_bus_error():
            client = self._client.prepare(retry=retry, fanout=fanout)
            client.cast(context, method, **arguments)

    def call(
        self,
        context: RequestContext,
        method: str,
        *,
        timeout: float,
        server: str | None = None,
        **arguments: Any,
    ) -> Any:
        """Call a method and return its answer; *server* names one of the servers of the topic.

        Raises `Timeout` after *timeout* seconds without an answer. An exception of the method is raised here: one that
        is built into Python with its own type, any other as a `BusError` that describes it.
        """
        chosen = {} if server is None else {"server": server}
        client = self._client.prepare(timeout=timeout, retry=RETRIES, **chosen)
        with as_bus_error():
            return client.call(context, method, **arguments)


@contextmanager
def as_bus_error() -> Iterator[None]:
    """Turn errors of oslo.messaging's libraries into `BusError`: version 18 lets them through at a first connection."""
    try:
        yield
    except (AMQPError, OperationalError) as error:
        raise Undelivered(f"cannot connect: {error}") from error


def server(
    bus: Bus, topic: str, name: str, service: object
) -> oslo_messaging.MessageHandlingServer:
    """Return a server, not yet started, that answers calls to *topic* with the public methods of *service*.

    *name* is what callers address as `server`: a host, or any unique name.
    """
    return oslo_messaging.get_rpc_server(
        bus,
        Target(topic=topic, server=name),
        [service],
        serializer=ContextSerializer(),
    )


def listener(
    conf: cfg.ConfigOpts,
    url: str | None,
    targets: Sequence[Target],
    pool: str | None,
    endpoint: object,
) -> oslo_messaging.MessageHandlingServer:
    """Return a listener, not yet started, to the notifications that others send to *targets*.

    *url* names the bus, by default the `transport_url` of *conf*. The methods of *endpoint* are named after priorities.
    Each notification goes to one listener of every *pool*; without a pool, to one of all listeners without one.
    """
    _declare_missing_options(conf)
    return oslo_messaging.get_notification_listener(
        oslo_messaging.get_notification_transport(conf, url),
        list(targets),
        [endpoint],
        executor="threading",
        pool=pool,
    )


def notification_transport(
    conf: cfg.ConfigOpts, default: str | None = None
) -> oslo_messaging.Transport:
    """Return the bus of notifications that this service sends.

    `[oslo_messaging_notifications]transport_url` names it; without that the URL *default*, or else `transport_url`.
    """
    oslo_messaging.set_transport_defaults(EXCHANGE)
    _declare_missing_options(conf)
    configured = oslo_messaging.get_notification_transport(conf)  # declares the options, too
    if default is None or conf.oslo_messaging_notifications.transport_url:
        return configured
    return oslo_messaging.get_notification_transport(conf, default)


def _declare_missing_options(conf: cfg.ConfigOpts) -> None:
    """Declare the options of `_UNDECLARED_OPTIONS` in *conf*, unless they are declared."""
    for group, flag in _UNDECLARED_OPTIONS.items():
        if group not in conf:
            conf.register_opt(cfg.BoolOpt(flag, default=False), group=group)
