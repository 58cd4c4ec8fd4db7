# SPDX-License-Identifier: Apache-2.0
"""Security events of the API: refused access, grants and tokens, and changes by administrators."""

from __future__ import annotations

import functools
from collections.abc import Callable

import flask

from gsaas import exceptions
from gsaas.api.route import Route
from gsaas.context import RequestContext
from gsaas.notifications import cadf
from gsaas.notifications.cadf import SecurityEvent
from gsaas.notifications.emitter import Notifications

View = Callable[..., flask.Response]

_ACTIONS = {"GET": "read", "POST": "create", "PATCH": "update", "DELETE": "delete"}
"""Method -> CADF's action."""


def audited(view: View, route: Route, notifications: Notifications) -> View:
    """Return *view*, wrapped to report the security events of *route*; *view* itself if nobody receives them."""
    if not notifications.audits:
        return view

    @functools.wraps(view)
    def reporting(**path_parameters: str) -> flask.Response:
        try:
            response = view(**path_parameters)
        except exceptions.GsaasError as refusal:
            if (kind := kind_of(refusal, route)) is not None:
                notifications.audit(_event(kind, route, path_parameters, refusal))
            raise
        if route.changes is not None:
            notifications.audit(_event(cadf.CHANGE, route, path_parameters, None))
        return response

    return reporting


def kind_of(refusal: exceptions.GsaasError, route: Route) -> str | None:
    """Return which type of security event a *refusal* is; None if it is not one."""
    match refusal:
        case exceptions.GrantRefused():
            return cadf.GRANT
        case exceptions.Unauthorized():
            return cadf.AUTHENTICATE
        case exceptions.Forbidden() | exceptions.NoProject():
            return cadf.ACCESS
        case exceptions.NotFound() if refusal.facts.get("foreign"):
            return cadf.ACCESS
        case _:
            return None if route.changes is None else cadf.CHANGE


def _event(
    kind: str,
    route: Route,
    path_parameters: dict[str, str],
    refusal: exceptions.GsaasError | None,
) -> SecurityEvent:
    request = flask.request
    caller: RequestContext | None = flask.g.get("caller")
    target_type, target_id = _target(route, path_parameters)
    address = request.remote_addr
    if kind == cadf.GRANT:  # the consumer presented it, to the service that is the caller
        body = flask.g.body["grant"]
        address, target_type = body["address"], cadf.LEASE
        target_id = (refusal and refusal.facts.get("lease_id")) or body.get("lease_id")
    status = getattr(refusal, "status", route.returns.status)
    return SecurityEvent(
        event_type=kind,
        action="authenticate" if kind in (cadf.AUTHENTICATE, cadf.GRANT) else _action(route),
        succeeded=refusal is None,
        code=None if refusal is None else refusal.code,
        address=address,
        agent=request.user_agent.string or None,
        user_id=caller.user_id if caller else None,
        project_id=caller.project_id if caller else None,
        request_id=request.environ["openstack.request_id"],
        target_type=target_type,
        target_id=target_id,
        status=status,
        path=request.path,
    )


def _action(route: Route) -> str:
    """Return CADF's action for the request; a PATCH that disables or enables something has an action of its own."""
    if route.changes is not None and route.method == "POST":
        return "update"
    if route.changes in ("gpus/gpu", "hosts/host") and (body := flask.g.get("body")) is not None:
        return "disable" if body[route.changes.partition("/")[2]]["disabled"] else "enable"
    if route.method == "GET" and not route.path.endswith("}"):
        return "read/list"
    return _ACTIONS[route.method]


def _target(route: Route, path_parameters: dict[str, str]) -> tuple[str, str | None]:
    """Return the type and the id of what the request is about."""
    if route.changes is not None:
        return f"{cadf.SERVICE}/{route.changes}", next(iter(path_parameters.values()), None)
    if "lease_id" in path_parameters:
        return cadf.LEASE, path_parameters["lease_id"]
    collection = route.path.split("/")[2]
    return f"{cadf.SERVICE}/{collection}", next(iter(path_parameters.values()), None)
