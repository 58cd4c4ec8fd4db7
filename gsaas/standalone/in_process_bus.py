# SPDX-License-Identifier: Apache-2.0
"""The message bus of gsaas-standalone: a driver of oslo.messaging that stays inside one process.

oslo.messaging has such a driver for its tests, `fake://`. Each of its listeners looks for messages twenty times a
second; with a hundred simulated hosts in one process, that is most of what the process does, and a message waits for
the next look. The listeners of this driver sleep until a message wakes them.

This is the only module that imports `oslo_messaging._drivers`: drivers of other packages are loaded through the entry
points `oslo.messaging.drivers`, but oslo.messaging publishes no base class for them. The one used here is
described in its "Guide for Transport Driver Implementors", for its own drivers. setup.cfg names the newest release of
oslo.messaging that this works with, and tests/unit/standalone/test_bus_driver.py fails if the interface changes.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import oslo_messaging
from oslo_config import cfg
from oslo_messaging._drivers import base
from oslo_serialization import jsonutils

JSON: TypeAlias = dict[str, Any]

Answers: TypeAlias = "queue.SimpleQueue[tuple[Any, BaseException | None]]"
"""Where a caller waits for the answer: a result, or the exception that the called method raised."""


class QueueName(NamedTuple):
    """A queue's name. Listeners of the same name share its messages: each message goes to one of them."""

    topic: str
    server: str | None = None
    """The one server of the topic that the messages are for; None: any of them."""
    pool: str | None = None
    """Listeners to notifications of one pool share one copy of each notification."""


class InProcessMessage(base.RpcIncomingMessage):  # type: ignore[misc]  # the library has no types
    """A message as it is handed to the server."""

    def __init__(
        self, context: JSON, body: JSON, answers: Answers | None, requeue: Callable[[], None]
    ) -> None:
        super().__init__(context, body)
        self._answers = answers
        self._requeue = requeue

    def reply(
        self,
        reply: Any = None,
        failure: tuple[type[BaseException], BaseException, Any] | None = None,
    ) -> None:
        """Answer the caller with *reply*, or with the exception of *failure*; nothing if no answer is wanted."""
        if self._answers is not None:
            self._answers.put((reply, failure[1] if failure else None))

    def requeue(self) -> None:
        """Put the message back, behind the others."""
        self._requeue()

    def heartbeat(self) -> None:
        """Callers in the same process need no sign of life."""


class InProcessExchange:
    """The queues of one exchange, and a condition that is notified when a message is put into any of them."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self._queues: dict[QueueName, deque[Callable[[], InProcessMessage]]] = {}

    def declare(self, names: Iterable[QueueName]) -> None:
        """Make the queues that do not exist yet; a new pool gets a copy of what waits for the whole topic."""
        with self.changed:
            for name in names:
                self._queue(name)

    def deliver(
        self,
        topic: str,
        server: str | None,
        fanout: bool | None,
        context: JSON,
        body: JSON,
        answers: Answers | None = None,
    ) -> None:
        """Put a message into the queue of *server*; with *fanout* of every server, else into the topic's."""
        requeue = partial(self.deliver, topic, server, fanout, context, body, answers)
        with self.changed:
            if fanout:
                queues = [
                    waiting
                    for name, waiting in self._queues.items()
                    if name.topic == topic and name.server is not None
                ]
            elif server is not None:
                queues = [self._queue(QueueName(topic, server))]
            else:
                self._queue(QueueName(topic))
                queues = [
                    waiting
                    for name, waiting in self._queues.items()
                    if name.topic == topic and name.server is None
                ]
            for waiting in queues:
                waiting.append(partial(InProcessMessage, context, body, answers, requeue))
            self.changed.notify_all()

    def take(self, names: Iterable[QueueName]) -> InProcessMessage | None:
        """Return the next message of the first of *names* that has one; None if none has."""
        with self.changed:
            for name in names:
                waiting = self._queue(name)
                if waiting:
                    return waiting.popleft()()
        return None

    def _queue(self, name: QueueName) -> deque[Callable[[], InProcessMessage]]:
        if name not in self._queues:
            copied = self._queue(QueueName(name.topic)) if name.pool else ()
            self._queues[name] = deque(copied)
        return self._queues[name]


class InProcessExchanges:
    """The exchanges of this process, by name. All buses of the process share them, as if they met at one broker."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._exchanges: dict[str, InProcessExchange] = {}

    def get(self, name: str) -> InProcessExchange:
        with self._lock:
            if name not in self._exchanges:
                self._exchanges[name] = InProcessExchange()
            return self._exchanges[name]

    def clear(self) -> None:
        """Forget all exchanges and what waits in them."""
        self._exchanges.clear()


class WaitingListener(base.PollStyleListener):  # type: ignore[misc]
    """Waits for messages to any of *names*, all of one exchange."""

    def __init__(self, exchange: InProcessExchange, names: Sequence[QueueName]) -> None:
        super().__init__()
        self._exchange = exchange
        self._names = names
        self._stopped = False
        exchange.declare(names)

    @base.batch_poll_helper  # type: ignore[untyped-decorator]
    def poll(self, timeout: float | None = None) -> InProcessMessage | None:
        """Return the next message; None after *timeout* seconds without one, and once the listener is stopped."""
        end = None if timeout is None else time.monotonic() + timeout
        with self._exchange.changed:
            while not self._stopped:
                message = self._exchange.take(self._names)
                if message is not None:
                    return message
                left = None if end is None else end - time.monotonic()
                if left is not None and left <= 0:
                    return None
                self._exchange.changed.wait(left)
        return None

    def stop(self) -> None:
        with self._exchange.changed:
            self._stopped = True
            self._exchange.changed.notify_all()


class InProcessDriver(base.BaseDriver):  # type: ignore[misc]
    """The driver that oslo.messaging loads for a `transport_url` of `in-process://`."""

    _exchanges = InProcessExchanges()

    def __init__(
        self,
        conf: cfg.ConfigOpts,
        url: oslo_messaging.TransportURL,
        default_exchange: str | None = None,
        allowed_remote_exmods: Sequence[str] | None = None,
    ) -> None:
        super().__init__(conf, url, default_exchange, allowed_remote_exmods)
        self._exchange = default_exchange or "default"

    def require_features(self, requeue: bool = False) -> None:
        """Every feature is there."""

    def send(
        self,
        target: oslo_messaging.Target,
        ctxt: JSON,
        message: JSON,
        wait_for_reply: bool | None = None,
        timeout: float | None = None,
        call_monitor_timeout: float | None = None,
        retry: int | None = None,
        transport_options: Any = None,
    ) -> Any:
        """Deliver *message*; with *wait_for_reply*, return the answer or raise what the called method raised.

        Raises `MessagingTimeout` after *timeout* seconds, and what JSON raises for a message that a real bus could
        not carry.
        """
        jsonutils.dumps(message)
        answers: Answers | None = queue.SimpleQueue() if wait_for_reply else None
        self._of(target).deliver(target.topic, target.server, target.fanout, ctxt, message, answers)
        if answers is None:
            return None
        try:
            reply, failure = answers.get(timeout=timeout)
        except queue.Empty:
            raise oslo_messaging.MessagingTimeout(f"No reply on topic {target.topic}") from None
        if failure is not None:
            raise failure
        return reply

    def send_notification(
        self,
        target: oslo_messaging.Target,
        ctxt: JSON,
        message: JSON,
        version: float,
        retry: int | None = None,
    ) -> None:
        self.send(target, ctxt, message)

    def listen(
        self, target: oslo_messaging.Target, batch_size: int, batch_timeout: float | None
    ) -> base.PollStyleListenerAdapter:
        names = [QueueName(target.topic, target.server), QueueName(target.topic)]
        listener = WaitingListener(self._of(target), names)
        return base.PollStyleListenerAdapter(listener, batch_size, batch_timeout)

    def listen_for_notifications(
        self,
        targets_and_priorities: Sequence[tuple[oslo_messaging.Target, str]],
        pool: str | None,
        batch_size: int,
        batch_timeout: float | None,
    ) -> base.PollStyleListenerAdapter:
        """Raises `ValueError` for targets of several exchanges, which no listener here waits for at once."""
        exchanges = {self._of(target) for target, _ in targets_and_priorities}
        if len(exchanges) != 1:
            raise ValueError("notifications of several exchanges need a listener each")
        names = [
            QueueName(f"{target.topic}.{priority}", pool=pool)
            for target, priority in targets_and_priorities
        ]
        listener = WaitingListener(exchanges.pop(), names)
        return base.PollStyleListenerAdapter(listener, batch_size, batch_timeout)

    def cleanup(self) -> None:
        self._exchanges.clear()

    def _of(self, target: oslo_messaging.Target) -> InProcessExchange:
        return self._exchanges.get(target.exchange or self._exchange)
