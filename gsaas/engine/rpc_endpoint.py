"""What the message bus brings to the engine: wake-ups and reports. Nothing of it is believed unchecked.

Agents announce themselves and report; the engine answers with what they should hold. A report that does not agree with
the database is mended from both ends: leases that an endpoint forgot are driven again, and bindings that no
lease knows of are removed.
"""

from __future__ import annotations

import ipaddress
import logging
from collections.abc import Callable
from typing import Any

import jsonschema

from gsaas import exceptions, rpc
from gsaas.context import RequestContext
from gsaas.db import endpoints, gpus, leases, settings
from gsaas.db.database import Database
from gsaas.engine.callers import Callers
from gsaas.engine.driver import installed
from gsaas.engine.gpu_hosts import GpuHosts
from gsaas.grants import redemption
from gsaas.grants.keyring import Keyring
from gsaas.objects import host_names
from gsaas.objects.binding import HAVING_BINDINGS, binding_of
from gsaas.objects.daemon import DaemonState
from gsaas.objects.gpu_report import GpuReport
from gsaas.objects.lifecycle import Status
from gsaas.rpc.engine import EngineClient
from gsaas.rpc.hosts import AgentCallFailed
from gsaas.rpc.monitor import MonitorClient
from gsaas.rpc.rodvr import EndpointClient

LOG = logging.getLogger(__name__)

_NAME = {"type": "string", "minLength": 1, "maxLength": 255}
_WORD = jsonschema.Draft202012Validator(_NAME)
_KEY = jsonschema.Draft202012Validator({"type": "string", "maxLength": 4096})
_HOST = jsonschema.Draft202012Validator({"type": "string", "pattern": host_names.PATTERN})
_REPORT = jsonschema.Draft202012Validator(
    {
        "type": "object",
        "required": ["bindings"],
        "properties": {
            "bindings": {
                "type": "object",
                "additionalProperties": {
                    "type": "object",
                    "required": ["installed"],
                    "properties": {
                        "installed": {"type": "boolean"},
                        "seconds": {"type": ["number", "null"], "minimum": 0},
                    },
                },
            },
            "problems": {"type": "array", "items": {"type": "string"}},
            "gpu_address": {"anyOf": [{"type": "string", "format": "ipv4"}, {"type": "null"}]},
        },
    }
)
_WORDS = {"type": "string", "maxLength": 1024}
_DAEMONS_REPORT = jsonschema.Draft202012Validator(
    {
        "type": "object",
        "required": ["serial", "daemons", "fence", "problems"],
        "properties": {
            "serial": {"type": "integer", "minimum": 0},
            "daemons": {
                "type": "object",
                "maxProperties": 65535,
                "additionalProperties": {
                    "type": "object",
                    "required": [
                        *("lease_id", "position", "gpu_uuid", "port", "memory_mb"),
                        *("state", "restarts", "detail"),
                    ],
                    "additionalProperties": False,
                    "properties": {
                        "lease_id": {"type": ["string", "null"], "maxLength": 36},
                        "position": {"type": "integer", "minimum": 0},
                        "gpu_uuid": _NAME,
                        "port": {"type": "integer", "minimum": 1, "maximum": 65535},
                        "memory_mb": {"type": ["integer", "null"], "minimum": 1},
                        "state": {"enum": list(DaemonState)},
                        "restarts": {"type": "integer", "minimum": 0},
                        "detail": {"anyOf": [_WORDS, {"type": "null"}]},
                    },
                },
            },
            "fence": {
                "type": ["object", "null"],
                "required": ["admissions", "refused"],
                "properties": {
                    "admissions": {"type": "array", "items": {"type": "string", "maxLength": 21}},
                    "refused": {"type": "integer", "minimum": 0},
                },
            },
            "problems": {"type": "array", "items": _WORDS},
        },
    }
)


class RpcEndpoint:
    """Serves the topic of the engine; `gsaas.rpc.engine.EngineClient` is its other half."""

    target = rpc.Target(version=EngineClient.VERSION)

    def __init__(
        self,
        database: Database,
        endpoint: EndpointClient,
        monitors: MonitorClient,
        gpu_hosts: GpuHosts,
        wake: Callable[[str], None],
        callers: Callers,
        advance: Callable[[], None] = lambda: None,
        keyring: Keyring | None = None,
    ) -> None:
        """*advance* has the queue looked at: a host that reports may have what somebody waits for; *keyring*
        knows grants."""
        self._database = database
        self._endpoint = endpoint
        self._monitors = monitors
        self._gpu_hosts = gpu_hosts
        self._wake = wake
        self._callers = callers
        self._advance = advance
        self._keyring = keyring or Keyring()

    def lease_changed(self, context: RequestContext, lease_id: str) -> None:
        """Look at a lease now. Who asked for it is kept for as long as its server is not made."""
        _WORD.validate(lease_id)
        self._callers.keep(lease_id, context)
        self._wake(lease_id)

    def lease_left_queue(self, context: RequestContext, lease_id: str) -> None:
        """Look at a lease that has just left the queue. Every engine is told: one knows its caller."""
        _WORD.validate(lease_id)
        self._wake(lease_id)

    def endpoint_started(self, context: RequestContext, host: str) -> list[dict[str, Any]]:
        """Return every binding the endpoint of *host* should hold."""
        _HOST.validate(host)
        with self._database.write() as session:
            endpoints.register(session, host, {"bindings": {}})  # until it says what it holds
            return [
                binding_of(lease).to_dict()
                for lease in leases.bound_to(session.connection(), host)
                if lease.status in HAVING_BINDINGS
            ]

    def endpoint_report(self, context: RequestContext, host: str, report: dict[str, Any]) -> None:
        """Note what an endpoint holds, and see to whatever does not agree with the database."""
        _HOST.validate(host)
        _REPORT.validate(report)
        held = installed(report)
        with self._database.write() as session:
            endpoints.register(session, host, report)
            bound = {lease.port_id: lease for lease in leases.bound_to(session.connection(), host)}
        for port_id, lease in bound.items():
            if lease.status != Status.ACTIVE or port_id not in held:
                self._wake(lease.id)
        for port_id in held.keys() - bound.keys():
            LOG.info("the endpoint of %s holds port %s of no lease: removing it", host, port_id)
            try:
                self._endpoint.remove(host, port_id)
            except AgentCallFailed as error:
                LOG.warning("the next report of %s tries again: %s", host, error)

    def monitor_report(
        self, context: RequestContext, host: str, report: dict[str, Any]
    ) -> dict[str, Any]:
        """Note how the GPUs of a host are, and that its monitor is alive; answer what the monitor is to do."""
        _HOST.validate(host)
        told = GpuReport.from_dict(report)
        with self._database.write() as session:
            gpus.register(
                session,
                host,
                told.gpu_address,
                told.snapshot.gpus,
                readings=told.snapshot.readings,
                interval=told.interval,
                blind=told.snapshot.unavailable,
                problems=told.snapshot.problems,
            )
            interval = settings.get(session, settings.MONITOR_INTERVAL)
        self._advance()
        return {"monitor_interval": interval}

    def daemons_started(self, context: RequestContext, host: str) -> dict[str, Any]:
        """Return all that the GPU host *host* should hold for leases."""
        _HOST.validate(host)
        return self._gpu_hosts.orders(host).to_dict()

    def daemons_report(self, context: RequestContext, host: str, report: dict[str, Any]) -> None:
        """Note what a GPU host holds for leases, and see to whatever does not agree with the database."""
        _HOST.validate(host)
        _DAEMONS_REPORT.validate(report)
        for lease_id in self._gpu_hosts.heard(host, report):
            self._wake(lease_id)
        if not self._gpu_hosts.is_right(host, report):
            try:
                self._gpu_hosts.sync(host)
            except AgentCallFailed as error:
                LOG.warning("the next report of %s tries again: %s", host, error)

    def grant_shown(
        self, context: RequestContext, key: str, address: str, lease_id: str
    ) -> dict[str, str | None]:
        """Redeem a grant that was shown at a gate, and have the fences let its address in; answer why not, if not."""
        _WORD.validate(lease_id)
        _KEY.validate(key)
        shown = redemption.PresentedGrant(key, str(ipaddress.IPv4Address(address)), lease_id)
        try:
            redemption.redeem(self._database, self._keyring, shown)
        except exceptions.GrantRefused as refusal:
            return {"code": refusal.code, "refusal": str(refusal)}
        self._open_fences(lease_id)
        return {"code": None, "refusal": None}

    def _open_fences(self, lease_id: str) -> None:
        """Tell the GPU hosts of a lease now, so that its consumer's first connection finds the way open."""
        with self._database.reading() as connection:
            lease = leases.get(connection, lease_id)
        hosts = {claim.gpu.host_name for claim in lease.claims}
        for host in sorted(hosts):
            try:
                self._gpu_hosts.sync(host)
            except AgentCallFailed as error:
                LOG.warning("the next report of %s lets in who redeemed a grant: %s", host, error)

    def monitor_interval_changed(self, context: RequestContext) -> None:
        """Tell all monitors how often to report."""
        with self._database.read() as session:
            seconds = settings.get(session, settings.MONITOR_INTERVAL)
        self._monitors.report_every(seconds)
