# SPDX-License-Identifier: Apache-2.0
"""Check that the message bus accepts messages, and that an engine receives them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from gsaas import rpc
from gsaas.checkup.findings import Finding, fail, ok, reason, warn
from gsaas.rpc.queues import NotObservable, QueueState, inspect_queue

PART = "message bus"
SIGNATURES = "bus signatures"
ENGINE = "engine"
OLD_AGENTS = "old agents"
BACKLOG = 1000
"""Messages that may wait for the engine: more than the agents of hundreds of hosts send in a minute."""


def check(bus: rpc.Bus) -> Iterator[Finding]:
    """Send a message over *bus*, and look at the queue of the engine where the bus can show it."""
    try:
        rpc.check(bus)
    except rpc.BusError as error:
        yield fail(
            PART, f"it accepts no messages: {reason(error)}", "start it, or correct transport_url"
        )
        return
    yield ok(PART, "it accepts messages")
    try:
        yield check_engine_queue(inspect_queue(bus, rpc.ENGINE))
        yield from check_old_agents({name: inspect_queue(bus, name) for name in rpc.OF_OLD_AGENTS})
    except NotObservable:
        return


def check_signatures(secrets: Sequence[str], *, enforce: bool) -> Finding:
    """Check that messages are signed: *secrets* are [bus]secrets, *enforce* is [bus]enforce."""
    if secrets and not enforce:
        return warn(
            SIGNATURES,
            "messages and answers that are not signed, or with a wrong key, are logged and accepted",
            "give every agent its key (gsaas-manage bus key HOST --role); once no log reports a message that was not "
            "believed, remove [bus]enforce everywhere",
        )
    if secrets:
        return ok(SIGNATURES, "messages of hosts and controllers are signed")
    return warn(
        SIGNATURES,
        "messages are not signed: any host on the message bus can report in the name of another, and command it",
        "give each host an account and a key of its own: gsaas-manage bus permissions, gsaas-manage bus key; then set "
        "[bus]secrets",
    )


def check_old_agents(queues: Mapping[str, QueueState | None]) -> Iterator[Finding]:
    """Warn of agents of a release in which agents had no topic of their own: such agents read *queues*."""
    for name, queue in queues.items():
        if queue is not None and queue.consumers:
            yield warn(
                OLD_AGENTS,
                f"{queue.consumers} {name} of an older release are connected, and reach no engine of this one",
                "for each of their hosts: gsaas-manage bus permissions HOST, if it has an account of its own; "
                "gsaas-manage bus key HOST --role, if messages are signed; then install this release and restart "
                f"{name}",
            )


def check_engine_queue(queue: QueueState | None) -> Finding:
    """Check that an engine reads *queue*, the engine's own, fast enough; None if the queue does not exist."""
    if queue is None or not queue.consumers:
        return fail(
            ENGINE,
            "no gsaas-engine receives messages, so no lease is launched, connected or ended",
            "systemctl start gsaas-engine on a controller; if it runs, its log says what it waits for",
        )
    if queue.messages > BACKLOG:
        return warn(
            ENGINE,
            f"{queue.messages} messages wait for it",
            "check its log and the load of the database; a second gsaas-engine on another controller shares the work",
        )
    return ok(ENGINE, "at least one receives messages")
