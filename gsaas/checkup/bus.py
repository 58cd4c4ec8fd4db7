"""Does the message bus take messages, and does an engine take them from it?"""

from __future__ import annotations

from collections.abc import Iterator

from gsaas import rpc
from gsaas.checkup.findings import Finding, fail, ok, reason, warn

PART = "message bus"
ENGINE = "engine"


def look(bus: rpc.Bus) -> Iterator[Finding]:
    try:
        rpc.check(bus)
    except rpc.BusError as error:
        yield fail(
            PART, f"it takes no messages: {reason(error)}", "start it, or correct transport_url"
        )
        return
    yield ok(PART, "it takes messages")
    try:
        yield engines(rpc.inspect_queue(bus, rpc.ENGINE))
    except rpc.NotObservable:
        return


def engines(queue: rpc.QueueState | None) -> Finding:
    """Whether somebody does the engine's work; *queue* is its own on the bus."""
    if queue is None or not queue.consumers:
        return fail(
            ENGINE,
            "no gsaas-engine takes messages: nothing is launched, wired or ended",
            "systemctl start gsaas-engine on a controller; if it runs, its log says what it waits for",
        )
    if queue.messages > BACKLOG:
        return warn(
            ENGINE,
            f"{queue.messages} messages wait for it",
            "look at its log and at the database's load; a second gsaas-engine on another controller shares the work",
        )
    return ok(ENGINE, "at least one takes messages")


BACKLOG = 1000
"""Messages that may wait: more than agents of hundreds of hosts send in a minute."""
