"""The message bus between controllers and agents: oslo.messaging on threads.

    bus = rpc.connect(conf)                     # RabbitMQ, or rpc.IN_PROCESS for gsaas-standalone
    engine = rpc.engine.EngineClient(bus)

Whoever serves calls checks what arrives: the bus carries whatever its peers put on it. Nobody else imports
oslo.messaging, because what it runs on is decided here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from oslo_config import cfg

from gsaas.rpc.threads import keep_to_threads

keep_to_threads()

import oslo_messaging  # noqa: E402  (only now: it looks for eventlet when it is imported)
from amqp.exceptions import AMQPError  # noqa: E402
from kombu.exceptions import OperationalError  # noqa: E402

from gsaas.context import RequestContext  # noqa: E402

Bus = oslo_messaging.Transport
BusError = oslo_messaging.MessagingException
Timeout = oslo_messaging.MessagingTimeout
Undelivered = oslo_messaging.MessageDeliveryFailure
Target = oslo_messaging.Target

IN_PROCESS = "in-process://"
"""The transport that stays inside one process."""
EXCHANGE = "gsaas"
ENGINE = "gsaas-engine"
"""Topic of the engine: whichever of its instances takes a message first."""
API = "gsaas-api"
"""Topic of the API workers: always told all of them."""
RODVR = "gsaas-rodvr"
"""Topic of the RODVR endpoints: always addressed to the one of a host."""
MONITOR = "gsaas-monitor"
"""Topic of the monitors: addressed to the one of a GPU host, or to all of them."""

ONCE_MORE = 1
"""Attempts after a first that failed: a connection may have died while nobody used it."""

_ASKED_FOR = {
    "oslo_messaging_tracing": "tracing_enabled",
    "oslo_messaging_metrics": "metrics_enabled",
}
"""What oslo.messaging 18 reads from the configuration it is given, but declares in the global one only."""


class ContextSerializer(oslo_messaging.NoOpSerializer):
    """Carries the caller's context along; arguments are plain JSON values already."""

    def serialize_context(self, context: RequestContext) -> dict[str, Any]:
        return context.to_dict()

    def deserialize_context(self, context: dict[str, Any]) -> RequestContext:
        return RequestContext.from_dict(context, overwrite=False)


def connect(conf: cfg.ConfigOpts, url: str | None = None) -> Bus:
    """Return the bus that *url* names, by default the `transport_url` of *conf*."""
    oslo_messaging.set_transport_defaults(EXCHANGE)
    _declare_what_is_asked_for(conf)
    return oslo_messaging.get_rpc_transport(conf, url)


def check(bus: Bus) -> None:
    """Return if the bus takes messages now; raise `BusError` if it does not."""
    Client(bus, "gsaas-nobody", "1.0").cast(RequestContext(overwrite=False), "nothing", retry=0)


class Client:
    """Speaks to whoever serves *topic*, which must understand *version*.

    When the bus is down, `BusError` comes within seconds. Everybody here has a reason of his own to speak again
    later, and a thread that waited for the bus could neither do anything else nor be stopped.
    """

    def __init__(self, bus: Bus, topic: str, version: str) -> None:
        target = Target(topic=topic, version=version)
        self._client = oslo_messaging.get_rpc_client(bus, target, serializer=ContextSerializer())

    def cast(
        self,
        context: RequestContext,
        method: str,
        *,
        retry: int = ONCE_MORE,
        fanout: bool = False,
        **arguments: Any,
    ) -> None:
        """Hand over a message that is not answered; with *fanout*, to all who serve the topic."""
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
        """Ask, and return the answer; *server* picks one of those who serve the topic.

        Raises `Timeout` after *timeout* seconds without an answer, and what the method raised there: if that is
        built into Python, as what it was, else as a `BusError` that describes it.
        """
        chosen = {} if server is None else {"server": server}
        client = self._client.prepare(timeout=timeout, retry=ONCE_MORE, **chosen)
        with as_bus_error():
            return client.call(context, method, **arguments)


@contextmanager
def as_bus_error() -> Iterator[None]:
    """oslo.messaging 18 lets the errors of its libraries through when it makes a first connection."""
    try:
        yield
    except (AMQPError, OperationalError) as error:
        raise Undelivered(f"cannot connect: {error}") from error


def server(
    bus: Bus, topic: str, name: str, service: object
) -> oslo_messaging.MessageHandlingServer:
    """Return a server, not yet started, that answers *topic* with the public methods of *service*."""
    return oslo_messaging.get_rpc_server(
        bus,
        Target(topic=topic, server=name),
        [service],
        serializer=ContextSerializer(),
    )


def listener(
    conf: cfg.ConfigOpts, url: str | None, targets: Sequence[Target], pool: str, endpoint: object
) -> oslo_messaging.MessageHandlingServer:
    """Return a listener, not yet started, to the notifications that others send to *targets*.

    They come over the bus that *url* names, by default the `transport_url` of *conf*. The methods of *endpoint* are
    named after priorities. Listeners of the same *pool* share one copy of each notification.
    """
    _declare_what_is_asked_for(conf)
    return oslo_messaging.get_notification_listener(
        oslo_messaging.get_notification_transport(conf, url),
        list(targets),
        [endpoint],
        executor="threading",
        pool=pool,
    )


def _declare_what_is_asked_for(conf: cfg.ConfigOpts) -> None:
    for group, flag in _ASKED_FOR.items():
        if group not in conf:
            conf.register_opt(cfg.BoolOpt(flag, default=False), group=group)
