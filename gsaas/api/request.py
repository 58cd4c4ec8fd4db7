# SPDX-License-Identifier: Apache-2.0
"""What a handler receives and returns: one HTTP request, and the response to it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

from gsaas import exceptions
from gsaas.api import microversions
from gsaas.api.service import ApiService
from gsaas.context import RequestContext


@dataclass(frozen=True)
class ApiResponse:
    """What a handler returns. A *body* that is a string is sent as text, any other as JSON."""

    status: int
    body: Mapping[str, Any] | str
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Connection:
    """How a request arrived."""

    base_url: str
    """The start of every link, without a slash at the end."""
    server_port: int
    """The TCP port that received it; 0 for a socket without one."""
    began: float
    """When it arrived, as `time.perf_counter` counts: before its caller was authenticated."""
    is_disconnected: Callable[[], bool]
    """Returns whether the client has closed its connection."""


@dataclass
class ApiRequest:
    """One HTTP request. A handler receives it authenticated, authorised and validated."""

    service: ApiService
    context: RequestContext
    connection: Connection
    microversion: str = microversions.OLDEST
    """The microversion that it asks for."""
    query: dict[str, Any] = field(default_factory=dict)
    body: Any = None
    idempotency_key: str | None = None
    """What its client calls it, so that it can be repeated without a second effect."""

    def supports(self, since: str) -> bool:
        """Return whether the request is for microversion *since* or a newer one."""
        return microversions.supports(self.microversion, since)

    @property
    def project_id(self) -> str:
        """The caller's project. Raises `NoProject` without one, which `app` has refused before any handler runs."""
        if self.context.project_id is None:
            raise exceptions.NoProject(scope="no project")
        return self.context.project_id

    @property
    def page_size(self) -> int:
        """The number of rows to return at most: the query's `limit`, but no more than `[api]max_limit`."""
        maximum: int = self.service.conf.api.max_limit
        wanted: int = self.query.get("limit", maximum)
        return min(wanted, maximum)

    @property
    def sort(self) -> list[tuple[str, bool]]:
        """The order that the query asks for: pairs of a key, and whether it is descending. Raises `BadRequest`."""
        keys, directions = self.query.get("sort_key", []), self.query.get("sort_dir", [])
        if len(directions) > len(keys):
            raise exceptions.BadRequest(
                reason=f"sort_dir is given {len(directions)} times, sort_key {len(keys)} times; each sort_dir is the "
                "direction of the sort_key at the same place"
            )
        return [
            (key, direction == "desc")
            for key, direction in itertools.zip_longest(keys, directions, fillvalue="asc")
        ]

    def allows(self, rule: str, target: Mapping[str, Any] | None = None) -> bool:
        """Return whether *rule* allows the caller to act on *target*.

        *target* has a `project_id` and a `user_id`; without it, the question is about resources of the caller's own.
        """
        context = self.context
        own = {"project_id": context.project_id, "user_id": context.user_id}
        return self.service.decisions.allows(rule, own if target is None else target, context)

    def authorise(self, rule: str, target: Mapping[str, Any] | None = None) -> None:
        """Raise `Forbidden` unless `allows` returns True for the same arguments."""
        if not self.allows(rule, target):
            roles = ", ".join(sorted(self.context.roles)) or "(none)"
            raise exceptions.Forbidden(rule=rule, roles=roles)

    def link(self, path: str, rel: str = "self") -> dict[str, str]:
        """Return a link to *path* of this API, as responses contain it: `{"rel": ..., "href": ...}`."""
        return {"rel": rel, "href": self.connection.base_url + path}

    def next_page(self, path: str, marker: str) -> list[dict[str, str]]:
        """Return the links to the next page of the same query: the rows after *marker*."""
        query = {
            name: str(value).lower() if isinstance(value, bool) else value
            for name, value in self.query.items()
        }
        encoded = urlencode(query | {"marker": marker}, doseq=True)
        return [self.link(f"{path}?{encoded}", rel="next")]
