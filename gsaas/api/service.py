# SPDX-License-Identifier: Apache-2.0
"""The parts of the service that handlers use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from oslo_config import cfg
from oslo_middleware.healthcheck.pluginbase import HealthcheckBaseExtension

from gsaas.api.decisions import DecisionCache
from gsaas.api.estimates import QueueEstimates
from gsaas.api.subscriptions import LeaseSubscriptions
from gsaas.cloud.base import Cloud
from gsaas.context import RequestContext
from gsaas.db.database import Database
from gsaas.gpgpums.claims import Claims
from gsaas.gpgpums.plain_servers import PlainServers
from gsaas.gpgpums.stored_leases import StoredLeases
from gsaas.grants.keyring import Keyring
from gsaas.limits.base import Limits
from gsaas.notifications.emitter import Notifications
from gsaas.remoting import base as remoting
from gsaas.remoting.base import RemotingDriver


class EngineNotifier(Protocol):
    """The part of `gsaas.rpc.engine.EngineClient` that the API uses: notifications to the engine.

    Neither method raises: a notification that is lost only delays the engine until its next audit.
    """

    def lease_changed(self, context: RequestContext, lease_id: str) -> None:
        """Ask the engine to process a lease now."""

    def monitor_interval_changed(self, context: RequestContext) -> None:
        """Ask the engine to send all monitors their new report interval.

        Monitors also receive it in the reply to their next report.
        """


@dataclass(frozen=True)
class ApiService:
    """The parts that handlers use; one per process, shared by its threads."""

    conf: cfg.ConfigOpts
    database: Database
    claims: Claims
    engine: EngineNotifier
    cloud: Cloud
    remoting: RemotingDriver
    """The remoting driver of new leases; a lease keeps the driver that it was created for."""
    limits: Limits
    decisions: DecisionCache
    openapi: Mapping[str, Any]
    """The OpenAPI document."""
    subscriptions: LeaseSubscriptions
    estimates: QueueEstimates
    keyring: Keyring
    """Signs and verifies grants."""
    notifications: Notifications
    stored_leases: StoredLeases
    plain_servers: PlainServers | None
    """None: servers that GSaaS has not made get no cGPUs."""
    health_backends: Sequence[HealthcheckBaseExtension]
    """What the health check asks besides the database."""

    def driver(self, name: str) -> RemotingDriver:
        """Return the remoting driver called *name*; raises `ValueError` if it is not installed."""
        return self.remoting if name == self.remoting.name else remoting.load(name, self.conf)
