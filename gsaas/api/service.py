# SPDX-License-Identifier: Apache-2.0
"""The parts of the service that handlers use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from oslo_config import cfg

from gsaas import limits
from gsaas.api import health_backends, rbac
from gsaas.api.decisions import DecisionCache
from gsaas.api.estimates import QueueEstimates
from gsaas.api.subscriptions import LeaseSubscriptions
from gsaas.cloud.base import Cloud
from gsaas.context import RequestContext
from gsaas.db.database import Database
from gsaas.db.stored_leases import StoredLeases
from gsaas.gpgpums.claims import Claims
from gsaas.gpgpums.lease_end import EndPolicy
from gsaas.gpgpums.plain_servers import PlainServers
from gsaas.grants import keyring
from gsaas.notifications.emitter import Notifications
from gsaas.objects.prices import Prices
from gsaas.remoting.drivers import Drivers


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


class ApiService:
    """The parts that handlers use; one per process, shared by its threads.

    *drivers* are the remoting drivers; a lease keeps the driver that it was created for.
    """

    def __init__(
        self,
        conf: cfg.ConfigOpts,
        *,
        database: Database,
        claims: Claims,
        engine: EngineNotifier,
        cloud: Cloud,
        drivers: Drivers,
        subscriptions: LeaseSubscriptions | None = None,
        notifications: Notifications | None = None,
    ) -> None:
        """Make the other parts as *conf* describes them; raises `ValueError` for one that cannot be used."""
        self.conf = conf
        self.database = database
        self.claims = claims
        self.engine = engine
        self.cloud = cloud
        self.drivers = drivers
        self.subscriptions = subscriptions or LeaseSubscriptions(conf.queue.long_polls)
        self.notifications = notifications or Notifications(conf, database)
        self.limits = limits.load(conf)
        usage = conf["usage"]  # `conf.usage` is a text of oslo.config
        self.prices = Prices.read(usage.prices, usage.currency)
        self.decisions = DecisionCache(rbac.enforcer(conf))
        self.estimates = QueueEstimates(database, claims)
        self.end_policy = EndPolicy(conf.leases.longest_duration, conf.leases.default_duration)
        """Which ends leases may have."""
        self.keyring = keyring.from_conf(conf)
        """Signs and verifies grants."""
        self.stored_leases = StoredLeases(database, conf.api.most_leases_stored)
        self.plain_servers = PlainServers.from_conf(
            conf,
            database,
            claims,
            cloud,
            drivers,
            quotas=self.limits,
            stored=self.stored_leases,
            may_launch=self.decisions.may_launch,
        )
        """None: servers that GSaaS has not made get no cGPUs."""
        self.health_backends = health_backends.load(conf)
        """What the health check asks besides the database."""
        self.openapi: Mapping[str, Any] = {}
        """The OpenAPI document, which follows from the routes."""
