"""Takes a lease's steps: looks, asks `steps` what is next, does it, looks again.

Whatever happens in the middle of a step, the next look finds out: nothing is remembered here.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from oslo_config import cfg
from oslo_utils import timeutils

from gsaas import exceptions
from gsaas.cloud.base import Cloud, Server
from gsaas.context import RequestContext
from gsaas.db import endpoints, leases
from gsaas.db.database import Database
from gsaas.db.models import Lease
from gsaas.engine import steps, user_data, wiring
from gsaas.gpgpums.claims import Claims
from gsaas.lifecycle import Event, Status
from gsaas.remoting.base import Device, Driver
from gsaas.rodvr.bindings import Address
from gsaas.rpc.rodvr import EndpointClient, Unconfirmed

LOG = logging.getLogger(__name__)


@dataclass
class _Turn:
    """What one drive learned that the database does not know."""

    taken: steps.Step | None = None
    """The step before. If it comes again at once it changed nothing, and repeating it would not help."""
    heard: dict[str, bool] = field(default_factory=dict)
    """What the endpoint answered: newer than its report in the database."""
    unconfirmed: bool = False
    """An endpoint did not confirm what it was asked."""


class LeaseDriver:
    """Drives any lease as far as it goes now. Safe to share between threads that drive different leases."""

    def __init__(
        self,
        conf: cfg.ConfigOpts,
        *,
        database: Database,
        claims: Claims,
        cloud: Cloud,
        remoting: Callable[[str], Driver],
        endpoint: EndpointClient,
    ) -> None:
        self._conf = conf
        self._database = database
        self._claims = claims
        self._cloud = cloud
        self._remoting = remoting
        self._endpoint = endpoint

    def drive(self, lease_id: str) -> float | None:
        """Take steps until there is nothing to do now; return seconds until the next look, None if a change will tell.

        Raises what the cloud or the database raise; the lease is where it was, and may be driven again.
        """
        turn = _Turn()
        while True:
            lease, seen = self._look(lease_id, turn)
            step = steps.next_step(lease, seen, timeutils.utcnow(), self._conf.engine.boot_timeout)
            if isinstance(step, steps.Rest):
                return None
            if isinstance(step, steps.Wait) or step == turn.taken:
                return self._conf.engine.poll_interval
            LOG.debug("lease %s is %s: %s", lease_id, lease.status, step)
            try:
                self._take(lease, step, turn)
            except exceptions.IllegalTransition as error:
                LOG.debug("lease %s moved on meanwhile: %s", lease_id, error)
            except Unconfirmed as error:
                LOG.warning("lease %s: %s", lease_id, error)
                turn.unconfirmed = True
            turn.taken = step

    def _look(self, lease_id: str, turn: _Turn) -> tuple[Lease, steps.Seen]:
        with self._database.read() as session:
            lease = leases.get(session, lease_id)
        server = None if lease.status == Status.RELEASED else self._cloud.find(lease_id)
        return lease, steps.Seen(server, self._endpoint_of(server, turn), turn.unconfirmed)

    def _endpoint_of(self, server: Server | None, turn: _Turn) -> Mapping[str, bool] | None:
        if server is None or server.host is None:
            return None
        with self._database.read() as session:
            try:
                report = endpoints.get(session, server.host).report
            except exceptions.NotFound:
                return None
        return {**installed(report), **turn.heard}

    def _take(self, lease: Lease, step: steps.Step, turn: _Turn) -> None:
        match step:
            case steps.CreateServer():
                self._create_server(lease)
            case steps.RecordServer(server):
                self._update(lease, **_columns(server))
            case steps.Bind(host):
                self._update(lease, bound_host=host)
            case steps.ApplyBinding(host):
                with self._database.read() as session:
                    binding = wiring.binding(leases.get(session, lease.id))
                report = self._endpoint.apply(host, binding)
                turn.heard = {binding.port_id: installed(report).get(binding.port_id, False)}
            case steps.Activate():
                self._transition(lease, Event.ACTIVATE)
            case steps.Release(reason):
                LOG.info("lease %s: %s", lease.id, reason)
                self._transition(lease, Event.RELEASE, reason)
            case steps.RemoveBinding(host):
                self._endpoint.remove(host, lease.port_id)
                turn.heard = {}
                self._update(lease, bound_host=None)
            case steps.DeleteServer():
                self._cloud.delete(lease.id)
                if self._cloud.find(lease.id) is None:
                    # Its port stays noted: the endpoint may still have to be told to let go of it.
                    self._update(lease, server_id=None, server_host=None)
            case steps.ReturnClaims():
                self._claims.release(lease.id)
            case steps.Finish():
                self._transition(lease, Event.FINISH)
            case steps.Fail(name, message):
                self._fail(lease, name, message)

    def _create_server(self, lease: Lease) -> None:
        request = {"name": lease.name, **lease.server_request}
        caller = request.pop("user_data", None)
        devices = [
            Device(Address(claim.masked_ip, claim.masked_port), lease.memory_mb)
            for claim in lease.claims
        ]
        driver = self._remoting(lease.remoting)
        context = RequestContext.of(user_id=lease.user_id, project_id=lease.project_id, roles=[])
        try:
            server = self._cloud.create(
                context,
                lease.id,
                request,
                user_data.compose(self._conf, driver, lease.id, devices, caller),
                lease.wanted_host,
                lease.avoided_hosts,
            )
        except (exceptions.ServerRefused, exceptions.BadRequest) as refusal:
            self._fail(lease, "create-server", str(refusal))
        else:
            self._transition(lease, Event.BOOT, f"server {server.id}", **_columns(server))

    def _fail(self, lease: Lease, step: str, message: str) -> None:
        LOG.warning("lease %s failed at %s: %s", lease.id, step, message)
        self._transition(lease, Event.FAIL, message, fault_step=step, fault_message=message)

    def _transition(
        self, lease: Lease, event: Event, detail: str | None = None, **changes: object
    ) -> None:
        with self._database.write() as session:
            leases.transition(session, lease.id, event, detail, **changes)

    def _update(self, lease: Lease, **changes: object) -> None:
        with self._database.write() as session:
            leases.update(session, lease.id, **changes)


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
