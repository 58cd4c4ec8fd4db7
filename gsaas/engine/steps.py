"""The next step of a lease, from what the database wants and what is there: values in, a step out.

1. A step is decided from what is seen now, never from what was done before; so whoever looks next, after a crash or
   after somebody else's change, takes up where things stand.
2. The database knows of a server's binding before the endpoint is told of it (`Bind`, then `ApplyBinding`). What an
   endpoint may hold can therefore always be found and removed.
3. Claims are returned last. First the endpoint confirms that the binding is gone and its connections are cut, and the
   monitors that daemons of its own are gone, then the server is gone: nobody is given a GPU that its old holder can
   still reach. An endpoint or a monitor that does not answer delays only the claims, not the end of the server.
4. ERROR gives back what it holds by the same steps and stays ERROR until its owner releases it.
5. Once a lease was ACTIVE, its server is its owner's business: stopped, rebuilt, moved or broken, it keeps its cGPUs
   for as long as it exists on some host. Only a server that was deleted or shelved away gives them back.
6. A server that turns up late, after its lease is over, is deleted.
7. A lease that stands alone has no server to make, follow or delete; the rest is the same.

This module knows no database, cloud, message bus or clock.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import dataclass

from gsaas.cloud.base import Server, ServerStatus
from gsaas.engine.desired_state import NOTHING_HELD, Held
from gsaas.objects.lease import Lease
from gsaas.objects.lifecycle import Status
from gsaas.objects.request import ANY
from gsaas.objects.timings import ACTIVATION


@dataclass(frozen=True)
class CreateServer:
    """Have the cloud make the server, or name the one it made before."""


@dataclass(frozen=True)
class RecordServer:
    """Note where the server is and which port carries its binding."""

    server: Server


@dataclass(frozen=True)
class Bind:
    """Note that the endpoint of *host* is going to be told: from now on there is something to remove."""

    host: str


@dataclass(frozen=True)
class ApplyBinding:
    """Tell the endpoint of *host*."""

    host: str


@dataclass(frozen=True)
class TellMonitor:
    """Have the monitor of *host* start the daemons of the lease there, and admit its consumer."""

    host: str


@dataclass(frozen=True)
class Withdraw:
    """Have its GPU hosts end its daemons and admit its consumer no more, and note what they confirm."""


@dataclass(frozen=True)
class NoteActivation:
    """Note how long the cloud took until the server was active."""


@dataclass(frozen=True)
class Activate:
    """The tenant can use its cGPUs."""


@dataclass(frozen=True)
class Release:
    """Let go of a lease that lost its server."""

    reason: str


@dataclass(frozen=True)
class ReleaseShelved:
    """Let go of a lease whose server is on no host any more, and let its owner keep the server."""


@dataclass(frozen=True)
class RemoveBinding:
    """Have the endpoint of *host* remove the binding and cut its connections, and note its confirmation."""

    host: str


@dataclass(frozen=True)
class DeleteServer:
    """Have the cloud delete the server, and forget it once it is gone."""


@dataclass(frozen=True)
class ReturnClaims:
    """Give the GPUs back."""


@dataclass(frozen=True)
class Finish:
    """Nothing of the lease is left."""


@dataclass(frozen=True)
class Fail:
    """Go to ERROR with a message for the tenant."""

    step: str
    message: str


@dataclass(frozen=True)
class Wait:
    """Look again soon: something that makes no noise is under way."""

    until: str


@dataclass(frozen=True)
class Rest:
    """Nothing to do until something changes."""


Step = (
    CreateServer
    | RecordServer
    | Bind
    | ApplyBinding
    | TellMonitor
    | Withdraw
    | NoteActivation
    | Activate
    | Release
    | ReleaseShelved
    | RemoveBinding
    | DeleteServer
    | ReturnClaims
    | Finish
    | Fail
    | Wait
    | Rest
)


@dataclass(frozen=True)
class Seen:
    """What is there, apart from the database."""

    server: Server | None
    endpoint: Mapping[str, bool] | None
    """What the endpoint of the server's host holds: port id -> installed. None: that host has no endpoint."""
    unconfirmed: bool = False
    """The endpoint that holds the binding was asked just now, and did not confirm."""
    caller: bool = True
    """The cloud can be asked for a server: it needs no caller's token, or this engine has it."""
    trouble: str | None = None
    """Why nothing is known of the server: the cloud does not answer."""
    held: Held = NOTHING_HELD
    """What its GPU hosts hold for it."""
    silent: frozenset[str] = frozenset()
    """GPU hosts whose monitors were asked just now, and did not answer."""
    withdrawn: bool = False
    """Its GPU hosts were told just now that the lease is over."""


@dataclass(frozen=True)
class Timeouts:
    """How long things may take, in seconds from the claim; waiting for it in the queue does not count."""

    boot: float
    """Until the server is active and wired."""
    caller: float
    """Until the engine that was told of the caller has made the server."""


def next_step(lease: Lease, seen: Seen, now: datetime.datetime, patience: Timeouts) -> Step:
    """Return the step that brings *lease* nearer to what its status wants."""
    age = (now - (lease.claimed_at or lease.created_at)).total_seconds()
    match Status(lease.status):
        case Status.QUEUED:
            return Rest()  # whoever gives back what it waits for sees to it
        case Status.CLAIMED if not lease.has_server:
            return _prepare(lease, seen, age, patience)
        case Status.ACTIVE if not lease.has_server:
            return _bind_alone(lease, seen) or _tell(seen) or Rest()
        case Status.CLAIMED:
            return _tell(seen) or _begin(seen, age, patience)
        case Status.BOOTING:
            step = _boot(lease, seen)
            if isinstance(step, ApplyBinding | TellMonitor | Wait) and age > patience.boot:
                return Fail("boot-server", _what_was_missing(seen, patience.boot))
            return step
        case Status.ACTIVE:
            return _keep(lease, seen)
        case Status.RELEASING | Status.ERROR | Status.RELEASED:
            return _give_back(lease, seen)


def _begin(seen: Seen, age: float, patience: Timeouts) -> Step:
    if age > patience.boot:
        return Fail("create-server", f"the cloud made no server within {patience.boot:g} s")
    if seen.caller or seen.server is not None:
        return CreateServer()
    if age > patience.caller and seen.trouble is None:
        return Fail(
            "create-server",
            "the service was interrupted before it made your server, and keeps no token of yours to "
            "try again with; launch again",
        )
    return Wait("the engine that knows the caller makes the server")


def _prepare(lease: Lease, seen: Seen, age: float, patience: Timeouts) -> Step:
    """The next step until the consumer of a lease that stands alone can use it."""
    daemons = _tell(seen) or _await_daemons(seen)
    step = _bind_alone(lease, seen)
    if (daemons or step) is not None and age > patience.boot:
        missing = (
            "the consumer's host did not connect it to its GPUs"
            if step is not None
            else _why_not(seen)
        )
        return Fail(
            "bind",
            f"it could not be used within {patience.boot:g} s: {missing}; ask for another lease, and "
            "ask your operator if it happens twice",
        )
    if isinstance(daemons, TellMonitor):
        return daemons
    return step or daemons or Activate()


def _tell(seen: Seen) -> TellMonitor | None:
    """Have the next GPU host told of what it does not hold yet; one that does not answer delays no other step."""
    host = seen.held.untold
    return None if host is None or host in seen.silent else TellMonitor(host)


def _await_daemons(seen: Seen) -> Wait | None:
    """Every daemon has to be well, and every fence open, before anybody is told that a lease can be used."""
    ready = seen.held.untold is None and seen.held.ailing is None
    return None if ready else Wait(_why_not(seen))


def _why_not(seen: Seen) -> str:
    if seen.held.ailing is not None:
        return seen.held.ailing
    return "the monitor of a GPU host does not answer"  # which, is not for tenants, and in the log


def _bind_alone(lease: Lease, seen: Seen) -> Step | None:
    """The next step until the consumer's endpoint, if it has one, holds the binding; None after that."""
    if lease.bound_host is None:
        return None
    if seen.endpoint is None:
        return Wait("the consumer's host has a RODVR endpoint")
    if not seen.endpoint.get(lease.port_id):
        return ApplyBinding(lease.bound_host)  # asks again: an answer is newer than a report
    return None


def _boot(lease: Lease, seen: Seen) -> Step:
    server = seen.server
    if seen.trouble is not None:
        return Wait("the cloud answers")
    if server is None:
        return Release("its server was deleted while it booted")
    if server.status is ServerStatus.DELETING:
        return Wait("the cloud deletes the server")
    if server.status is ServerStatus.ERROR:
        return Fail("boot-server", _in_its_own_words(lease, server))
    if server.status is ServerStatus.SHELVED:
        return ReleaseShelved()
    active = server.status is ServerStatus.ACTIVE
    if active and ACTIVATION not in (lease.timings or {}):
        return NoteActivation()
    if active and server.port is None:
        return Fail("boot-server", _no_port(server))
    if server.host is None or server.port is None:
        return Wait("the cloud places the server")
    if step := _wire(lease, server, seen):
        return step
    if not seen.endpoint[server.port.id]:
        return ApplyBinding(server.host)  # asks again: an answer is newer than a report
    if not active:
        return Wait("the server boots")
    return _await_daemons(seen) or Activate()


def _keep(lease: Lease, seen: Seen) -> Step:
    server = seen.server
    if seen.trouble is not None:
        return Rest()  # the next audit asks again; what works goes on working
    if server is None:
        return Release("its server was deleted")
    if server.status is ServerStatus.SHELVED:
        return ReleaseShelved()
    if server.host is None or server.port is None:
        return Rest() if lease.bound_host is None else RemoveBinding(lease.bound_host)
    return _wire(lease, server, seen) or Rest()


def _wire(lease: Lease, server: Server, seen: Seen) -> Step | None:
    """The next step until the endpoint of the server's host, and no other, has been told; None after that."""
    told = (lease.bound_host, lease.port_id)
    if lease.bound_host is not None and told != (server.host, server.port.id):
        return RemoveBinding(lease.bound_host)  # it moved, or has another port
    if not _is_recorded(lease, server):
        return RecordServer(server)
    if seen.endpoint is None:
        return Wait("its compute host has a RODVR endpoint")
    if lease.bound_host is None:
        return Bind(server.host)
    if step := _tell(seen):
        return step  # the fences first: a client that is refused remembers it for long
    if server.port.id not in seen.endpoint:
        return ApplyBinding(server.host)
    return None


def _give_back(lease: Lease, seen: Seen) -> Step:
    if lease.bound_host is not None and not seen.unconfirmed:
        return RemoveBinding(lease.bound_host)
    lingers = seen.held.daemons or lease.admitted_address is not None
    if (lingers or seen.held.fenced) and not seen.withdrawn and not seen.silent:
        return Withdraw()
    if seen.trouble is not None:
        # Without a binding, and without daemons, nothing reaches the GPUs any more, wherever the server is.
        if lease.claims and lease.bound_host is None and not lingers:
            return ReturnClaims()
        if lease.status == Status.RELEASING or lease.server_id is not None:
            return Wait("the cloud answers")
        return Rest()
    if lease.server_id is not None or seen.server is not None:
        return DeleteServer()
    if lease.bound_host is not None:
        return Wait("its endpoint confirms that the binding is gone")
    if lingers:
        return Wait("its GPU hosts confirm that its daemons are gone")
    if lease.claims:
        return ReturnClaims()
    return Finish() if lease.status == Status.RELEASING else Rest()


def _is_recorded(lease: Lease, server: Server) -> bool:
    port = server.port
    return (
        lease.server_id,
        lease.server_host,
        lease.port_id,
        lease.port_tap,
        lease.port_mac,
        lease.port_ip,
    ) == (server.id, server.host, port.id, port.tap, port.mac, port.ip)


def _in_its_own_words(lease: Lease, server: Server) -> str:
    said = (server.fault or "it is in state ERROR").rstrip(". ")
    hint = ""
    if lease.locality != ANY:
        hint = f"; locality {lease.locality} leaves fewer hosts to choose from than {ANY}"
    return f"the cloud says of server {server.id}: {said}{hint}"


def _no_port(server: Server) -> str:
    return (
        f"server {server.id} has no port with an IPv4 address, over which it could reach its cGPUs; "
        "launch again with a network that gives it one"
    )


def _what_was_missing(seen: Seen, boot_timeout: float) -> str:
    server = seen.server
    if server is None:
        return (
            f"the server was not ready within {boot_timeout:g} s, and then the cloud did not answer: "
            f"{seen.trouble}; launch again"
        )
    if server.host is None or server.port is None:
        missing = "the cloud chose no host for it or gave it no port"
    elif seen.endpoint is None:
        missing = "its compute host has no RODVR endpoint"
    elif not seen.endpoint.get(server.port.id):
        missing = "its compute host did not connect it to its GPUs"
    elif _await_daemons(seen) is not None:
        missing = _why_not(seen)
    else:
        missing = f"it is still in state {server.status}"
    return (
        f"server {server.id} was not ready within {boot_timeout:g} s: {missing}; "
        "launch again, and ask your operator if it happens twice"
    )
