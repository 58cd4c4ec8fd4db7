"""Who asks: the caller of an API request, as Keystone (or the standalone token file) describes them."""

from __future__ import annotations

import functools

from oslo_context import context


class RequestContext(context.RequestContext):
    """The oslo.context of one request; `roles` decide what `gsaas.api.rbac` allows.

    Made by the API's authentication from what Keystone says, or from a token file in standalone.
    """

    @functools.cached_property
    def identity(self) -> tuple[object, ...]:
        """All that rules may ask of the caller, as a value to look answers up by. It does not change in a request."""
        return tuple(map(_plain, self.to_policy_values().values()))

    @classmethod
    def of(
        cls, *, user_id: str, project_id: str, roles: list[str], **request_ids: str | None
    ) -> RequestContext:
        """A context of a caller known by other means than Keystone; without *request_ids*, a new one is made."""
        return cls(user_id=user_id, project_id=project_id, roles=list(roles), **request_ids)


def _plain(value: object) -> object:
    return tuple(value) if isinstance(value, list) else value
