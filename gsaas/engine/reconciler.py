# SPDX-License-Identifier: Apache-2.0
"""Reconciles leases: observes a lease, asks `steps` for the next step, executes it, and observes the lease again.

A crash in the middle of a step shows in the next observation. The database has all that is known of a lease.
"""

from __future__ import annotations

import datetime
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from oslo_config import cfg
from oslo_utils import timeutils
from sqlalchemy import Connection
from sqlalchemy.orm import Session

from gsaas import exceptions
from gsaas.cloud.base import Cloud, Owner, Server
from gsaas.context import RequestContext
from gsaas.db import endpoints, hosts, leases
from gsaas.db.database import Database, retried
from gsaas.engine import desired_state, host_reports, processes, real_addresses, steps
from gsaas.engine.agents import Agents
from gsaas.engine.callers import Callers
from gsaas.engine.desired_state import GpuHostsState
from gsaas.engine.gpu_hosts import GpuHosts
from gsaas.gpgpums.claims import Claims
from gsaas.metrics import counted
from gsaas.objects import timings
from gsaas.objects.binding import binding_of
from gsaas.objects.lease import Claim, Lease
from gsaas.objects.lifecycle import Event, LeaseEvent, Status
from gsaas.objects.move import UNDONE, Stage
from gsaas.remoting import user_data
from gsaas.remoting.base import RemotingDriver
from gsaas.remoting.devices import devices_of
from gsaas.rpc.hosts import AgentCallFailed

LOG = logging.getLogger(__name__)

WATCH = 10.0
"""Least seconds for which an engine that looked at a server is the only one that does."""
_DELAY = 5.0
"""Seconds that a look may take, or come late."""


class _Reconciliation:
    """What one call of `LeaseReconciler.reconcile` has learned that the database does not contain."""

    def __init__(self, *, told: bool) -> None:
        self.told = told
        """A message to this engine is the reason for the call."""
        self.refused = False
        """Another engine takes steps of the lease, or has just changed it: the message has not been acted on."""
        self.last_step: steps.Step | None = None
        """The step before. If the next step is equal to it, it changed nothing, and is not repeated."""
        self.confirmed_bindings: dict[str, Any] = {}
        """The bindings in the last answer of an endpoint: newer than its report in the database."""
        self.endpoint_unconfirmed = False
        """An endpoint did not confirm a call."""
        self.unconfirmed_gpu_hosts: set[str] = set()
        """GPU hosts whose monitors did not confirm a call."""
        self.cloud_error: str | None = None
        """Why a call to the cloud failed; it is not called again."""
        self.failed = False
        """The cloud or an agent did not answer. The reason may be in this engine alone: others are to try."""
        self.cleanup_requested = False
        """The GPU hosts were sent their desired state without the lease."""
        self.move_cleanup_requested = False
        """GPU hosts were sent their desired state without what a move has left unused."""
        self.connections: int | None = None
        """Open connections of the lease's programs, as its endpoint has counted them; None: it was not asked."""
        self.owned_until: float | None = None
        """Until then, as `time.monotonic` counts, no other engine executes steps of this lease."""
        self.watches = False
        """This engine is the one that looks at the server of this lease."""
        self.status: str | None = None
        """The status of the lease when it was last observed; None if it could not be read yet."""


class _WatchedElsewhereError(Exception):
    """Another engine looks at the server of the lease, or takes its steps; the text is its name.

    *after* is when to reconcile the lease again, as `LeaseReconciler.reconcile` returns it.
    """

    def __init__(self, engine: str | None, after: float | None) -> None:
        super().__init__(engine)
        self.after = after


class _OwnershipLostError(Exception):
    """Another engine has become the owner of the lease during a step; the text is its name."""


class LeaseReconciler:
    """Moves any lease towards its wanted state, as far as that goes now.

    Threads may share it if each reconciles another lease.

    *remoting* returns the remoting driver of a name. *announce* is called with the id of a lease after each change of
    its status. *engine* is the name of this engine: an engine owns a lease while it takes steps of it, so that two
    engines never make two servers for it, and none applies a binding that another has just removed. While a lease
    waits for its server, one engine asks the cloud about it, however many there are: it watches the lease.
    """

    def __init__(
        self,
        conf: cfg.ConfigOpts,
        *,
        database: Database,
        claims: Claims,
        cloud: Cloud,
        remoting: Callable[[str], RemotingDriver],
        agents: Agents,
        engine: str | None = None,
        announce: Callable[[str], None] = lambda _lease_id: None,
    ) -> None:
        self._conf = conf
        self._database = database
        self._claims = claims
        self.cloud = cloud
        self._remoting = remoting
        self.agents = agents
        self._gpu_hosts = GpuHosts(database, agents.monitors)
        self._announce = announce
        self.engine = engine or processes.own_name()
        self.callers = Callers()
        """The callers of leases that have no server yet; `RpcEndpoint` adds them."""
        self._still_told: set[str] = set()
        """Leases whose last reconciliation here had a message as its reason, and was refused."""

    def reconcile(self, lease_id: str, *, told: bool = False) -> float | None:
        """Execute steps of a lease until none is left to do now.

        With *told*, a message to this engine says that something of the lease has changed: it then looks even if
        another engine watches the lease. If another takes steps of it now, the next call does so.

        Returns the seconds after which to call it again; None if a message or the audit asks for that. Raises
        `NotFound`, and what the database raises; the lease is then as it was, and may be reconciled again.
        """
        state = _Reconciliation(told=told or lease_id in self._still_told)
        self._still_told.discard(lease_id)
        requeue_after = None
        try:
            requeue_after = self._reconcile(lease_id, state)
        except _WatchedElsewhereError as error:
            LOG.debug("lease %s is left to %s", lease_id, error)
            state.refused, requeue_after = True, error.after
        except exceptions.NotFound:
            if state.status is None:  # it is the lease that was not found
                self.callers.forget(lease_id)
            raise
        finally:
            if state.told and state.refused:
                self._still_told.add(lease_id)
            if state.status not in (None, Status.QUEUED, Status.CLAIMED):
                self.callers.forget(lease_id)
                self._end_ownership(lease_id, state, waits=requeue_after is not None)
        return requeue_after

    def _reconcile(self, lease_id: str, state: _Reconciliation) -> float | None:
        while True:
            lease, observed = self._observe(lease_id, state)
            step = steps.next_step(lease, observed, self._database.now(), self._timeouts)
            if isinstance(step, steps.Idle):
                return None if state.cloud_error is None else self._requeue_after
            if isinstance(step, steps.Wait) or step == state.last_step:
                return self._requeue_after
            # A request to make one, of an engine that is gone, may still be answered; then there would be two servers.
            makes_server = isinstance(step, steps.CreateServer) and observed.server is None
            waits = makes_server and self.cloud.needs_caller
            if not self._acquire_ownership(lease, state, waits=waits):
                LOG.debug("lease %s is owned by %s, or has changed", lease_id, lease.driven_by)
                state.refused = True
                return self._requeue_after
            LOG.debug("lease %s is %s: %s", lease_id, lease.status, step)
            try:
                self._execute(lease, step, state)
            except _OwnershipLostError as error:
                LOG.warning("lease %s is now owned by %s", lease_id, error)
                state.refused = True
                return self._requeue_after
            except exceptions.IllegalTransition as error:
                LOG.debug("the status of lease %s changed meanwhile: %s", lease_id, error)
            except AgentCallFailed as error:
                LOG.warning("lease %s: %s", lease_id, error)
                state.failed = True
                if isinstance(step, steps.UpdateMonitor):
                    state.unconfirmed_gpu_hosts.add(step.host)
                else:
                    state.endpoint_unconfirmed = True
            except exceptions.CloudUnavailable as error:
                LOG.warning("lease %s: %s", lease_id, error)
                state.failed, state.cloud_error = True, str(error)
            state.last_step = step

    @property
    def _requeue_after(self) -> float:
        """Seconds after which a lease that waits for something is reconciled again."""
        return self.cloud.poll_interval or self._conf.engine.poll_interval

    @property
    def _timeouts(self) -> steps.Timeouts:
        return steps.Timeouts(self._conf.engine.boot_timeout, self._conf.engine.caller_grace)

    def _acquire_ownership(self, lease: Lease, state: _Reconciliation, *, waits: bool) -> bool:
        """Own *lease* for at least one whole step; False if another engine owns it, or the lease has changed.

        With *waits*, the time of an owner that is gone has to run out, as that of an engine elsewhere.
        """
        now, step = time.monotonic(), self._conf.engine.step_timeout
        if state.owned_until is not None and state.owned_until > now + step:
            return True
        seconds = 2 * step  # so that not every step has to write it to the database
        owner = lease.driven_by
        former = owner if owner and not waits and processes.is_gone(owner) else None
        acquired = self._database.change(
            lambda connection: leases.acquire_ownership(
                connection, lease, self.engine, seconds, former
            )
        )
        if acquired:
            state.owned_until = now + seconds
        return acquired

    def _watch(self, lease: Lease, state: _Reconciliation) -> None:
        """Become the engine that looks at the server of *lease*, for a while.

        Raises `_WatchedElsewhereError` if another engine is, unless this one was told of a change, or takes its steps.
        """
        state.watches = lease.status != Status.ACTIVE
        if not state.watches or state.owned_until is not None:
            return
        owner, now, seconds = lease.driven_by, self._database.now(), self._watch_seconds
        watcher = leases.watcher(owner)
        last = lease.driven_until or now
        former = owner if owner and processes.is_gone(watcher or owner) else None
        if watcher == self.engine and last > now + datetime.timedelta(seconds=seconds / 2):
            return  # not every look has to write that it watches
        others = owner not in (None, former, self.engine) and watcher != self.engine
        if others and last > now and not (watcher and state.told):
            state.watches = False
            raise _WatchedElsewhereError(owner, None if watcher else self._requeue_after)
        state.watches = self._database.change(
            lambda connection: leases.acquire_ownership(
                connection, lease, self.engine, seconds, former, only_watch=True
            )
        )
        if not state.watches:
            raise _WatchedElsewhereError(owner, self._requeue_after)

    @property
    def _watch_seconds(self) -> float:
        """Seconds for which an engine that looked at a server is the only one that does."""
        return max(WATCH, 2 * self._requeue_after + _DELAY)

    def _end_ownership(self, lease_id: str, state: _Reconciliation, *, waits: bool) -> None:
        """Let other engines take the steps of a lease; if it *waits* for its server, go on watching it.

        An engine for which the cloud or an agent failed lets others watch it: it alone may be cut off.
        """
        watches = waits and state.watches and not state.failed and state.status != Status.ACTIVE
        if state.owned_until is None and (watches or not state.watches):
            return
        seconds = self._watch_seconds if watches else None
        self._database.change(
            lambda connection: leases.release_ownership(connection, lease_id, self.engine, seconds)
        )

    def _observe(self, lease_id: str, state: _Reconciliation) -> tuple[Lease, steps.ObservedState]:
        gpu_hosts, others, bindings = GpuHostsState(), GpuHostsState(), None
        with self._database.read() as session:
            lease = leases.get(session.connection(), lease_id)
            state.status = lease.status
            if lease.claimed_at is not None:
                gpu_hosts, others = self._gpu_hosts.observe(session, lease)
                if not lease.has_server:
                    bindings = _bindings_on(session, lease.bound_host, state)
        if lease.claimed_at is None:  # it is or was in the queue, and never had anything
            return lease, self._observe_waiting(lease)
        if lease.has_server:
            observed = self._observe_server(lease, state)
        else:
            observed = steps.ObservedState(None, _installed(bindings), state.endpoint_unconfirmed)
        observed = replace(
            observed,
            gpu_hosts=gpu_hosts,
            unconfirmed_gpu_hosts=frozenset(state.unconfirmed_gpu_hosts),
            cleanup_requested=state.cleanup_requested,
            move_cleanup_requested=state.move_cleanup_requested,
            others=others,
            connections=state.connections,
        )
        return lease, observed

    def _observe_waiting(self, lease: Lease) -> steps.ObservedState:
        """Observe the server of a lease in the queue, if it has one already; no engine has to watch it."""
        server, cloud_error = None, None
        if lease.plain_server_id is not None and lease.status == Status.QUEUED:
            try:
                server = self.cloud.find(owner_of(lease))
            except exceptions.CloudUnavailable as error:
                cloud_error = str(error)
        return steps.ObservedState(server, None, cloud_error=cloud_error)

    def _observe_server(self, lease: Lease, state: _Reconciliation) -> steps.ObservedState:
        """Observe the server of *lease*, and the bindings on its host."""
        unconfirmed = state.endpoint_unconfirmed
        can_create = not self.cloud.needs_caller or self._caller(lease) is not None
        to_create = lease.status == Status.CLAIMED and lease.plain_server_id is None
        if to_create and can_create and lease.driven_by in (None, self.engine):
            return steps.ObservedState(None, None)  # `Cloud.create` looks for an existing server
        if to_create and lease.driven_by is None:
            return steps.ObservedState(None, None, unconfirmed, can_create)  # nobody has made one
        if state.cloud_error is not None:
            return steps.ObservedState(None, None, unconfirmed, can_create, state.cloud_error)
        try:
            server = None if _has_lost_server(lease) else self._find_server(lease, state)
        except exceptions.CloudUnavailable as error:
            LOG.warning("lease %s: %s", lease.id, error)
            state.failed, state.cloud_error = True, str(error)  # so it is reconciled again
            return steps.ObservedState(None, None, unconfirmed, can_create, str(error))
        bindings = self._bindings_on(None if server is None else server.host, state)
        return steps.ObservedState(server, _installed(bindings), unconfirmed, can_create)

    def _find_server(self, lease: Lease, state: _Reconciliation) -> Server | None:
        """Return the server of *lease*; raises `_WatchedElsewhereError` if that is for another engine to ask."""
        if not self._may_be_requested(lease):
            self._watch(lease, state)
        return self.cloud.find(owner_of(lease))

    def _may_be_requested(self, lease: Lease) -> bool:
        """Return whether an engine that is gone may have requested a server for *lease*.

        What says so is its ownership, which is therefore not replaced by a watch.
        """
        owner = lease.driven_by
        if owner is None or lease.status != Status.CLAIMED or not self.cloud.needs_caller:
            return False
        return leases.watcher(owner) is None and processes.is_gone(owner)

    def _bindings_on(self, host: str | None, state: _Reconciliation) -> dict[str, Any] | None:
        if host is None:
            return None
        with self._database.read() as session:
            return _bindings_on(session, host, state)

    def _execute(self, lease: Lease, step: steps.Step, state: _Reconciliation) -> None:
        match step:
            case steps.CreateServer():
                self._create_server(lease)
            case steps.TakePlainServer(server):
                self._transition(
                    lease,
                    Event.BOOT,
                    f"server {server.id}, which its owner has made",
                    **_server_columns(server),
                )
            case steps.LeaveQueue(reason):
                self._claims.queue.leave(lease.id, reason)
            case steps.ForgetServer():
                self._update(lease, server_id=None, server_host=None)
            case steps.RecordServer(server):
                self._update(lease, **_server_columns(server))
            case steps.RecordBoundHost(host):
                self._update(lease, bound_host=host)
            case steps.ApplyBinding(host):
                present, serial = self._next_order(lease, host)
                state.confirmed_bindings = self._apply_binding(host, present, serial)
            case steps.ChangeBinding(host, server):
                present, serial = self._next_order(lease, host)
                columns = _server_columns(server)
                state.confirmed_bindings = self._apply_binding(
                    host, present.with_(**columns), serial
                )
                self._update(lease, **columns)
            case steps.UpdateMonitor(host):
                self._gpu_hosts.reconcile(host)
            case steps.CleanUpGpuHosts():
                self._clean_up_gpu_hosts(lease, state)
            case steps.CountConnections(host):
                state.connections = self._count_connections(lease, host)
            case steps.SwitchGpus():
                self._claims.switch(lease.id)
            case steps.UndoMove(reason):
                self._leave(lease, Stage.STARTING, UNDONE, reason)
            case steps.Remap(host):
                self._remap(lease, host, state)
            case steps.LeaveFormerGpus():
                self._leave(lease, Stage.SWITCHED)
            case steps.CleanUpMove():
                self._clean_up_move(lease, state)
            case steps.EndMove():
                self._claims.end_move(lease.id)
            case steps.RecordActivationTime():
                self._update(
                    lease, timings=self._timings_with(lease, timings.ACTIVATION, Event.BOOT)
                )
            case steps.Activate():
                self._activate(lease, state)
            case steps.Release(reason):
                LOG.info("lease %s: %s", lease.id, reason)
                self._transition(lease, Event.RELEASE, reason)
            case steps.ReleaseShelved():
                LOG.info("lease %s: its server was shelved", lease.id)
                detail = f"server {lease.server_id} was shelved, and is left to its owner"
                self._transition(lease, Event.RELEASE, detail, server_id=None, server_host=None)
            case steps.RemoveBinding(host):
                if lease.port_id is None:
                    raise ValueError(f"lease {lease.id} has a binding, but no recorded port")
                _, serial = self._next_order(lease, host)
                self.agents.endpoint.remove(host, lease.port_id, serial)
                state.confirmed_bindings = {}
                self._update(lease, bound_host=None)
            case steps.DeleteServer():
                owner = owner_of(lease)
                self.cloud.delete(owner)
                if self.cloud.find(owner) is None:
                    # Its port stays recorded: the endpoint may still have to remove the binding.
                    self._update(lease, server_id=None, server_host=None)
            case steps.ReturnClaims():
                self._claims.release(lease.id)
            case steps.Finish():
                self._transition(lease, Event.FINISH)
            case steps.Fail(name, message):
                self._fail(lease, name, message)

    def _apply_binding(self, host: str, lease: Lease, serial: int) -> dict[str, Any]:
        """Send an endpoint the binding of *lease*; return what it reports of it, by port id.

        Raises `AgentCallFailed`, also for an invalid report or a binding that must not be sent.
        """
        binding = binding_of(lease)
        if refusal := real_addresses.binding_refusal(self.agents.gpu_network, lease, binding):
            raise AgentCallFailed(f"the binding is not sent to {host}: {refusal}")
        answer = self.agents.endpoint.apply(host, binding, serial)
        try:
            report = host_reports.endpoint_report(answer)
        except ValueError as error:
            raise AgentCallFailed(
                f"the endpoint of {host} sent no valid report: {error}"
            ) from error
        return {binding.port_id: report["bindings"].get(binding.port_id, {"installed": False})}

    @retried
    def _next_order(self, lease: Lease, host: str) -> tuple[Lease, int]:
        """Return *lease* as it is now, and the serial of an order about it to the endpoint of *host*.

        Raises `_OwnershipLostError` if another engine owns the lease: this one stood still for so long that its order
        would be older than that engine's. An order that stands still after this is refused by the endpoint.
        """
        with self._database.write() as session:
            serial = hosts.next_serial(session, host)
            present = leases.get(session.connection(), lease.id)
        if present.driven_by != self.engine:
            raise _OwnershipLostError(present.driven_by)
        return present, serial

    def _clean_up_gpu_hosts(self, lease: Lease, state: _Reconciliation) -> None:
        """Send each GPU host its desired state without the lease; record which have no daemon of it any more."""
        state.cleanup_requested = True
        self._end_daemons(lease, lease.all_claims, state, led_there=lease.bound_host is not None)
        if lease.admitted_address is not None and not state.unconfirmed_gpu_hosts:
            # A fence has changed when its monitor answers; only daemons end later.
            self._update(lease, admitted_address=None)

    def _clean_up_move(self, lease: Lease, state: _Reconciliation) -> None:
        """Send the GPU hosts that a move has left their desired state; record which have no daemon left of it."""
        state.move_cleanup_requested = True
        self._end_daemons(lease, lease.others, state, led_there=False)

    def _end_daemons(
        self, lease: Lease, claims: Sequence[Claim], state: _Reconciliation, *, led_there: bool
    ) -> None:
        """Send the hosts of *claims* their desired state without these; record which have no daemon of them.

        Nothing is recorded if the consumer may still be *led there*, to the ports of these daemons, by its endpoint:
        another lease would be given these ports.
        """
        forgotten = {claim.gpu.host_name: claim.gpu.host.forgotten for claim in claims}
        for host in sorted(forgotten):
            own_daemons = {
                daemon.key
                for claim in claims
                if claim.daemon_host == host
                and (daemon := desired_state.daemon_of(lease, claim)) is not None
            }
            if forgotten[host]:
                if own_daemons and not led_there:
                    self._forget_daemons(lease, host, claims)
                continue
            try:
                report = self._gpu_hosts.reconcile(host)
            except AgentCallFailed as error:
                LOG.warning("lease %s: %s", lease.id, error)
                state.failed = True
                state.unconfirmed_gpu_hosts.add(host)
                continue
            if self._gpu_hosts.has_excess_admissions(host, report):
                LOG.warning("lease %s: the fence of %s admits more than it should", lease.id, host)
                state.unconfirmed_gpu_hosts.add(host)
                continue
            if left := own_daemons & report["daemons"].keys():
                LOG.debug("lease %s: %s still has %s", lease.id, host, ", ".join(sorted(left)))
            elif own_daemons and not led_there:
                self._forget_daemons(lease, host, claims)

    def _count_connections(self, lease: Lease, host: str) -> int:
        """Return how many connections of the lease's programs are open. Raises `AgentCallFailed`."""
        counted_there = self.agents.endpoint.connections(host, lease.port_id or "")
        if counted_there is None:
            raise AgentCallFailed(f"the endpoint of {host} cannot count connections")
        return counted_there

    def _remap(self, lease: Lease, host: str, state: _Reconciliation) -> None:
        """Have the binding lead to the new GPUs of a lease, and to no others; record that.

        While its tap is missing, the endpoint does not say whether its kernel still has a former binding. That of a VM
        is removed then, which it confirms, and is sent again by a later step. Raises `AgentCallFailed`.
        """
        present, serial = self._next_order(lease, host)
        state.confirmed_bindings = self._apply_binding(host, present, serial)
        if all(each["installed"] for each in state.confirmed_bindings.values()):
            self._leave(lease, Stage.SWITCHED)
            return
        if not lease.has_server or lease.port_id is None:
            raise AgentCallFailed(f"the endpoint of {host} has not installed the binding")
        _, serial = self._next_order(lease, host)
        self.agents.endpoint.remove(host, lease.port_id, serial)
        state.confirmed_bindings = {}
        self._leave(lease, Stage.SWITCHED, bound_host=None)

    def _leave(
        self,
        lease: Lease,
        stage: Stage,
        event: str | None = None,
        detail: str | None = None,
        **changes: object,
    ) -> None:
        """Record that the other claims of a lease that moves are not used, if its move is still at *stage*."""

        def write(connection: Connection) -> None:
            present = leases.lock(connection, lease.id)
            if present.status != Status.ACTIVE or present.moving != stage:
                return
            leases.write(
                connection, present.with_(moving=Stage.ENDING, **changes), "moving", *changes
            )
            if event is not None:
                leases.record_events(
                    connection, lease.id, [LeaseEvent(event, present.status, detail)]
                )

        self._database.change(write)

    def _create_server(self, lease: Lease) -> None:
        request = {"name": lease.name, **lease.server_request}
        callers_user_data = request.pop("user_data", None)
        driver = self._remoting(lease.remoting)
        known = self._caller(lease)
        context = known or RequestContext.of(
            user_id=lease.user_id, project_id=lease.project_id, roles=[]
        )
        # If no engine is recorded as the owner, none has tried to create the server: the record stays if an engine
        # dies.
        owner = replace(owner_of(lease), untried=known is not None and lease.driven_by is None)
        watch = timeutils.StopWatch().start()
        try:
            server = self.cloud.create(
                context,
                owner,
                request,
                user_data.compose(
                    self._conf, driver, lease.id, devices_of(lease), callers_user_data
                ),
                lease.wanted_host,
                lease.avoided_hosts,
            )
        except (
            exceptions.ServerRefused,
            exceptions.BadRequest,
            exceptions.CloudUnavailable,  # trying again could make a second server
        ) as refusal:
            self._fail(lease, "create-server", str(refusal))
        else:
            took = {**(lease.timings or {}), timings.CREATION: watch.elapsed()}
            changes = {**_server_columns(server), "timings": took}
            try:
                self._transition(lease, Event.BOOT, f"server {server.id}", **changes)
            except exceptions.IllegalTransition:
                self._delete_if_second(owner, server.id)
                raise

    def _delete_if_second(self, owner: Owner, server_id: str) -> None:
        """Delete a server that was just made for a lease which has got another one meanwhile, from another engine."""
        with self._database.reading() as connection:
            recorded = leases.servers_of(connection, [owner.lease_id]).get(owner.lease_id)
        if recorded not in (None, server_id):
            LOG.warning("lease %s has got server %s meanwhile", owner.lease_id, recorded)
            self.cloud.delete(replace(owner, server_id=server_id))

    def _caller(self, lease: Lease) -> RequestContext | None:
        return self.callers.get(lease.id, lease.user_id, lease.project_id)

    def _activate(self, lease: Lease, state: _Reconciliation) -> None:
        if not lease.has_server:
            took = dict(lease.timings or {})
        else:
            took = self._timings_with(lease, timings.DEPLOYMENT, Event.BOOT)
            took[timings.DEPLOYMENT] -= took[timings.ACTIVATION]
        seconds = self._configuration_seconds(lease, state)
        if seconds is not None:
            took[timings.RODVR_CONFIGURATION] = seconds
        self._transition(lease, Event.ACTIVATE, timings=took)
        counted.launched(took)

    def _configuration_seconds(self, lease: Lease, state: _Reconciliation) -> float | None:
        """Return how long the endpoint took to get the binding into the kernel; None without a binding."""
        bindings = self._bindings_on(lease.bound_host, state) or {}
        if lease.port_id is None or lease.port_id not in bindings:
            return None
        seconds: float | None = bindings[lease.port_id].get("seconds")
        return seconds

    def _timings_with(self, lease: Lease, phase: str, since: Event) -> dict[str, float]:
        """Return the timings of *lease* with one more: the seconds from its event *since* until now."""
        with self._database.reading() as connection:
            past = leases.events(connection, lease.id)
        began = next(event.at for event in past if event.event == since)
        seconds = (self._database.now() - began).total_seconds()
        return {**(lease.timings or {}), phase: seconds}

    def _fail(self, lease: Lease, step: str, message: str) -> None:
        LOG.warning("lease %s failed at %s: %s", lease.id, step, message)
        self._transition(lease, Event.FAIL, message, fault_step=step, fault_message=message)

    def _transition(
        self, lease: Lease, event: Event, detail: str | None = None, **changes: object
    ) -> None:
        self._database.change(
            lambda connection: leases.transition(connection, lease.id, event, detail, **changes)
        )
        self._announce(lease.id)

    def _update(self, lease: Lease, **changes: object) -> None:
        self._database.change(lambda connection: leases.update(connection, lease.id, **changes))

    def _forget_daemons(self, lease: Lease, host: str, claims: Sequence[Claim]) -> None:
        only_others = claims is lease.others
        self._database.change(
            lambda connection: leases.forget_daemons(
                connection, lease.id, host, only_others=only_others
            )
        )


def owner_of(lease: Lease) -> Owner:
    """Return what the cloud has to know of *lease* to find its server."""
    return Owner(
        lease_id=lease.id,
        project_id=lease.project_id,
        since=lease.created_at,
        server_id=lease.server_id or lease.plain_server_id,
    )


def _has_lost_server(lease: Lease) -> bool:
    """Return whether the lease had a server that is gone, or was left to its owner for good."""
    if lease.plain_server_id is not None and lease.status == Status.ERROR:
        return False  # the lease ends when the server does
    had = lease.plain_server_id is not None or timings.CREATION in (lease.timings or {})
    return lease.server_id is None and had


def _bindings_on(
    session: Session, host: str | None, state: _Reconciliation
) -> dict[str, Any] | None:
    """Return the bindings of *host* as its endpoint reported them, by port id; None if it has no endpoint."""
    if host is None:
        return None
    try:
        report = endpoints.get(session, host).report
    except exceptions.NotFound:
        return None
    return {**report.get("bindings", {}), **state.confirmed_bindings}


def _installed(bindings: dict[str, Any] | None) -> dict[str, bool] | None:
    """Return port id -> whether its binding is in the kernel, of what `_bindings_on` returns."""
    return None if bindings is None else installed_bindings({"bindings": bindings})


def installed_bindings(report: Mapping[str, Any]) -> dict[str, bool]:
    """Return port id -> whether its binding is in the kernel, from the report of an endpoint."""
    return {
        port: bool(binding["installed"]) for port, binding in report.get("bindings", {}).items()
    }


def _server_columns(server: Server) -> dict[str, Any]:
    port = server.port
    return {
        "server_id": server.id,
        "server_host": server.host,
        "port_id": port.id if port else None,
        "port_tap": port.tap if port else None,
        "port_mac": port.mac if port else None,
        "port_ip": port.ip if port else None,
        "port_other_ips": list(port.other_ips) or None if port else None,
    }
