# SPDX-License-Identifier: Apache-2.0
"""Scheduling policies: which are installed, which ones a request may name, and which one is the default.

The description of a policy is the docstring of its module, so that operators read the same text everywhere.
"""

from __future__ import annotations

import inspect
from typing import Any

from gsaas import exceptions
from gsaas.api.request import ApiRequest, ApiResponse
from gsaas.db import settings
from gsaas.db.database import retried
from gsaas.gpgpums import policies
from gsaas.gpgpums.policies.base import Policy

SOURCE = "Source:"
"""The line of such a docstring after which the source of the policy follows."""


def index(request: ApiRequest) -> ApiResponse:
    """List the installed policies, and show which one is the default."""
    setting = _setting(request)
    known = sorted(request.service.claims.policies.known)
    return ApiResponse(200, {"policies": [_policy(request, name, setting) for name in known]})


def show(request: ApiRequest, policy: str) -> ApiResponse:
    """Show one policy with its full description."""
    if policy not in request.service.claims.policies.known:
        raise exceptions.NotFound(noun="policy", id=policy)
    return _shown(request, policy, _setting(request))


@retried
def update(request: ApiRequest) -> ApiResponse:
    """Set the default policy, or with null restore the one of the configuration; show the new default.

    Every worker uses it from its next request on.
    """
    new_default = request.body["policies"]["default"]
    selection = request.service.claims.policies
    if new_default is not None:
        policies.find(new_default, selection.known)
    with request.service.database.write() as session:
        settings.put(session, settings.DEFAULT_POLICY, new_default, request.context.user_id)
    return _shown(request, selection.default(new_default).name, new_default)


def _setting(request: ApiRequest) -> Any:
    with request.service.database.read() as session:
        return settings.get(session, settings.DEFAULT_POLICY)


def _shown(request: ApiRequest, name: str, setting: Any) -> ApiResponse:
    policy = request.service.claims.policies.known[name]
    about = _docstring(policy).partition("\n")[2].partition(f"\n{SOURCE}")[0].strip()
    return ApiResponse(200, {"policy": _policy(request, name, setting) | {"about": about}})


def _policy(request: ApiRequest, name: str, setting: Any) -> dict[str, Any]:
    selection = request.service.claims.policies
    policy = selection.known[name]
    return {
        "name": name,
        "default": name == selection.default(setting).name,
        "configured": name == selection.configured,
        "allowed": selection.allows(name, setting),
        "source": policy.source,
        "description": _docstring(policy).partition("\n")[0].removeprefix(f"{name}:").strip(),
    }


def _docstring(policy: Policy) -> str:
    """Return the docstring of the policy's module."""
    return inspect.getdoc(inspect.getmodule(type(policy))) or ""
