"""What every handler has at hand: the parts of the service, the call, and the reply it makes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol
from urllib.parse import urlencode

from oslo_config import cfg

from gsaas import exceptions
from gsaas.api.estimates import QueueEstimates
from gsaas.api.rbac.decisions import Decisions
from gsaas.api.watchers import Watchers
from gsaas.cloud.base import Cloud
from gsaas.context import RequestContext
from gsaas.db.database import Database
from gsaas.gpgpums.claims import Claims
from gsaas.grants.keyring import Keyring
from gsaas.limits.base import Limits
from gsaas.remoting import base as remoting
from gsaas.remoting.base import Driver


class Engine(Protocol):
    """As much of `gsaas.rpc.engine.EngineClient` as the API uses."""

    def lease_changed(self, context: RequestContext, lease_id: str) -> None:
        """Ask the engine to look at a lease.

        Never raises: the engine's next audit would find the lease, too.
        """

    def monitor_interval_changed(self, context: RequestContext) -> None:
        """Have all monitors told how often to report. Never raises: the answers to their reports tell them, too."""


@dataclass(frozen=True)
class Service:
    """The parts that the API is made of; one per process, shared by its threads."""

    conf: cfg.ConfigOpts
    database: Database
    claims: Claims
    engine: Engine
    cloud: Cloud
    remoting: Driver
    """What new leases use; a lease keeps the driver that it was made for."""
    limits: Limits
    decisions: Decisions
    openapi: Mapping[str, Any]
    watchers: Watchers
    estimates: QueueEstimates
    keyring: Keyring
    """Signs and verifies grants."""

    def driver(self, name: str) -> Driver:
        """Return the remoting driver of a lease. `ValueError` if it was uninstalled meanwhile."""
        return self.remoting if name == self.remoting.name else remoting.load(name, self.conf)


@dataclass(frozen=True)
class Reply:
    """What a handler answers: *body* is made JSON unless it is text already."""

    status: int
    body: Mapping[str, Any] | str
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass
class Call:
    """One request; when a handler sees it, it is authenticated, authorised and valid."""

    service: Service
    context: RequestContext
    base_url: str
    """Where links begin, without a slash at the end."""
    query: dict[str, Any] = field(default_factory=dict)
    body: Any = None
    gone: Callable[[], bool] = lambda: False
    """Has the client hung up?"""

    def allows(self, rule: str, target: Mapping[str, Any] | None = None) -> bool:
        """May the caller do what *rule* guards to *target*, or to things of its own project?"""
        context = self.context
        own = {"project_id": context.project_id, "user_id": context.user_id}
        return self.service.decisions.allows(rule, own if target is None else target, context)

    def authorise(self, rule: str, target: Mapping[str, Any] | None = None) -> None:
        """Return if `allows`; raise `Forbidden` if not."""
        if not self.allows(rule, target):
            roles = ", ".join(sorted(self.context.roles)) or "(none)"
            raise exceptions.Forbidden(rule=rule, roles=roles)

    @property
    def limit(self) -> int:
        """Most rows to answer."""
        most = self.service.conf.api.max_limit
        return min(self.query.get("limit", most), most)

    def link(self, path: str, rel: str = "self") -> dict[str, str]:
        return {"rel": rel, "href": self.base_url + path}

    def next_page(self, path: str, marker: str) -> list[dict[str, str]]:
        """Return the links to the page of the same query that begins after *marker*."""
        kept = {
            name: str(value).lower() if isinstance(value, bool) else value
            for name, value in self.query.items()
        }
        return [self.link(f"{path}?{urlencode(kept | {'marker': marker})}", rel="next")]
