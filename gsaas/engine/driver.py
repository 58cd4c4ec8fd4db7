"""Takes a lease's steps: looks, asks `steps` what is next, does it, looks again.

Whatever happens in the middle of a step, the next look finds out: nothing is remembered here.
"""

from __future__ import annotations

import datetime
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from oslo_config import cfg
from oslo_utils import timeutils

from gsaas import exceptions
from gsaas.cloud.base import Cloud, Owner, Server
from gsaas.context import RequestContext
from gsaas.db import endpoints, leases
from gsaas.db.database import Database
from gsaas.engine import desired_state, processes, steps
from gsaas.engine.callers import Callers
from gsaas.engine.gpu_hosts import GpuHosts
from gsaas.gpgpums.claims import Claims
from gsaas.metrics import counted
from gsaas.objects import timings
from gsaas.objects.binding import binding_of
from gsaas.objects.lease import Lease
from gsaas.objects.lifecycle import Event, Status
from gsaas.remoting import user_data
from gsaas.remoting.base import RemotingDriver
from gsaas.remoting.devices import devices_of
from gsaas.rpc.hosts import AgentCallFailed
from gsaas.rpc.rodvr import EndpointClient

LOG = logging.getLogger(__name__)


@dataclass
class _Turn:
    """What one drive learned that the database does not know."""

    taken: steps.Step | None = None
    """The step before. If it comes again at once it changed nothing, and repeating it would not help."""
    heard: dict[str, Any] = field(default_factory=dict)
    """The bindings that the endpoint answered with: newer than its report in the database."""
    unconfirmed: bool = False
    """An endpoint did not confirm what it was asked."""
    silent: set[str] = field(default_factory=set)
    """GPU hosts whose monitors did not confirm what they were asked."""
    trouble: str | None = None
    """Why the cloud did not do what it was asked; it is not asked again."""
    withdrawn: bool = False
    """GPU hosts were told that the lease is over."""
    held_until: datetime.datetime | None = None
    """Until then no other engine takes steps of this lease."""
    status: str | None = None
    """The lease's, when last looked at."""


class LeaseDriver:
    """Drives any lease as far as it goes now. Safe to share between threads that drive different leases.

    *engine* is what others know this one by: whoever drives a lease holds it, so that two engines never make two
    servers for it, nor one applies a binding that the other has just removed.
    """

    def __init__(
        self,
        conf: cfg.ConfigOpts,
        *,
        database: Database,
        claims: Claims,
        cloud: Cloud,
        remoting: Callable[[str], RemotingDriver],
        endpoint: EndpointClient,
        gpu_hosts: GpuHosts,
        engine: str | None = None,
    ) -> None:
        self._conf = conf
        self._database = database
        self._claims = claims
        self.cloud = cloud
        self._remoting = remoting
        self._endpoint = endpoint
        self.gpu_hosts = gpu_hosts
        self._engine = engine or processes.own()
        self.callers = Callers()
        """Who asked for the leases that have no server yet; whoever hears of them keeps them here."""

    def drive(self, lease_id: str) -> float | None:
        """Take steps until there is nothing to do now; return seconds until the next look, None if a change will tell.

        Raises what the database raises; the lease is where it was, and may be driven again.
        """
        turn = _Turn()
        try:
            return self._drive(lease_id, turn)
        finally:
            if turn.status not in (Status.QUEUED, Status.CLAIMED):
                self.callers.forget(lease_id)
                if turn.held_until is not None:
                    self._release_ownership(lease_id)

    def _drive(self, lease_id: str, turn: _Turn) -> float | None:
        while True:
            lease, seen = self._look(lease_id, turn)
            step = steps.next_step(lease, seen, timeutils.utcnow(), self._timeouts)
            if isinstance(step, steps.Rest):
                return None if turn.trouble is None else self._pause
            if isinstance(step, steps.Wait) or step == turn.taken:
                return self._pause
            if not self._acquire_ownership(lease, turn):
                LOG.debug("lease %s is driven by %s, or has changed", lease_id, lease.driven_by)
                return self._pause
            LOG.debug("lease %s is %s: %s", lease_id, lease.status, step)
            try:
                self._take(lease, step, turn)
            except exceptions.IllegalTransition as error:
                LOG.debug("lease %s moved on meanwhile: %s", lease_id, error)
            except AgentCallFailed as error:
                LOG.warning("lease %s: %s", lease_id, error)
                if isinstance(step, steps.TellMonitor):
                    turn.silent.add(step.host)
                else:
                    turn.unconfirmed = True
            except exceptions.CloudUnavailable as error:
                LOG.warning("lease %s: %s", lease_id, error)
                turn.trouble = str(error)
            turn.taken = step

    @property
    def _pause(self) -> float:
        return self.cloud.poll_interval or self._conf.engine.poll_interval

    @property
    def _timeouts(self) -> steps.Timeouts:
        return steps.Timeouts(self._conf.engine.boot_timeout, self._conf.engine.caller_grace)

    def _acquire_ownership(self, lease: Lease, turn: _Turn) -> bool:
        """Keep other engines off for a whole step; False if one was faster, or the lease is not what we saw."""
        now, step = timeutils.utcnow(), datetime.timedelta(seconds=self._conf.engine.step_timeout)
        if turn.held_until is not None and turn.held_until > now + step:
            return True
        until = now + 2 * step  # so that not every step of a turn has to write it down
        holder = lease.driven_by
        former = holder if holder and processes.is_gone(holder) else None
        with self._database.writing() as connection:
            if not leases.acquire_ownership(connection, lease, self._engine, until, former):
                return False
        turn.held_until = until
        return True

    def _release_ownership(self, lease_id: str) -> None:
        with self._database.writing() as connection:
            leases.release_ownership(connection, lease_id, self._engine)

    def _look(self, lease_id: str, turn: _Turn) -> tuple[Lease, steps.Seen]:
        with self._database.reading() as connection:
            lease = leases.get(connection, lease_id)
        turn.status = lease.status
        if lease.claimed_at is None:  # it waits, or gave up waiting: there never was anything
            return lease, steps.Seen(None, None)
        seen = replace(
            self._look_around(lease, turn),
            held=self.gpu_hosts.held(lease),
            silent=frozenset(turn.silent),
            withdrawn=turn.withdrawn,
        )
        return lease, seen

    def _look_around(self, lease: Lease, turn: _Turn) -> steps.Seen:
        """At its server and its endpoint."""
        if not lease.has_server:
            endpoint = self._endpoint_of(lease.bound_host, turn)
            held = None if endpoint is None else installed({"bindings": endpoint})
            return steps.Seen(None, held, turn.unconfirmed)
        caller = not self.cloud.needs_caller or self._caller(lease) is not None
        if lease.status == Status.CLAIMED and caller:
            return steps.Seen(None, None)  # the cloud finds for itself what there is
        if turn.trouble is not None:
            return steps.Seen(None, None, turn.unconfirmed, caller, turn.trouble)
        try:
            server = None if _is_over(lease) else self.cloud.find(_owner(lease))
        except exceptions.CloudUnavailable as error:
            LOG.warning("lease %s: %s", lease.id, error)
            trouble = str(error)
            return steps.Seen(None, None, turn.unconfirmed, caller, trouble)
        endpoint = self._endpoint_of(server and server.host, turn)
        held = None if endpoint is None else installed({"bindings": endpoint})
        return steps.Seen(server, held, turn.unconfirmed, caller)

    def _endpoint_of(self, host: str | None, turn: _Turn) -> Mapping[str, Any] | None:
        """The bindings on a lease's host, as its endpoint reported them; None if it has no endpoint."""
        if host is None:
            return None
        with self._database.read() as session:
            try:
                report = endpoints.get(session, host).report
            except exceptions.NotFound:
                return None
        return {**report.get("bindings", {}), **turn.heard}

    def _take(self, lease: Lease, step: steps.Step, turn: _Turn) -> None:
        match step:
            case steps.CreateServer():
                self._create_server(lease)
            case steps.RecordServer(server):
                self._update(lease, **_columns(server))
            case steps.Bind(host):
                self._update(lease, bound_host=host)
            case steps.ApplyBinding(host):
                with self._database.reading() as connection:
                    binding = binding_of(leases.get(connection, lease.id))
                report = self._endpoint.apply(host, binding)
                nothing = {"installed": False}
                turn.heard = {binding.port_id: report["bindings"].get(binding.port_id, nothing)}
            case steps.TellMonitor(host):
                self.gpu_hosts.sync(host)
            case steps.Withdraw():
                self._withdraw(lease, turn)
            case steps.NoteActivation():
                self._update(lease, timings=self._timed(lease, timings.ACTIVATION, Event.BOOT))
            case steps.Activate():
                self._activate(lease, turn)
            case steps.Release(reason):
                LOG.info("lease %s: %s", lease.id, reason)
                self._transition(lease, Event.RELEASE, reason)
            case steps.ReleaseShelved():
                LOG.info("lease %s: its server was shelved", lease.id)
                detail = f"server {lease.server_id} was shelved, and is its owner's to keep"
                self._transition(lease, Event.RELEASE, detail, server_id=None, server_host=None)
            case steps.RemoveBinding(host):
                self._endpoint.remove(host, lease.port_id)
                turn.heard = {}
                self._update(lease, bound_host=None)
            case steps.DeleteServer():
                owner = _owner(lease)
                self.cloud.delete(owner)
                if self.cloud.find(owner) is None:
                    # Its port stays noted: the endpoint may still have to be told to let go of it.
                    self._update(lease, server_id=None, server_host=None)
            case steps.ReturnClaims():
                self._claims.returns.release(lease.id)
            case steps.Finish():
                self._transition(lease, Event.FINISH)
            case steps.Fail(name, message):
                self._fail(lease, name, message)

    def _withdraw(self, lease: Lease, turn: _Turn) -> None:
        """Tell each GPU host that the lease is over; note which have nothing of it any more."""
        turn.withdrawn = True
        forgotten = {claim.gpu.host_name: claim.gpu.host.forgotten for claim in lease.claims}
        for host in sorted(name for name, is_forgotten in forgotten.items() if not is_forgotten):
            owned = {
                desired_state.daemon(lease, claim).key
                for claim in lease.claims
                if claim.daemon_host == host
            }
            try:
                report = self.gpu_hosts.sync(host)
            except AgentCallFailed as error:
                LOG.warning("lease %s: %s", lease.id, error)
                turn.silent.add(host)
                continue
            if not self.gpu_hosts.is_shut(host, report):
                LOG.warning("lease %s: the fence of %s lets in more than it should", lease.id, host)
                turn.silent.add(host)
                continue
            if left := owned & report["daemons"].keys():
                LOG.debug("lease %s: %s still has %s", lease.id, host, ", ".join(sorted(left)))
            elif owned:
                with self._database.writing() as connection:
                    leases.forget_daemons(connection, lease.id, host)
        if lease.admitted_address is not None and not turn.silent:
            # Fences are as they should be with the answer; only daemons take their time.
            self._update(lease, admitted_address=None)

    def _create_server(self, lease: Lease) -> None:
        request = {"name": lease.name, **lease.server_request}
        caller = request.pop("user_data", None)
        driver = self._remoting(lease.remoting)
        known = self._caller(lease)
        context = known or RequestContext.of(
            user_id=lease.user_id, project_id=lease.project_id, roles=[]
        )
        # Before we held it nobody did, so nobody has tried; an engine that died would still be noted.
        owner = replace(_owner(lease), untried=known is not None and lease.driven_by is None)
        watch = timeutils.StopWatch().start()
        try:
            server = self.cloud.create(
                context,
                owner,
                request,
                user_data.compose(self._conf, driver, lease.id, devices_of(lease), caller),
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
            changes = {**_columns(server), "timings": took}
            self._transition(lease, Event.BOOT, f"server {server.id}", **changes)

    def _caller(self, lease: Lease) -> RequestContext | None:
        return self.callers.get(lease.id, lease.user_id, lease.project_id)

    def _activate(self, lease: Lease, turn: _Turn) -> None:
        if not lease.has_server:
            known = dict(lease.timings or {})
            self._note_configuration(lease, turn, known)
            self._transition(lease, Event.ACTIVATE, timings=known)
            counted.launched(known)
            return
        known = self._timed(lease, timings.DEPLOYMENT, Event.BOOT)
        known[timings.DEPLOYMENT] -= known[timings.ACTIVATION]
        self._note_configuration(lease, turn, known)
        self._transition(lease, Event.ACTIVATE, timings=known)
        counted.launched(known)

    def _note_configuration(self, lease: Lease, turn: _Turn, known: dict[str, float]) -> None:
        """Add to *known* how long the binding, if there is one, took to get into the kernel."""
        held = self._endpoint_of(lease.bound_host, turn) or {}
        seconds = held.get(lease.port_id, {}).get("seconds")
        if seconds is not None:
            known[timings.RODVR_CONFIGURATION] = seconds

    def _timed(self, lease: Lease, phase: str, since: Event) -> dict[str, float]:
        """The timings of *lease* with one more: the seconds from its event *since* until now."""
        with self._database.reading() as connection:
            past = leases.events(connection, lease.id)
        began = next(event.at for event in past if event.event == since)
        seconds = (timeutils.utcnow() - began).total_seconds()
        return {**(lease.timings or {}), phase: seconds}

    def _fail(self, lease: Lease, step: str, message: str) -> None:
        LOG.warning("lease %s failed at %s: %s", lease.id, step, message)
        self._transition(lease, Event.FAIL, message, fault_step=step, fault_message=message)

    def _transition(
        self, lease: Lease, event: Event, detail: str | None = None, **changes: object
    ) -> None:
        with self._database.writing() as connection:
            leases.transition(connection, lease.id, event, detail, **changes)

    def _update(self, lease: Lease, **changes: object) -> None:
        with self._database.writing() as connection:
            leases.update(connection, lease.id, **changes)


def _owner(lease: Lease) -> Owner:
    return Owner(
        lease_id=lease.id,
        project_id=lease.project_id,
        since=lease.created_at,
        server_id=lease.server_id,
    )


def _is_over(lease: Lease) -> bool:
    """Its server was known, and is the lease's no more: gone, or its owner's to keep."""
    return lease.server_id is None and timings.CREATION in (lease.timings or {})


def installed(report: Mapping[str, object]) -> dict[str, bool]:
    """Read an endpoint's report: port id -> is its binding in the kernel?"""
    return {
        port: bool(binding["installed"]) for port, binding in report.get("bindings", {}).items()
    }


def _columns(server: Server) -> dict[str, str | None]:
    port = server.port
    return {
        "server_id": server.id,
        "server_host": server.host,
        "port_id": port.id if port else None,
        "port_tap": port.tap if port else None,
        "port_mac": port.mac if port else None,
        "port_ip": port.ip if port else None,
    }
