"""Who asks: the caller of an API request, as Keystone (or the standalone token file) describes them."""

from __future__ import annotations

from oslo_context import context


class RequestContext(context.RequestContext):
    """The oslo.context of one request; `roles` decide what `gsaas.api.rbac` allows.

    Made by the API's authentication from what Keystone says, or from a token file in standalone.
    """

    @classmethod
    def of(cls, *, user_id: str, project_id: str, roles: list[str]) -> RequestContext:
        """A context of a caller known by other means than Keystone."""
        return cls(user_id=user_id, project_id=project_id, roles=list(roles))
