"""What is known of one route: its URL, method, handler, access rule and schemas."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from gsaas.api.schemas import common
from gsaas.api.service import Reply
from gsaas.api.validation import Schema


@dataclass(frozen=True, eq=False)
class Route:
    """One method of one URL. `{words}` in the path are arguments of the handler."""

    method: str
    path: str
    handler: Callable[..., Reply]
    rule: str | None
    status: int
    """Of the reply when all goes well."""
    reply: Mapping[str, Any] | None
    """Schema; None for a reply that is always text."""
    query: Mapping[str, Any] = field(default_factory=lambda: common.query({}))
    body: Mapping[str, Any] | None = None
    refusals: tuple[int, ...] = ()
    """Statuses that do not follow from the rest, as those in `openapi.refusals` do."""
    others: tuple[int, ...] = ()
    """Further statuses of the same reply when all goes well."""
    text: bool = False
    """The reply may be text instead."""

    @cached_property
    def query_schema(self) -> Schema:
        return Schema(self.query)

    @cached_property
    def body_schema(self) -> Schema | None:
        return None if self.body is None else Schema(self.body)
