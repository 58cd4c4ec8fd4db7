# SPDX-License-Identifier: Apache-2.0
"""What the queues of RabbitMQ contain, for `gsaas-manage check`.

oslo.messaging has no function for this and no public access to its connections. This is the only module that uses its
private names (`Transport._driver`, `_get_connection` of the drivers that speak AMQP). To connect without them, it
would have to repeat how oslo.messaging configures TLS, credentials and several brokers. setup.cfg names the newest
release of oslo.messaging that this works with; tests/unit/rpc/test_queues.py fails if these names change, and
tests/services/processes/test_queues.py asks a real RabbitMQ.
"""

from __future__ import annotations

from dataclasses import dataclass

from amqp.exceptions import NotFound

from gsaas.rpc import RETRIES, Bus, as_bus_error


@dataclass(frozen=True)
class QueueState:
    """A queue of the bus at this moment."""

    messages: int
    """How many messages wait for a consumer."""
    consumers: int
    """How many processes take messages from it."""


class NotObservable(Exception):
    """This kind of bus does not say what its queues contain."""


def inspect_queue(bus: Bus, name: str) -> QueueState | None:
    """Return the queue *name* as it is now; None if there is none. Raises `BusError`, and `NotObservable`.

    AMQP answers this question to a client that declares the queue passively, which creates nothing. The question is
    asked on a copy of oslo.messaging's connection, because AMQP closes the channel if the queue does not exist.
    """
    driver = bus._driver
    if not hasattr(driver, "_get_connection"):
        raise NotObservable(f"{type(driver).__name__} does not report the contents of its queues")
    with (
        as_bus_error(),
        driver._get_connection(retry=RETRIES) as borrowed,
        borrowed.connection.connection.clone() as copy,
    ):
        copy.ensure_connection(max_retries=RETRIES)
        try:
            found = copy.default_channel.queue_declare(name, passive=True)
        except NotFound:
            return None
        return QueueState(found.message_count, found.consumer_count)
