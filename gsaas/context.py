# SPDX-License-Identifier: Apache-2.0
"""The caller of an API request, as Keystone or a token file describes it."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from oslo_context import context


class RequestContext(context.RequestContext):
    """The oslo.context of one request: the caller's user, project, roles and token, and the request's id.

    The API's authentication makes it. `gsaas.api.rbac` decides by `roles` what the caller may do.
    """

    received: Mapping[str, Any] = MappingProxyType({})
    """The context as a message carried it, with everything that is no attribute; empty if none did."""

    @functools.cached_property
    def identity(self) -> tuple[object, ...]:
        """Everything about the caller that rules can depend on, as a hashable value: a key to cache decisions under.

        Cached itself, because a caller does not change during a request.
        """
        values = self.to_policy_values().values()
        return tuple([tuple(value) if isinstance(value, list) else value for value in values])

    @classmethod
    def of(
        cls, *, user_id: str, project_id: str, roles: list[str], **request_ids: Any
    ) -> RequestContext:
        """Return the context of a caller whom something other than Keystone authenticated.

        *request_ids* are `request_id` and `global_request_id`; without them, a new request id is made.
        """
        return cls(user_id=user_id, project_id=project_id, roles=list(roles), **request_ids)
