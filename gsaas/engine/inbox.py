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

from gsaas import rpc
from gsaas.context import RequestContext
from gsaas.db import endpoints, leases
from gsaas.db.database import Database
from gsaas.db.gpus import GpuInfo
from gsaas.db.gpus import register as register_gpus
from gsaas.engine import wiring
from gsaas.engine.callers import Callers
from gsaas.engine.driver import installed
from gsaas.lifecycle import Status
from gsaas.rpc.engine import EngineClient
from gsaas.rpc.rodvr import EndpointClient, Unconfirmed

LOG = logging.getLogger(__name__)

_NAME = {"type": "string", "minLength": 1, "maxLength": 255}
_WORD = jsonschema.Draft202012Validator(_NAME)
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
        },
    }
)
_GPUS = jsonschema.Draft202012Validator(
    {
        "type": "array",
        "items": {
            "type": "object",
            "required": ["uuid", "device_index", "model", "memory_mb", "daemon_port"],
            "additionalProperties": False,
            "properties": {
                "uuid": {"type": "string", "pattern": r"^(GPU|MIG)-[0-9A-Za-z./-]{1,92}$"},
                "device_index": {"type": "integer", "minimum": 0},
                "model": _NAME,
                "memory_mb": {"type": "integer", "minimum": 1},
                "daemon_port": {"type": "integer", "minimum": 1, "maximum": 65535},
                "parent_uuid": {"type": ["string", "null"], "maxLength": 96},
            },
        },
    }
)


class Inbox:
    """Serves the topic of the engine; `gsaas.rpc.engine.EngineClient` is its other half."""

    target = rpc.Target(version=EngineClient.VERSION)

    def __init__(
        self,
        database: Database,
        endpoint: EndpointClient,
        wake: Callable[[str], None],
        callers: Callers,
    ) -> None:
        self._database = database
        self._endpoint = endpoint
        self._wake = wake
        self._callers = callers

    def lease_changed(self, context: RequestContext, lease_id: str) -> None:
        """Look at a lease now. Who asked for it is kept for as long as its server is not made."""
        _WORD.validate(lease_id)
        self._callers.keep(lease_id, context)
        self._wake(lease_id)

    def endpoint_started(self, context: RequestContext, host: str) -> list[dict[str, Any]]:
        """Return every binding the endpoint of *host* should hold."""
        _WORD.validate(host)
        with self._database.write() as session:
            endpoints.register(session, host, {"bindings": {}})  # until it says what it holds
            return [
                wiring.binding(lease).to_dict()
                for lease in leases.bound_to(session, host)
                if lease.status in wiring.WIRED
            ]

    def endpoint_report(self, context: RequestContext, host: str, report: dict[str, Any]) -> None:
        """Note what an endpoint holds, and see to whatever does not agree with the database."""
        _WORD.validate(host)
        _REPORT.validate(report)
        held = installed(report)
        with self._database.write() as session:
            endpoints.register(session, host, report)
            bound = {lease.port_id: lease for lease in leases.bound_to(session, host)}
        for port_id, lease in bound.items():
            if lease.status != Status.ACTIVE or port_id not in held:
                self._wake(lease.id)
        for port_id in held.keys() - bound.keys():
            LOG.info("the endpoint of %s holds port %s of no lease: removing it", host, port_id)
            try:
                self._endpoint.remove(host, port_id)
            except Unconfirmed as error:
                LOG.warning("the next report of %s tries again: %s", host, error)

    def gpus_report(
        self,
        context: RequestContext,
        host: str,
        gpu_address: str,
        gpus: list[dict[str, Any]],
    ) -> None:
        """Note the GPUs of a host, and that its monitor is alive."""
        _WORD.validate(host)
        _GPUS.validate(gpus)
        address = str(ipaddress.IPv4Address(gpu_address))
        with self._database.write() as session:
            register_gpus(session, host, address, [GpuInfo(**gpu) for gpu in gpus])
