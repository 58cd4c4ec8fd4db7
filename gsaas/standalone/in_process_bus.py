"""oslo.messaging's bus of one process, whose listeners are woken up.

Its own one is for tests: each listener looks for messages twenty times a second. With a hundred hosts in one process
that is most of what the process does, and whoever gives an order waits for the next look.
"""

from __future__ import annotations

import threading
import time
from typing import Any

import oslo_messaging
from oslo_messaging._drivers import base, impl_fake


class Exchange(impl_fake.FakeExchange):
    """Queues, and who waits for something to be put into them."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.news = threading.Condition(self._queues_lock)

    def deliver_message(self, *message: Any, **how: Any) -> None:
        with self.news:
            super().deliver_message(*message, **how)
            self.news.notify_all()


class Exchanges(impl_fake.FakeExchangeManager):
    """The exchanges of a process, by name."""

    _exchanges: dict[str, Exchange] = {}

    def get_exchange(self, name: str | None) -> Exchange:
        name = name or self._default_exchange
        with self._exchanges_lock:
            if name not in self._exchanges:
                self._exchanges[name] = Exchange(name)
            return self._exchanges[name]


class Listener(impl_fake.FakeListener):
    """Waits for what comes to one of *targets*, all of one exchange."""

    def __init__(self, exchange: Exchange, targets: list[oslo_messaging.Target]) -> None:
        base.PollStyleListener.__init__(self)
        self._exchange = exchange
        self._targets = targets
        self._stopped = threading.Event()
        for target in targets:
            exchange.ensure_queue(target, None)

    @base.batch_poll_helper
    def poll(self, timeout: float | None = None) -> impl_fake.FakeIncomingMessage | None:
        end = None if timeout is None else time.monotonic() + timeout
        with self._exchange.news:
            while not self._stopped.is_set():
                for target in self._targets:
                    found = self._exchange.poll(target, None)
                    if found[1] is not None:
                        return impl_fake.FakeIncomingMessage(*found)
                left = None if end is None else end - time.monotonic()
                if left is not None and left <= 0:
                    return None
                self._exchange.news.wait(left)
        return None

    def stop(self) -> None:
        with self._exchange.news:
            self._stopped.set()
            self._exchange.news.notify_all()


class InProcessDriver(impl_fake.FakeDriver):
    """What `in-process://` names."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._exchange_manager = Exchanges(self._default_exchange)

    def listen(
        self, target: oslo_messaging.Target, batch_size: int, batch_timeout: float | None
    ) -> base.PollStyleListenerAdapter:
        exchange = self._exchange_manager.get_exchange(target.exchange)
        targets = [
            oslo_messaging.Target(topic=target.topic, server=target.server),
            oslo_messaging.Target(topic=target.topic),
        ]
        return base.PollStyleListenerAdapter(Listener(exchange, targets), batch_size, batch_timeout)
