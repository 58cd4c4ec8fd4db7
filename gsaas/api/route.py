# SPDX-License-Identifier: Apache-2.0
"""One route of the API: its URL, method, handler, access rule and schemas."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from gsaas.api import microversions
from gsaas.api.request import ApiResponse
from gsaas.api.schemas import common
from gsaas.api.validation import Schema

PATH_PARAMETER = re.compile(r"{(\w+)}")
"""A parameter in a route's path; the group is its name."""


@dataclass(frozen=True, eq=False)
class Route:
    """One method of one URL. The names in braces in *path* are keyword arguments of the handler."""

    method: str
    path: str
    handler: Callable[..., ApiResponse]
    rule: str | None
    """The access rule that guards it; None: it needs no token."""
    status: int
    """The status of a response without an error."""
    response: Mapping[str, Any] | None
    """The schema of the response's body; None for a response that is always text."""
    query: Mapping[str, Any] = field(default_factory=lambda: common.query({}))
    """The schema of the query string."""
    body: Mapping[str, Any] | None = None
    """The schema of the request's body; None if it has none."""
    errors: tuple[int, ...] = ()
    """Error statuses other than those that `error_statuses` derives from the other attributes."""
    other_statuses: tuple[int, ...] = ()
    """Further statuses of a response without an error."""
    text: bool = False
    """Whether the response may also be plain text."""
    exact: bool = False
    """Whether it is served in exactly this spelling of its path, without a slash at the end or escapes."""
    repeatable: bool = False
    """Whether it takes an Idempotency-Key, with which a client may send a request again."""
    since: str = microversions.OLDEST
    """The first microversion that has it."""
    changes: str | None = None
    """What administrators change with it, such as `hosts/host`: each request is a security event; None: nothing."""

    @cached_property
    def query_schema(self) -> Schema:
        """The compiled schema of the query string."""
        return Schema(self.query)

    @cached_property
    def body_schema(self) -> Schema | None:
        """The compiled schema of the request's body; None if it has none."""
        return None if self.body is None else Schema(self.body)

    def error_statuses(self) -> set[int]:
        """Return every error status that this route may respond with."""
        statuses = {400, 500, 503, *self.errors}
        if self.rule:
            statuses |= {401, 403, 406}
        if PATH_PARAMETER.search(self.path):
            statuses |= {404}
        if self.body is not None:
            statuses |= {413, 415}
        return statuses
