"""A driver of oslo.messaging for one process, whose listeners are woken when a message arrives.

oslo.messaging's own in-memory driver is for tests: each of its listeners polls twenty times a second. With a hundred
hosts in one process polling would take most of the processor time, and every call would wait for the next poll.
"""

from __future__ import annotations

import threading
import time
from typing import Any

import oslo_messaging
from oslo_messaging._drivers import base, impl_fake


class NotifyingExchange(impl_fake.FakeExchange):  # type: ignore[misc]  # oslo.messaging has no types
    """An exchange that notifies its listeners of new messages."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        # It shares the lock of the queues: a message cannot arrive between a look at them and the wait for the next.
        self.message_added = threading.Condition(self._queues_lock)

    def deliver_message(self, *message: Any, **options: Any) -> None:
        """Add a message to its queues, and wake all listeners."""
        with self.message_added:
            super().deliver_message(*message, **options)
            self.message_added.notify_all()


class NotifyingExchanges(impl_fake.FakeExchangeManager):  # type: ignore[misc]
    """All exchanges of a process, by name."""

    _exchanges: dict[str, NotifyingExchange] = {}

    def get_exchange(self, name: str | None) -> NotifyingExchange:
        """Return the exchange *name*, by default the configured one; make it if needed."""
        name = name or self._default_exchange
        with self._exchanges_lock:
            if name not in self._exchanges:
                self._exchanges[name] = NotifyingExchange(name)
            return self._exchanges[name]


class WaitingListener(impl_fake.FakeListener):  # type: ignore[misc]
    """Waits for messages to any of *targets*, which belong to one exchange."""

    def __init__(self, exchange: NotifyingExchange, targets: list[oslo_messaging.Target]) -> None:
        # FakeListener's own constructor would ask for an exchange manager, and keep no condition to wait for.
        base.PollStyleListener.__init__(self)
        self._exchange = exchange
        self._targets = targets
        self._stopped = threading.Event()
        for target in targets:
            exchange.ensure_queue(target, None)

    @base.batch_poll_helper  # type: ignore[untyped-decorator]
    def poll(self, timeout: float | None = None) -> impl_fake.FakeIncomingMessage | None:
        """Return the next message, or None after *timeout* seconds (None: no limit) or after `stop`."""
        deadline = None if timeout is None else time.monotonic() + timeout
        with self._exchange.message_added:
            while not self._stopped.is_set():
                for target in self._targets:
                    found = self._exchange.poll(target, None)
                    if found[1] is not None:
                        return impl_fake.FakeIncomingMessage(*found)
                remaining = None if deadline is None else deadline - time.monotonic()
                if remaining is not None and remaining <= 0:
                    return None
                self._exchange.message_added.wait(remaining)
        return None

    def stop(self) -> None:
        """End the current and every later `poll`."""
        with self._exchange.message_added:
            self._stopped.set()
            self._exchange.message_added.notify_all()


class InProcessDriver(impl_fake.FakeDriver):  # type: ignore[misc]
    """The driver of the transport URL `in-process://`."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._exchange_manager = NotifyingExchanges(self._default_exchange)

    def listen(
        self, target: oslo_messaging.Target, batch_size: int, batch_timeout: float | None
    ) -> base.PollStyleListenerAdapter:
        """Return a listener for messages to *target*'s server, and to its topic."""
        exchange = self._exchange_manager.get_exchange(target.exchange)
        targets = [
            oslo_messaging.Target(topic=target.topic, server=target.server),
            oslo_messaging.Target(topic=target.topic),
        ]
        return base.PollStyleListenerAdapter(
            WaitingListener(exchange, targets), batch_size, batch_timeout
        )
