# SPDX-License-Identifier: Apache-2.0
"""A message bus that loses, doubles, delays and reorders messages, and can be away: a driver of oslo.messaging.

1. A message waits at the broker until a server of its topic has a free thread, as one of RabbitMQ does. Then it is the
   server's: if that is killed, the message is gone.
2. A message that is to be answered leaves the queue when its sender no longer waits. A fanout reaches the servers that
   there are.
3. What is carried is JSON, in both directions.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import oslo_messaging
from oslo_config import cfg
from oslo_messaging._drivers import common
from oslo_messaging.rpc.dispatcher import ExpectedException, RPCDispatcher
from oslo_messaging.transport import RPCTransport

from gsaas import rpc
from gsaas.rpc import signatures
from gsaas.rpc.signatures import Identity
from tests.world import baton, facade
from tests.world.baton import Process, Task
from tests.world.threads import Facade


@dataclass
class Weather:
    """How likely it is, 0 to 1, that something happens to a message or an answer."""

    lost: float = 0.0
    doubled: float = 0.0
    late: float = 0.0
    repeats_orders: float = 0.0
    """How likely an order to the monitor of a GPU host arrives once more when its sender hardly waits any longer."""
    longest_delay: float = 30.0
    """Seconds."""
    is_away: bool = False
    """The broker accepts nothing, and delivers nothing."""


@dataclass(eq=False)
class Call:
    """Where a caller waits."""

    waiting: list[Task] = field(default_factory=list)
    answer: tuple[str, Any] | None = None


@dataclass(eq=False)
class Carried:
    """A message on its way."""

    topic: str
    body: str
    expires_at: float | None
    call: Call | None

    @property
    def method(self) -> str:
        return str(json.loads(self.body)["message"]["method"])


class Server:
    """What `oslo_messaging.get_rpc_server` returns here: it handles each message in a task of its own."""

    def __init__(self, bus: Bus, target: oslo_messaging.Target, dispatcher: RPCDispatcher) -> None:
        self.topic, self.name = target.topic, target.server
        self.process = baton.here().current.process
        self.free = 0
        self.waiting: list[Carried] = []
        """Fanouts, of which this server has its own copy."""
        self._bus = bus
        self._dispatcher = dispatcher

    def start(self, override_pool_size: int | None = None) -> None:
        baton.here().point()
        self.free = override_pool_size or 4
        self._bus.servers.append(self)
        self._bus.deliver()

    def stop(self) -> None:
        if self in self._bus.servers:
            self._bus.servers.remove(self)

    def wait(self) -> None:
        """Its tasks end by themselves."""

    def handle(self, carried: Carried) -> None:
        """Answer a message."""
        received = json.loads(carried.body)
        incoming = _Incoming(received["context"], received["message"])
        try:
            answer = ("result", self._dispatcher.dispatch(incoming))
        except ExpectedException as error:
            answer = ("failure", common.serialize_remote_exception(error.exc_info))
        except Exception:  # noqa: BLE001 - it is the answer
            answer = ("failure", common.serialize_remote_exception(sys.exc_info()))
        self.free += 1
        if carried.call is not None:
            self._bus.answer(carried, json.loads(json.dumps(answer)))
        self._bus.deliver()


class _Incoming:
    client_timeout = 0

    def __init__(self, ctxt: dict[str, Any], message: dict[str, Any]) -> None:
        self.ctxt, self.message = ctxt, message


class Bus:
    """The broker, and the driver of every connection to it."""

    def __init__(self, conf: cfg.ConfigOpts, tell: Callable[[str], None]) -> None:
        self.conf = conf
        self.weather = Weather()
        self.secret: str | None = None
        """With which messages are signed; None: they are not."""
        self.servers: list[Server] = []
        self.on_carried: Callable[[str], None] = lambda _: None
        """Called with the body of each message and answer."""
        self._queued: dict[tuple[str, str | None], list[Carried]] = {}
        self._process = Process("broker")
        self._tell = tell

    def connect(self, agent: str | None = None) -> RPCTransport:
        """Return a connection of a controller, or of an *agent*, by its name in signatures."""
        made = RPCTransport(self)
        how = {"max_age": 300.0, "enforce": True, "clock": facade.now}
        if self.secret is not None and agent is None:
            rpc._identities[made] = Identity.of_controllers([self.secret], **how)
        elif self.secret is not None and agent is not None:
            keys = [signatures.key_of(self.secret, agent)]
            rpc._identities[made] = Identity.of_agent(agent, keys, **how)
        return made

    def cleanup(self) -> None:
        """A connection is nothing here."""

    def forget(self, process: Process) -> None:
        """*process* was killed."""
        self.servers = [server for server in self.servers if server.process is not process]

    def send(
        self,
        target: oslo_messaging.Target,
        ctxt: dict[str, Any],
        message: dict[str, Any],
        wait_for_reply: bool | None = None,
        timeout: float | None = None,
        **_: Any,
    ) -> Any:
        scheduler = baton.here()
        scheduler.point()
        if self.weather.is_away:
            self._tell(f"cannot send {message['method']}: the broker is away")
            raise oslo_messaging.MessageDeliveryFailure("the broker is away")
        call = Call() if wait_for_reply else None
        until = None if timeout is None or call is None else scheduler.now + timeout
        body = json.dumps({"context": ctxt, "message": message})
        self.on_carried(body)
        sent = Carried(target.topic, body, until, call)
        self._on_its_way(
            f"{message['method']} to {target.topic}",
            lambda: self._put(sent, target.server, fanout=bool(target.fanout)),
            timeout if call is not None else None,
            is_order=message["method"] == "apply",
        )
        scheduler.effect("message")
        if call is None:
            return None
        while call.answer is None:
            if not scheduler.wait(call.waiting, until) and call.answer is None:
                raise oslo_messaging.MessagingTimeout(f"no answer to {message['method']}")
        kind, value = call.answer
        if kind == "result":
            return value
        raise common.deserialize_remote_exception(value, [])

    def answer(self, carried: Carried, answer: tuple[str, Any]) -> None:
        """Carry the answer to whoever waits for it."""
        call = carried.call
        baton.here().point()
        self.on_carried(json.dumps(answer))

        def arrive() -> None:
            if call is not None and call.answer is None:
                call.answer = answer
                baton.here().wake(call.waiting)

        if not self.weather.is_away:
            self._on_its_way(f"the answer to {carried.method}", arrive)

    def deliver(self) -> None:
        """Give waiting messages to servers that have a free thread."""
        if self.weather.is_away:
            return
        scheduler = baton.here()
        for server in list(self.servers):
            while server.free > 0 and server.process.is_alive:
                found = self._next_for(server)
                if found is None:
                    break
                server.free -= 1
                scheduler.spawn(
                    f"{server.process.name}: {found.method}",
                    lambda server=server, found=found: server.handle(found),  # type: ignore[misc]
                    server.process,
                )

    def _next_for(self, server: Server) -> Carried | None:
        now = baton.here().now
        for queue in (
            server.waiting,
            self._queued.get((server.topic, server.name), []),
            self._queued.get((server.topic, None), []),
        ):
            while queue:
                found = queue.pop(0)
                if found.expires_at is None or found.expires_at > now:
                    return found
        return None

    def _put(self, sent: Carried, server: str | None, *, fanout: bool) -> None:
        if fanout:
            for each in self.servers:
                if each.topic == sent.topic:
                    each.waiting.append(sent)
        else:
            self._queued.setdefault((sent.topic, server), []).append(sent)
        self.deliver()

    def _on_its_way(
        self,
        what: str,
        arrive: Callable[[], None],
        lasts: float | None = None,
        *,
        is_order: bool = False,
    ) -> None:
        """Deliver a message, which is worth nothing after *lasts* seconds: lost, once, twice, at once or later."""
        scheduler, weather = baton.here(), self.weather
        chance = scheduler.chance
        if chance.random() < weather.lost:
            self._tell(f"lost: {what}")
            return
        if is_order and lasts is not None and chance.random() < weather.repeats_orders:
            self._arrives_later(what, arrive, lasts * (0.4 + 0.55 * chance.random()))
        times = 1
        if chance.random() < weather.doubled:
            self._tell(f"doubled: {what}")
            times = 2
        for copy in range(times):
            # A broker delivers a message again that nobody has confirmed: others have overtaken it by then.
            if chance.random() < (max(weather.late, 0.7) if copy else weather.late):
                longest = min(lasts or weather.longest_delay, weather.longest_delay)
                seconds = chance.random() * (longest if copy else weather.longest_delay)
                self._arrives_later(what, arrive, seconds)
            else:
                arrive()

    def _arrives_later(self, what: str, arrive: Callable[[], None], seconds: float) -> None:
        self._tell(f"late by {seconds:.1f} s: {what}")

        def later() -> None:
            baton.here().sleep(seconds)
            arrive()

        baton.here().spawn("late message", later, self._process)


_bus: Bus | None = None


def use(bus: Bus) -> None:
    """Have every connection be one to *bus*."""
    global _bus
    _bus = bus
    rpc.oslo_messaging = Facade(oslo_messaging, get_rpc_server=_server, ConfigurableTransport=None)


def _server(
    _transport: RPCTransport,
    target: oslo_messaging.Target,
    endpoints: list[object],
    serializer: object,
) -> Server:
    if _bus is None:
        raise RuntimeError("there is no bus")
    return Server(_bus, target, RPCDispatcher(endpoints, serializer))
