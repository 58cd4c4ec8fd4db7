"""The message bus between controllers and agents: oslo.messaging on threads.

    bus = rpc.connect(conf)                     # RabbitMQ, or rpc.IN_PROCESS for gsaas-standalone
    engine = rpc.engine.EngineClient(bus)

Whoever serves calls checks what arrives: the bus carries whatever its peers put on it. Nobody else imports
oslo.messaging, because what it runs on is decided here.
"""

from __future__ import annotations

import sys
from typing import Any

from oslo_config import cfg
from oslo_service import backend

# futurist and oslo.service use eventlet wherever they find it installed. GSaaS runs on threads only: a module
# that cannot be imported keeps it out, whatever else is installed, and halves the time a process takes to start.
if "eventlet" not in sys.modules:
    sys.modules["eventlet"] = None  # type: ignore[assignment]
backend.init_backend(backend.BackendType.THREADING)

import oslo_messaging  # noqa: E402  (only now: it chooses its backend when imported)

from gsaas.context import RequestContext  # noqa: E402

Bus = oslo_messaging.Transport
BusError = oslo_messaging.MessagingException
Target = oslo_messaging.Target

IN_PROCESS = "fake://"
"""The transport that stays inside one process."""
EXCHANGE = "gsaas"
ENGINE = "gsaas-engine"
"""Topic of the engine: whichever of its instances takes a message first."""
RODVR = "gsaas-rodvr"
"""Topic of the RODVR endpoints: always addressed to the one of a host."""

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
    for group, flag in _ASKED_FOR.items():
        if group not in conf:
            conf.register_opt(cfg.BoolOpt(flag, default=False), group=group)
    return oslo_messaging.get_rpc_transport(conf, url)


def client(bus: Bus, topic: str, version: str) -> oslo_messaging.RPCClient:
    """Return a client of whoever serves *topic*, which must understand *version*."""
    target = Target(topic=topic, version=version)
    return oslo_messaging.get_rpc_client(bus, target, serializer=ContextSerializer())


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
