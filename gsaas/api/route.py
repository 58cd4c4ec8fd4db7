# SPDX-License-Identifier: Apache-2.0
"""One route of the API: its URL, method, handler, access rule and schemas."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from gsaas.api import microversions, newer_fields
from gsaas.api.request import ApiResponse
from gsaas.api.schemas import common
from gsaas.api.validation import Schema

PATH_PARAMETER = re.compile(r"{(\w+)}")
"""A parameter in a route's path; the group is its name."""


@dataclass(frozen=True, eq=False)
class Takes:
    """What a request to a route may have besides the parameters of its path."""

    query: Mapping[str, Any] = field(default_factory=lambda: common.query({}))
    """The schema of the query string."""
    body: Mapping[str, Any] | None = None
    """The schema of the body; None if it has none."""
    repeatable: bool = False
    """Whether it may have an Idempotency-Key, with which a client may send a request again."""

    @cached_property
    def query_schema(self) -> Schema:
        """The compiled schema of the query string."""
        return Schema(self.query)

    @cached_property
    def body_schema(self) -> Schema | None:
        """The compiled schema of the body; None if it has none."""
        return None if self.body is None else Schema(self.body)


@dataclass(frozen=True, eq=False)
class Returns:
    """What a route answers."""

    status: int
    """The status of an answer without an error."""
    schema: Mapping[str, Any] | None = None
    """The schema of its body; None for one that is always text."""
    others: tuple[int, ...] = ()
    """Further statuses of answers without an error."""
    errors: tuple[int, ...] = ()
    """Error statuses other than those that `Route.error_statuses` derives from the rest of the route."""
    text: bool = False
    """Whether the body may also be plain text."""

    @cached_property
    def _pruners(self) -> Mapping[str, newer_fields.Prune | None]:
        """Microversion -> what leaves newer fields out of a body; None if it has none."""
        return {
            version: newer_fields.pruner(self.schema or {}, version)
            for version in microversions.versions_since(microversions.OLDEST)
        }

    def prune(self, body: Mapping[str, Any] | str, version: str) -> Mapping[str, Any] | str:
        """Return *body* without the fields that microversion *version* does not have."""
        prune = self._pruners[version]
        pruned: Mapping[str, Any] | str = body if prune is None else prune(body)
        return pruned

    @property
    def statuses(self) -> tuple[int, ...]:
        """Every status of an answer without an error."""
        return (self.status, *self.others)


@dataclass(frozen=True, eq=False)
class Route:
    """One method of one URL. The names in braces in *path* are keyword arguments of the handler."""

    method: str
    path: str
    handler: Callable[..., ApiResponse]
    rule: str | None
    """The access rule that guards it; None: it needs no token."""
    returns: Returns
    takes: Takes = field(default_factory=Takes)
    since: str = microversions.OLDEST
    """The first microversion that has it."""
    changes: str | None = None
    """What administrators change with it, such as `hosts/host`: each request is a security event; None: nothing."""
    exact: bool = False
    """Whether it is served in exactly this spelling of its path, without a slash at the end or escapes."""

    def error_statuses(self) -> set[int]:
        """Return every error status that this route may answer with."""
        statuses = {400, 500, 503, *self.returns.errors}
        if self.rule:
            statuses |= {401, 403, 406}
        if PATH_PARAMETER.search(self.path):
            statuses |= {404}
        if self.takes.body is not None:
            statuses |= {411, 413, 415}
        return statuses
