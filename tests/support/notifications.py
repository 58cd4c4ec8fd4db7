# SPDX-License-Identifier: Apache-2.0
"""Receives notifications from a real listener of oslo.messaging, and compares them with their schemas."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import jsonschema
from referencing import Registry, Resource

from gsaas import rpc
from gsaas.notifications import schemas
from tests.support.waiting import until

SCHEMAS = schemas.schemas()
_REGISTRY: Registry = Registry().with_resources(
    (f"{name}.json", Resource.from_contents(schema)) for name, schema in SCHEMAS.items()
)


def expect_valid(event_type: str, payload: Any) -> None:
    """Fail unless *payload* is as the schema of its name, or that of security events, says."""
    name = "SecurityEvent" if event_type.startswith("audit.") else payload["gsaas_object.name"]
    checker = jsonschema.FormatChecker(["date-time"])
    jsonschema.Draft202012Validator(
        SCHEMAS[name], registry=_REGISTRY, format_checker=checker
    ).validate(payload)


class Received(NamedTuple):
    priority: str
    publisher: str
    event_type: str
    payload: Any

    @property
    def data(self) -> Any:
        return self.payload["gsaas_object.data"]


class Inbox:
    """Everything that has arrived, in order. Each notification is checked against its schema."""

    def __init__(self) -> None:
        self._received: list[Received] = []
        self._lock = threading.Lock()

    def _take(self, priority: str, publisher: str, event_type: str, payload: Any) -> None:
        with self._lock:
            self._received.append(Received(priority, publisher, event_type, payload))

    def info(self, context: Any, publisher: str, event_type: str, payload: Any, _: Any) -> None:
        self._take("info", publisher, event_type, payload)

    def warn(self, context: Any, publisher: str, event_type: str, payload: Any, _: Any) -> None:
        self._take("warn", publisher, event_type, payload)

    def error(self, context: Any, publisher: str, event_type: str, payload: Any, _: Any) -> None:
        self._take("error", publisher, event_type, payload)

    def wait(self, count: int) -> list[Received]:
        """Return the first *count* notifications once they are there, sorted out by nothing but their arrival."""
        until(lambda: len(self._received) >= count, f"{count} notifications")
        with self._lock:
            found = list(self._received)
        for one in found:
            expect_valid(one.event_type, one.payload)
        assert len(found) == count, [one.event_type for one in found]
        return found

    def leases(self) -> set[str]:
        """Return the ids of the leases that notifications have arrived about."""
        with self._lock:
            return {one.data["id"] for one in self._received}

    def types(self, count: int) -> list[str]:
        return [one.event_type for one in self.wait(count)]


@contextmanager
def listening(conf: Any, url: str, topic: str) -> Iterator[Inbox]:
    """Listen to a topic, as a program of an operator does."""
    inbox = Inbox()
    listener = rpc.listener(conf, url, [rpc.Target(exchange="gsaas", topic=topic)], None, inbox)
    listener.start(override_pool_size=1)  # several threads would take them in any order
    try:
        yield inbox
    finally:
        listener.stop()
        # Its threads look once a second whether they should end, and in one process there is no connection to close.
        if url != rpc.IN_PROCESS:
            listener.wait()
