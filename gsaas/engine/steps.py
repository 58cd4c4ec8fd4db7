# SPDX-License-Identifier: Apache-2.0
"""Decides the next step of a lease, from its row in the database and its observed state.

1. A step is decided from what is observed now, never from earlier steps. So any engine can continue after a crash, or
   after a change by another process.
2. The database records the host of a server's binding before its endpoint is sent the binding (`RecordBoundHost`, then
   `ApplyBinding`). So every binding that an endpoint may contain can be found and removed.
3. Claims are returned last. First the endpoint confirms that the binding is gone and its connections are cut, and the
   monitors that the lease's own daemons are gone; then the server is deleted. So no GPU is given to a lease while its
   former lease can still reach it. An endpoint or a monitor that does not answer delays only the return of the claims,
   not the end of the server.
4. A lease in ERROR is cleaned up by the same steps, and stays in ERROR until its owner releases it. That of a plain
   server ends by itself when the server is deleted: its owner may not know that there is a lease.
5. Once its lease was ACTIVE, a server that its owner stops, rebuilds or moves, or that fails, keeps its cGPUs for as
   long as it exists on a host. Only a server that was deleted or shelved loses them.
6. A server that appears after its lease is over is deleted.
7. A lease without a server has none to make, follow or delete; the other steps are the same.
8. The lease of a plain server has a server from the beginning, which its owner has made. It is followed like any other,
   also while its lease waits in the queue, and it is never deleted: a lease that is over only forgets it.
9. cGPUs that move are served on both GPUs before masked addresses lead to the new one, and until they no longer lead to
   the old one. Until they are switched, a move that cannot go on is undone, and the lease goes on as it was.

This module knows no database, cloud, message bus or clock.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import dataclass

from gsaas.cloud.base import Port, Server, ServerStatus
from gsaas.engine.desired_state import NOTHING_ON_GPU_HOSTS, START_ATTEMPTS, GpuHostsState
from gsaas.objects.lease import Lease
from gsaas.objects.lifecycle import Status
from gsaas.objects.move import Kind, Stage
from gsaas.objects.request import ANY
from gsaas.objects.timings import ACTIVATION

FAULT_GRACE = 5.0
"""Seconds that the cloud has to say why a server has failed."""


@dataclass(frozen=True)
class CreateServer:
    """Have the cloud make the server, or return the one that it made before."""


@dataclass(frozen=True)
class TakePlainServer:
    """Record that the server of the lease, which its owner made, exists."""

    server: Server


@dataclass(frozen=True)
class LeaveQueue:
    """End a lease that waits for GPUs, because its plain server will not use them."""

    reason: str


@dataclass(frozen=True)
class ForgetServer:
    """Leave a plain server to its owner."""


@dataclass(frozen=True)
class RecordServer:
    """Record where the server is, and which port carries its binding."""

    server: Server


@dataclass(frozen=True)
class RecordBoundHost:
    """Record that the endpoint of *host* is about to be sent the binding: from now on it has to be removed there."""

    host: str


@dataclass(frozen=True)
class ApplyBinding:
    """Send the endpoint of *host* the binding."""

    host: str


@dataclass(frozen=True)
class ChangeBinding:
    """Send the endpoint of *host* the binding with the present addresses of the server's port, and then record these.

    In this order: as long as they are not recorded, the step is taken again.
    """

    host: str
    server: Server


@dataclass(frozen=True)
class UpdateMonitor:
    """Send the monitor of *host* its desired state: it starts the daemons of the lease, and admits its consumer."""

    host: str


@dataclass(frozen=True)
class CleanUpGpuHosts:
    """Have the GPU hosts end the lease's daemons and admit its consumer no longer; record what they confirm."""


@dataclass(frozen=True)
class CountConnections:
    """Ask the endpoint of *host* how many connections of the lease's programs to its cGPUs are open."""

    host: str


@dataclass(frozen=True)
class SwitchGpus:
    """Make the GPUs that cGPUs go to those of the lease."""


@dataclass(frozen=True)
class UndoMove:
    """Give up a move before its cGPUs are switched."""

    reason: str


@dataclass(frozen=True)
class Remap:
    """Send the endpoint of *host* the binding with the new GPUs, and record that it leads to no others any more."""

    host: str


@dataclass(frozen=True)
class LeaveFormerGpus:
    """Record that no binding leads to the former GPUs of cGPUs that moved."""


@dataclass(frozen=True)
class CleanUpMove:
    """Have the GPU hosts serve what a move has left unused no longer; record what they confirm."""


@dataclass(frozen=True)
class EndMove:
    """Return the GPUs that a move has left unused to the pool."""


@dataclass(frozen=True)
class RecordActivationTime:
    """Record how long the cloud took until the server was active."""


@dataclass(frozen=True)
class Activate:
    """Make the lease ACTIVE: its consumer can use its cGPUs."""


@dataclass(frozen=True)
class Release:
    """Release a lease that lost its server."""

    reason: str


@dataclass(frozen=True)
class ReleaseShelved:
    """Release a lease whose server is on no host any more, and leave the server to its owner."""


@dataclass(frozen=True)
class RemoveBinding:
    """Have the endpoint of *host* remove the binding and cut its connections, and record that it confirmed."""

    host: str


@dataclass(frozen=True)
class DeleteServer:
    """Have the cloud delete the server, and record when it is gone."""


@dataclass(frozen=True)
class ReturnClaims:
    """Return the GPUs of the lease to the pool."""


@dataclass(frozen=True)
class Finish:
    """Make the lease RELEASED: nothing of it is left."""


@dataclass(frozen=True)
class Fail:
    """Make the lease ERROR, with a message for the tenant."""

    step: str
    message: str


@dataclass(frozen=True)
class Wait:
    """Observe the lease again soon: no message announces what it waits for."""

    until: str
    """What it waits for, as the end of a sentence that begins with "until"; for the log."""


@dataclass(frozen=True)
class Idle:
    """Do nothing until something changes."""


Step = (
    CreateServer
    | TakePlainServer
    | LeaveQueue
    | ForgetServer
    | RecordServer
    | RecordBoundHost
    | ApplyBinding
    | ChangeBinding
    | UpdateMonitor
    | CleanUpGpuHosts
    | CountConnections
    | SwitchGpus
    | UndoMove
    | Remap
    | LeaveFormerGpus
    | CleanUpMove
    | EndMove
    | RecordActivationTime
    | Activate
    | Release
    | ReleaseShelved
    | RemoveBinding
    | DeleteServer
    | ReturnClaims
    | Finish
    | Fail
    | Wait
    | Idle
)


@dataclass(frozen=True)
class ObservedState:
    """What was observed of a lease outside its row in the database, and while it is reconciled."""

    server: Server | None
    bindings: Mapping[str, bool] | None
    """Port id -> whether its binding is in the kernel of the server's host; None: that host has no endpoint."""
    endpoint_unconfirmed: bool = False
    """The endpoint that has the binding did not confirm the last call of this reconciliation."""
    can_create: bool = True
    """The cloud can be asked for a server: it needs no caller's token, or this engine has the token."""
    cloud_error: str | None = None
    """Why the server is not known: the cloud does not answer."""
    gpu_hosts: GpuHostsState = NOTHING_ON_GPU_HOSTS
    """The state of the lease on its GPU hosts."""
    unconfirmed_gpu_hosts: frozenset[str] = frozenset()
    """GPU hosts whose monitors did not confirm a call of this reconciliation."""
    cleanup_requested: bool = False
    """This reconciliation has sent the GPU hosts their desired state without the lease (`CleanUpGpuHosts`)."""
    move_cleanup_requested: bool = False
    """This reconciliation has sent GPU hosts their desired state without what a move left unused (`CleanUpMove`)."""
    others: GpuHostsState = NOTHING_ON_GPU_HOSTS
    """The state of the other claims of cGPUs that move, `Lease.others`, on their GPU hosts."""
    connections: int | None = None
    """What `CountConnections` has found in this reconciliation; None: it was not asked."""


@dataclass(frozen=True)
class Timeouts:
    """How long the steps of a launch may take, in seconds from the claim; time in the queue does not count."""

    boot: float
    """Until the server is active and its binding is confirmed."""
    caller: float
    """Until the engine that has the caller's token has made the server."""


def next_step(
    lease: Lease, observed: ObservedState, now: datetime.datetime, timeouts: Timeouts
) -> Step:
    """Return the step that brings *lease* nearer to what its status asks for.

    *now* is in UTC, without a time zone in the value.
    """
    age = (now - (lease.claimed_at or lease.created_at)).total_seconds()
    match Status(lease.status):
        case Status.QUEUED:
            # The transaction that returns GPUs also serves the queue.
            return _leave_queue(lease, observed, now) or Idle()
        case Status.CLAIMED if not lease.has_server:
            return _activate_without_server(lease, observed, age, timeouts)
        case Status.ACTIVE if not lease.has_server:
            step = _apply_local_binding(lease, observed) or _update_monitor(observed)
            return _with_move(step or Idle(), lease, observed, now, timeouts)
        case Status.CLAIMED if lease.plain_server_id is not None:
            return _take_plain_server(observed)
        case Status.CLAIMED:
            return _update_monitor(observed) or _create_server(observed, age, timeouts)
        case Status.BOOTING:
            if observed.gpu_hosts.hopeless:
                return _daemon_failed(observed)
            step = _boot(lease, observed, now)
            if (
                isinstance(step, ApplyBinding | ChangeBinding | UpdateMonitor | Wait)
                and age > timeouts.boot
            ):
                return Fail("boot-server", _boot_timeout_message(observed, timeouts.boot))
            return step
        case Status.ACTIVE:
            step = _follow_server(lease, observed)
            return _with_move(step, lease, observed, now, timeouts)
        case Status.RELEASING | Status.ERROR | Status.RELEASED:
            return _clean_up(lease, observed)


def _create_server(observed: ObservedState, age: float, timeouts: Timeouts) -> Step:
    if age > timeouts.boot:
        return Fail("create-server", f"the cloud made no server within {timeouts.boot:g} s")
    if observed.can_create or observed.server is not None:
        return CreateServer()
    if age > timeouts.caller and observed.cloud_error is None:
        return Fail(
            "create-server",
            "the service was interrupted before it made your server, and does not store your token to try again; "
            "launch again",
        )
    return Wait("the engine that has the caller's token makes the server")


def _leave_queue(
    lease: Lease, observed: ObservedState, now: datetime.datetime
) -> LeaveQueue | Wait | None:
    """Return the step that ends the wait of a plain server that is gone or has failed; None for any other lease.

    Before that, a wait for the reason why it has failed.
    """
    if lease.plain_server_id is None or observed.cloud_error is not None:
        return None
    server = observed.server
    if server is None:
        return LeaveQueue("its server was deleted")
    if server.status is ServerStatus.ERROR:
        return _wait_for_fault(server, now) or LeaveQueue(_server_fault_message(lease, server))
    if server.status is ServerStatus.SHELVED:
        return LeaveQueue("its server was shelved")
    return None


def _take_plain_server(observed: ObservedState) -> Step:
    if observed.cloud_error is not None:
        return Wait("the cloud answers")
    if observed.server is None:
        return Release("its server was deleted before it had its cGPUs")
    return _update_monitor(observed) or TakePlainServer(observed.server)


def _activate_without_server(
    lease: Lease, observed: ObservedState, age: float, timeouts: Timeouts
) -> Step:
    """Return the next step until the consumer of a lease without a server can use it."""
    if observed.gpu_hosts.hopeless:
        return _daemon_failed(observed)
    gpu_hosts_step = _update_monitor(observed) or _wait_for_gpu_hosts(observed)
    binding_step = _apply_local_binding(lease, observed)
    if (gpu_hosts_step or binding_step) is not None and age > timeouts.boot:
        missing = (
            "the consumer's host did not connect it to its GPUs"
            if binding_step is not None
            else _not_ready_reason(observed)
        )
        return Fail(
            "bind",
            f"it could not be used within {timeouts.boot:g} s: {missing}; ask for another lease, and "
            "ask your operator if it happens twice",
        )
    if isinstance(gpu_hosts_step, UpdateMonitor):
        return gpu_hosts_step
    return binding_step or gpu_hosts_step or Activate()


def _update_monitor(observed: ObservedState) -> UpdateMonitor | None:
    """Return the step for a GPU host that lacks something; None without one, or if its monitor did not confirm.

    So a monitor that does not answer delays no other step.
    """
    host = observed.gpu_hosts.out_of_sync_host
    if host is None or host in observed.unconfirmed_gpu_hosts:
        return None
    return UpdateMonitor(host)


def _wait_for_gpu_hosts(observed: ObservedState) -> Wait | None:
    """Return a wait until every daemon is healthy and every fence open; None if they are."""
    state = observed.gpu_hosts
    ready = state.out_of_sync_host is None and state.not_ready_reason is None
    return None if ready else Wait(_not_ready_reason(observed))


def _daemon_failed(observed: ObservedState) -> Fail:
    return Fail(
        "start-daemon",
        f"{_not_ready_reason(observed)}; this was tried {START_ATTEMPTS} times, so ask your operator",
    )


def _not_ready_reason(observed: ObservedState) -> str:
    if observed.gpu_hosts.not_ready_reason is not None:
        return observed.gpu_hosts.not_ready_reason
    # Tenants read this, so it does not name the host; the log does.
    return "the monitor of a GPU host does not answer"


def _apply_local_binding(lease: Lease, observed: ObservedState) -> Step | None:
    """Return the next step until the endpoint of the consumer's host has the binding; None after that.

    Also None if the consumer reaches its GPUs without an endpoint.
    """
    if lease.bound_host is None:
        return None
    if observed.bindings is None:
        return Wait("the consumer's host has a RODVR endpoint")
    if lease.port_id is None or not observed.bindings.get(lease.port_id):
        # Sent again even if the endpoint has it: its answer is newer than its last report.
        return ApplyBinding(lease.bound_host)
    return None


def _boot(lease: Lease, observed: ObservedState, now: datetime.datetime) -> Step:
    server = observed.server
    if observed.cloud_error is not None:
        return Wait("the cloud answers")
    if server is None:
        return Release("its server was deleted while it booted")
    if server.status is ServerStatus.DELETING:
        return Wait("the cloud deletes the server")
    if server.status is ServerStatus.ERROR:
        return _wait_for_fault(server, now) or Fail(
            "boot-server", _server_fault_message(lease, server)
        )
    if server.status is ServerStatus.SHELVED:
        return ReleaseShelved()
    active = server.status is ServerStatus.ACTIVE
    if active and ACTIVATION not in (lease.timings or {}):
        return RecordActivationTime()
    if active and server.lacks_ipv4:
        return Fail("boot-server", _no_ipv4_message(server))
    if server.host is None or server.port is None:
        # Nova says for a moment of a server that is deleted while it boots that it is active without a port.
        return Wait("the cloud places the server")
    if step := _connect(lease, server, server.host, server.port, observed):
        return step
    if not _is_installed(observed, server.port):
        # Sent again even if the endpoint has it: its answer is newer than its last report.
        return ApplyBinding(server.host)
    if not active:
        return Wait("the server boots")
    return _wait_for_gpu_hosts(observed) or Activate()


def _follow_server(lease: Lease, observed: ObservedState) -> Step:
    """Return the next step of an ACTIVE lease, but for the moves of its cGPUs."""
    server = observed.server
    if observed.cloud_error is not None:
        return Idle()  # the next audit asks again; the connection to the GPUs goes on working
    if server is None:
        return Release("its server was deleted")
    if server.status is ServerStatus.SHELVED:
        return ReleaseShelved()
    if server.host is None or server.port is None:
        if lease.bound_host is not None:
            return RemoveBinding(lease.bound_host)
        return Idle()
    return _connect(lease, server, server.host, server.port, observed) or Idle()


def _with_move(
    step: Step, lease: Lease, observed: ObservedState, now: datetime.datetime, timeouts: Timeouts
) -> Step:
    """Return *step* of an ACTIVE lease, or that of the move of its cGPUs, if nothing else is to be done now.

    While its consumer cannot be followed, because the cloud or an endpoint is missing, a move begins nothing, but it is
    given up in time, and returns the GPUs to which no binding leads.
    """
    if not isinstance(step, Idle | Wait):
        return step
    if isinstance(step, Idle) and observed.cloud_error is None:
        return _move(lease, observed, now, timeouts) or step
    match lease.moving:
        case Stage.STARTING:
            missing = step.until if isinstance(step, Wait) else "the cloud answers"
            return _give_up_late(lease, now, timeouts, f"it waits until {missing}") or step
        case Stage.SWITCHED if lease.bound_host is None:
            return LeaveFormerGpus()
        case Stage.ENDING:
            return _move(lease, observed, now, timeouts) or step
        case _:
            return step


def _move(
    lease: Lease, observed: ObservedState, now: datetime.datetime, timeouts: Timeouts
) -> Step | None:
    """Return the next step of the move of cGPUs of an ACTIVE lease; None if none moves."""
    match lease.moving:
        case Stage.STARTING:
            return _start_move(lease, observed, now, timeouts)
        case Stage.SWITCHED:
            if lease.bound_host is None:
                return LeaveFormerGpus()
            if observed.endpoint_unconfirmed:
                return Wait("its endpoint confirms that the binding leads to its new GPUs")
            return Remap(lease.bound_host)
        case Stage.ENDING:
            if not observed.move_cleanup_requested:
                return CleanUpMove()
            if observed.others.has_daemons or observed.unconfirmed_gpu_hosts:
                return Wait(
                    "GPU hosts confirm that they serve it no longer where it has moved from"
                )
            return EndMove()
        case _:
            return None


def _start_move(
    lease: Lease, observed: ObservedState, now: datetime.datetime, timeouts: Timeouts
) -> Step:
    """Return the next step until the GPUs that cGPUs go to are those of the lease.

    A checkpoint provider, which would keep connections, would take over between the last two of them: all is ready
    where the cGPUs go to, and programs still use the GPUs where they are.
    """
    others = observed.others
    if any(each.is_lost for each in lease.others):
        return UndoMove("a GPU that it was to move to has failed, or is gone")
    if others.hopeless:
        return UndoMove(f"where it was to move to, {others.not_ready_reason}")
    host = others.out_of_sync_host
    waits_for = others.not_ready_reason or (host and "the monitor of a GPU host does not answer")
    if waits_for is None and lease.move_kind == Kind.IDLE and lease.bound_host is not None:
        if observed.connections is None and not observed.endpoint_unconfirmed:
            return CountConnections(lease.bound_host)
        if observed.connections is None:
            waits_for = "the endpoint of its host does not say whether connections are open"
        elif observed.connections > 0:
            many = observed.connections
            open_ = "1 connection is" if many == 1 else f"{many} connections are"
            return UndoMove(f"{open_} open, and it was not to cut any")
    if waits_for is None:
        return SwitchGpus()
    if (step := _give_up_late(lease, now, timeouts, waits_for)) is not None:
        return step
    if host is not None and host not in observed.unconfirmed_gpu_hosts:
        return UpdateMonitor(host)
    return Wait(waits_for)


def _give_up_late(
    lease: Lease, now: datetime.datetime, timeouts: Timeouts, waits_for: str
) -> UndoMove | None:
    """Return the step that gives up a move that has waited for too long; None before that."""
    age = (now - (lease.moving_since or now)).total_seconds()
    if age <= timeouts.boot:
        return None
    return UndoMove(f"it could not move within {timeouts.boot:g} s: {waits_for}")


def _connect(
    lease: Lease, server: Server, host: str, port: Port, observed: ObservedState
) -> Step | None:
    """Return the next step until the endpoint of *host*, and no other, has the binding; None after that.

    *host* and *port* are those of *server*.
    """
    if lease.bound_host is not None and (lease.bound_host, lease.port_id) != (host, port.id):
        return RemoveBinding(lease.bound_host)  # the server moved, or has another port
    if not _is_recorded(lease, server, port):
        return RecordServer(server) if lease.bound_host is None else ChangeBinding(host, server)
    if observed.bindings is None:
        return Wait("its compute host has a RODVR endpoint")
    if lease.bound_host is None:
        return RecordBoundHost(host)
    # Fences before the binding: some clients wait long before they connect again after a refusal.
    if step := _update_monitor(observed):
        return step
    if port.id not in observed.bindings:
        return ApplyBinding(host)
    return None


def _clean_up(lease: Lease, observed: ObservedState) -> Step:
    """Return the next step that removes something that a lease which is over still has."""
    if lease.bound_host is not None and not observed.endpoint_unconfirmed:
        return RemoveBinding(lease.bound_host)
    on_gpu_hosts = observed.gpu_hosts.has_daemons or lease.admitted_address is not None
    needs_cleanup = on_gpu_hosts or observed.gpu_hosts.has_fence
    if needs_cleanup and not observed.cleanup_requested and not observed.unconfirmed_gpu_hosts:
        return CleanUpGpuHosts()
    if observed.cloud_error is not None:
        # Without a binding and without daemons nothing reaches the GPUs any more, wherever the server is.
        if lease.claims and lease.bound_host is None and not on_gpu_hosts:
            return ReturnClaims()
        if (
            lease.status == Status.RELEASING
            or lease.server_id is not None
            or _ends_with_its_server(lease)
        ):
            return Wait("the cloud answers")
        return Idle()
    if lease.plain_server_id is not None:
        if lease.server_id is not None:
            return ForgetServer()
    elif lease.server_id is not None or observed.server is not None:
        return DeleteServer()
    if lease.bound_host is not None:
        return Wait("its endpoint confirms that the binding is gone")
    if on_gpu_hosts:
        return Wait("its GPU hosts confirm that its daemons are gone")
    if lease.claims:
        return ReturnClaims()
    if lease.status == Status.RELEASING:
        return Finish()
    if _ends_with_its_server(lease) and observed.server is None:
        return Release("its server was deleted")
    return Idle()


def _ends_with_its_server(lease: Lease) -> bool:
    """Return whether a lease that failed waits only for its owner to delete the server."""
    return lease.status == Status.ERROR and lease.plain_server_id is not None


def _is_recorded(lease: Lease, server: Server, port: Port) -> bool:
    return (
        lease.server_id,
        lease.server_host,
        lease.port_id,
        lease.port_tap,
        lease.port_mac,
        # A cloud may list the addresses in another order each time.
        {lease.port_ip, *(lease.port_other_ips or ())},
    ) == (server.id, server.host, port.id, port.tap, port.mac, {port.ip, *port.other_ips})


def _is_installed(observed: ObservedState, port: Port) -> bool:
    """Return whether the endpoint of the server's host has the binding of *port* in its kernel."""
    return observed.bindings is not None and observed.bindings.get(port.id, False)


def _wait_for_fault(server: Server, now: datetime.datetime) -> Wait | None:
    """Return a wait while the cloud may still say why *server* has failed; None after that.

    Nova stores that a server is in state ERROR before it stores the fault. If its clock differs from the database's by
    more than `FAULT_GRACE`, the lease fails at once, perhaps without Nova's reason.
    """
    if server.fault is not None or server.failed_at is None:
        return None
    age = abs((now - server.failed_at).total_seconds())
    return Wait("the cloud says why the server has failed") if age < FAULT_GRACE else None


def _server_fault_message(lease: Lease, server: Server) -> str:
    fault = (server.fault or "it is in state ERROR").rstrip(". ")
    hint = ""
    if lease.locality != ANY:
        hint = f"; locality {lease.locality} leaves fewer hosts to choose from than {ANY}"
    return f"the cloud says of server {server.id}: {fault}{hint}"


def _no_ipv4_message(server: Server) -> str:
    return (
        f"server {server.id} has a port without an IPv4 address, over which it could reach its cGPUs; "
        "launch again with a network that gives it one"
    )


def _boot_timeout_message(observed: ObservedState, boot_timeout: float) -> str:
    server = observed.server
    if server is None:
        return (
            f"the server was not ready within {boot_timeout:g} s, and then the cloud did not answer: "
            f"{observed.cloud_error}; launch again"
        )
    if server.status is ServerStatus.ERROR:
        missing = "it is in state ERROR"
    elif server.host is None or server.port is None:
        missing = "the cloud chose no host for it or gave it no port"
    elif observed.bindings is None:
        missing = "its compute host has no RODVR endpoint"
    elif not _is_installed(observed, server.port):
        missing = "its compute host did not connect it to its GPUs"
    elif _wait_for_gpu_hosts(observed) is not None:
        missing = _not_ready_reason(observed)
    else:
        missing = f"it is still in state {server.status}"
    return (
        f"server {server.id} was not ready within {boot_timeout:g} s: {missing}; "
        "launch again, and ask your operator if it happens twice"
    )
