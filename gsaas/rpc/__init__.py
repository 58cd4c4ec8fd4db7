# SPDX-License-Identifier: Apache-2.0
"""The message bus between controllers and agents: oslo.messaging on threads.

    bus = rpc.connect(conf)                     # RabbitMQ, or rpc.IN_PROCESS for gsaas-standalone
    engine = rpc.engine.EngineClient(bus)

engine    calls of agents and the API to the engine   hosts    calls to agents, with a circuit breaker for each host
monitor   calls of the engine to monitors             rodvr    calls of the engine to RODVR endpoints
api       messages to API workers                     announce announces leases that have left the queue
notifiers notifications that this service sends      queues   the state of RabbitMQ's queues, for checks
threads   keeps the process on real threads             pace      when agents send their next message
host_log  what hosts cause in the log
signatures  who sent a message                        permissions  what the account of a host may do on RabbitMQ

Servers check the arguments of every call: the bus carries whatever its peers send. Other modules import
oslo.messaging only after this one, which chooses its threading backend.
"""

from __future__ import annotations

import logging
import socket
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, TypeAlias
from weakref import WeakKeyDictionary

from oslo_config import cfg

from gsaas.rpc.threads import keep_to_threads

keep_to_threads()

import oslo_messaging  # noqa: E402  (only now: it looks for eventlet when it is imported)
from amqp.exceptions import AMQPError  # noqa: E402
from kombu.exceptions import OperationalError  # noqa: E402

from gsaas.context import RequestContext  # noqa: E402
from gsaas.objects.printable import one_line  # noqa: E402
from gsaas.objects.received import INVALID  # noqa: E402
from gsaas.rpc import host_log  # noqa: E402
from gsaas.rpc.signatures import CONTROLLERS as CONTROLLERS  # noqa: E402
from gsaas.rpc.signatures import SIGNATURE, Forged, Identity, Message, content_of  # noqa: E402

LOG = logging.getLogger(__name__)

Bus: TypeAlias = oslo_messaging.Transport
BusError: TypeAlias = oslo_messaging.MessagingException
Timeout: TypeAlias = oslo_messaging.MessagingTimeout
Undelivered: TypeAlias = oslo_messaging.MessageDeliveryFailure
Target: TypeAlias = oslo_messaging.Target
Notifier: TypeAlias = oslo_messaging.Notifier

IN_PROCESS = "in-process://"
"""URL of the transport within one process."""
EXCHANGE = "amq.topic"
"""Every virtual host of RabbitMQ has this exchange, and no account can delete it or declare it anew, so that what goes
through it reaches those only who may bind its routing key. `gsaas.rpc.permissions` says more."""
NOTIFICATIONS = "gsaas"
"""The exchange of the notifications that this service sends, unless `control_exchange` names another."""
ENGINE = "gsaas-engine"
"""Topic of the engines: one of them takes each message, unless it is a fanout."""
API = "gsaas-api"
"""Topic of the API workers: messages always go to all of them."""
RODVR = "gsaas-rodvr"
"""What RODVR endpoints are; `agent_name` is the topic of one."""
MONITOR = "gsaas-monitor"
"""What monitors are; `agent_name` is the topic of one."""
ROLES = {"gpu": MONITOR, "compute": RODVR}
"""The role of a host -> its agent."""

AGENT = "agent"
"""The only server of an agent's topic: oslo.messaging wants a name for each."""
NOBODY = "gsaas-nobody"
"""A topic that no process serves, so that a message to it has no effect."""

OF_OLD_AGENTS = (MONITOR, RODVR)
"""Queues from which agents took messages before each had a topic of its own."""

MaySend: TypeAlias = Callable[[str, str, Mapping[str, Any]], bool]
"""Whether a sender, by name, may call a method with these arguments."""

_identities: WeakKeyDictionary[Bus, Identity] = WeakKeyDictionary()
"""Bus -> who this process is on it; a bus without signatures is left out."""

RETRIES = 1
"""Attempts after a first that failed: a connection may have died while it was idle."""

_UNDECLARED_OPTIONS = {
    "oslo_messaging_tracing": "tracing_enabled",
    "oslo_messaging_metrics": "metrics_enabled",
}
"""Group -> option: oslo.messaging 18 reads these from the given configuration, but declares them only in the global."""


class Misconfigured(oslo_messaging.MessagingException):  # type: ignore[misc]  # the library has no types
    """This process has keys that it must not have; the text says which, and what to do."""


class ContextSerializer(oslo_messaging.NoOpSerializer):  # type: ignore[misc]  # the library has no types
    """Sends the caller's context with each message; arguments are plain JSON values already."""

    def serialize_context(self, context: RequestContext | _Signed) -> dict[str, Any]:
        if isinstance(context, _Signed):
            return {**context.context, SIGNATURE: context.signature}
        return context.to_dict()

    def deserialize_context(self, context: dict[str, Any]) -> RequestContext:
        received = RequestContext.from_dict(context, overwrite=False)
        received.received = context
        return received


@dataclass(frozen=True)
class _Signed:
    """The context of a message as it is sent, and the signature of the message."""

    context: dict[str, Any]
    signature: dict[str, Any]


def agent_name(agent: str, host: str) -> str:
    """Return the name of an agent, `MONITOR` or `RODVR`, of *host*: its topic, and its name in signatures.

    The names of all its queues and exchanges begin with it. The host comes first because `@` is in no host's name, so
    that no two hosts have a beginning in common.
    """
    return f"{host}@{agent}"


def connect(conf: cfg.ConfigOpts, url: str | None = None, agent: str | None = None) -> Bus:
    """Return the bus that *url* names, by default the `transport_url` of *conf*.

    *agent* is `MONITOR` or `RODVR` where such an agent connects, and None for a controller. Raises `BusError`, and
    `Misconfigured` for keys that are not for this kind of process.
    """
    _declare_missing_options(conf)
    name = None if agent is None else agent_name(agent, conf.host or socket.gethostname())
    identity = None if url == IN_PROCESS else _identity(conf, name)
    bus: Bus = oslo_messaging.get_rpc_transport(conf, url)
    if identity is not None:
        _identities[bus] = identity
    if name is not None:
        _name_reply_queue(bus, name)
    return bus


def _identity(conf: cfg.ConfigOpts, agent: str | None) -> Identity | None:
    """Return who this process is on the bus, the *agent* of this name or a controller; None if it has no keys."""
    options = conf.bus
    how = {"max_age": options.max_age, "enforce": options.enforce, "clock": time.time}
    if agent is not None:
        if options.secrets:
            raise Misconfigured(_agent_with_secrets(agent))
        return Identity.of_agent(agent, options.host_keys, **how) if options.host_keys else None
    if options.secrets:
        return Identity.of_controllers(options.secrets, **how)
    if options.host_keys:
        raise Misconfigured(
            "[bus]host_keys is set where a controller reads it; it is for agents. Set [bus]secrets here, the same as "
            "on the other controllers, and move host_keys to the configuration of the agent"
        )
    return None


def _agent_with_secrets(agent: str) -> str:
    host, _, kind = agent.partition("@")
    role = next(role for role, known in ROLES.items() if known == kind)
    return (
        "[bus]secrets is set where this agent reads it; it is for controllers only, as whoever has it can sign in the "
        f"name of every host. Have {kind} read a configuration file of its own (--config-file), with [bus]host_keys "
        f"and without secrets; on a controller, gsaas-manage bus key {host} --role {role} prints the key"
    )


def _name_reply_queue(bus: Bus, agent: str) -> None:
    """Have the queue of answers to this process named after its *agent*, so that a permission can tell it from others'.

    oslo.messaging's own option for this, `use_queue_manager`, needs a folder of locks that agents do not have. This is
    the only place that uses its private name `_get_reply_queue_name`; tests/hostile/test_bus.py fails if
    that changes. Drivers other than RabbitMQ's have no such queue.
    """
    if hasattr(bus._driver, "_get_reply_queue_name"):
        bus._driver._get_reply_queue_name = lambda: f"{agent}_reply_{uuid.uuid4().hex}"


def check(bus: Bus) -> None:
    """Return if the bus accepts messages now; raise `BusError` if it does not."""
    RpcClient(bus, NOBODY, "1.0").cast(RequestContext(overwrite=False), "nothing", retry=0)


def prepare_calls(bus: Bus) -> None:
    """Create the queue of the answers to this process's calls. Raises `BusError`.

    oslo.messaging creates it with the first call, and a first call to a bus that is away would wait until the bus is
    back, whatever its timeout (`AMQPDriverBase._get_reply_q` connects without a limit).
    """
    with suppress(oslo_messaging.MessagingTimeout):
        RpcClient(bus, NOBODY, "1.0").call(RequestContext(overwrite=False), "nothing", timeout=0.1)


class RpcClient:
    """Sends messages to the servers of *topic*, which must support *version*.

    While the bus is down, `BusError` is raised within seconds. All callers repeat what they do later anyway, and a
    thread that waits for the bus can neither do anything else nor be stopped.
    """

    def __init__(self, bus: Bus, topic: str, version: str) -> None:
        target = Target(exchange=EXCHANGE, topic=topic, version=version)
        self._topic = topic
        self._identity = _identities.get(bus)
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
        sent = (
            self._signed(self._identity, context, method, arguments) if self._identity else context
        )
        with as_bus_error():
            self._client.prepare(retry=retry, fanout=fanout).cast(sent, method, **arguments)

    def call(
        self, context: RequestContext, method: str, *, timeout: float, **arguments: Any
    ) -> Any:
        """Call a method and return its answer.

        Raises `Timeout` after *timeout* seconds without an answer, and `BusError` for an answer that is not signed
        by whom the call was for. An exception of the method is raised here: one that is built into Python with its own
        type, any other as a `BusError` that describes it. It is not signed, and says no more than silence would: the
        call may have been carried out or not.
        """
        client = self._client.prepare(timeout=timeout, retry=RETRIES)
        identity = self._identity
        if identity is None:
            with as_bus_error():
                return client.call(context, method, **arguments)
        sent = self._signed(identity, context, method, arguments)
        with as_bus_error():
            received = client.call(sent, method, **arguments)
        try:
            return identity.open_answer(received, sent.signature, self._topic)
        except Forged as error:
            LOG.error("the answer to a message %s was not believed: %s", method, error)
            if identity.enforce:
                raise BusError(f"the answer to {method} was not believed: {error}") from error
            return content_of(received)

    def _signed(
        self, identity: Identity, context: RequestContext, method: str, arguments: dict[str, Any]
    ) -> _Signed:
        sent = context.to_dict()
        return _Signed(sent, identity.sign(Message(self._topic, method, arguments, sent)))


@contextmanager
def as_bus_error() -> Iterator[None]:
    """Turn errors of oslo.messaging's libraries into `BusError`: version 18 lets them through at a first connection."""
    try:
        yield
    except (AMQPError, OperationalError) as error:
        raise Undelivered(f"cannot connect: {error}") from error


def from_controllers(sender: str, _method: str, _arguments: Mapping[str, Any]) -> bool:
    """Return whether *sender* is a controller."""
    return sender == CONTROLLERS


def agent_server(
    bus: Bus, agent: str, host: str, service: object
) -> oslo_messaging.MessageHandlingServer:
    """Return a server, not yet started, that answers the calls to an agent, `MONITOR` or `RODVR`, of *host*."""
    return server(bus, agent_name(agent, host), AGENT, service)


def server(
    bus: Bus, topic: str, name: str, service: object, may_send: MaySend = from_controllers
) -> oslo_messaging.MessageHandlingServer:
    """Return a server, not yet started, that answers calls to *topic* with the public methods of *service*.

    *name* is unique among the servers of the topic. On a bus with signatures, only calls are answered that *may_send*
    allows to the sender who signed them, and answers are signed.
    """
    host_log.shorten_library()
    return oslo_messaging.get_rpc_server(
        bus,
        Target(exchange=EXCHANGE, topic=topic, server=name),
        [_Served(service, _identities.get(bus), topic, may_send)],
        serializer=ContextSerializer(),
    )


class _Served:
    """A service whose public methods first verify who sent the message, and whose answers are signed.

    Without *identity*, nothing is verified or signed. What a method raises is the answer, and a short line in the log:
    oslo.messaging would write a traceback for each message, with which a sender could fill the log.
    """

    def __init__(
        self, service: Any, identity: Identity | None, topic: str, may_send: MaySend
    ) -> None:
        self.target = getattr(service, "target", Target())
        self._service = service
        self._identity = identity
        self._topic = topic
        self._may_send = may_send
        self._log = host_log.HostLog(LOG)
        self._log_of_strangers = host_log.HostLog(LOG, most=host_log.MOST_LINES // 10)

    def __getattr__(self, method: str) -> Callable[..., Any]:
        call: Callable[..., Any] = getattr(self._service, method)

        def served(context: RequestContext, **arguments: Any) -> Any:
            identity = self._identity
            if identity is not None:
                try:
                    self._verify(identity, context, method, arguments)
                except Forged as error:
                    # Whoever sent it may claim to be any host.
                    text = f"a message {method} was not believed: {error}"
                    self._log_of_strangers.write(logging.ERROR, "", text, text)
                    if identity.enforce:
                        raise oslo_messaging.ExpectedException from None
                    identity = None
            try:
                answer = call(context, **arguments)
            except Exception as error:  # noqa: BLE001  (it is the answer)
                self._log_failure(method, arguments, error)
                raise oslo_messaging.ExpectedException from None
            if identity is None:
                return answer
            return identity.sign_answer(answer, context.received[SIGNATURE])

        return served

    def _log_failure(self, method: str, arguments: Mapping[str, Any], error: Exception) -> None:
        """Log why a message was refused, or what failed here, which only its traceback may explain."""
        host = one_line(str(arguments.get("host", "a controller")), 255)
        said = f"{type(error).__name__}: {error} ({host_log.where(error)})"
        if isinstance(error, INVALID):
            text = f"a message {method} of {host} is refused: {said}"
            self._log.write(logging.WARNING, host, method, text)
        else:
            text = f"a message {method} of {host} could not be handled: {said}"
            self._log.write(logging.ERROR, host, method, text, error)

    def _verify(
        self,
        identity: Identity,
        context: RequestContext,
        method: str,
        arguments: dict[str, Any],
    ) -> None:
        sent = context.received
        message = Message(self._topic, method, arguments, sent)
        sender = identity.verify(message, sent.get(SIGNATURE))
        if not self._may_send(sender, method, arguments):
            named = arguments.get("host")
            as_whom = f" in the name of {one_line(str(named), 255)}" if named else ""
            raise Forged(f"{sender} sent it{as_whom}")


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
    oslo_messaging.set_transport_defaults(NOTIFICATIONS)
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
