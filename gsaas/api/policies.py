"""Scheduling policies: which there are, which a request may name, and which serves the others.

What a policy is good for is told in its file, so that operators read the same everywhere.
"""

from __future__ import annotations

import inspect
from typing import Any

from gsaas import exceptions
from gsaas.api.service import Call, Reply
from gsaas.db import settings
from gsaas.db.database import retried
from gsaas.gpgpums import policies
from gsaas.gpgpums.policies.base import Policy

SOURCE = "Source:"


def index(call: Call) -> Reply:
    """List the policies that work here, and say which is used when none is named."""
    setting = _setting(call)
    known = sorted(call.service.claims.choice.known)
    return Reply(200, {"policies": [_policy(call, name, setting) for name in known]})


def show(call: Call, policy: str) -> Reply:
    """Show one policy, and what there is to know about it."""
    if policy not in call.service.claims.choice.known:
        raise exceptions.NotFound(noun="policy", id=policy)
    return _shown(call, policy, _setting(call))


@retried
def update(call: Call) -> Reply:
    """Set the default policy, or with null go back to the one of the configuration; show it.

    Every worker uses it from its next request on.
    """
    wanted = call.body["policies"]["default"]
    choice = call.service.claims.choice
    if wanted is not None:
        policies.find(wanted, choice.known)
    with call.service.database.write() as session:
        settings.put(session, settings.DEFAULT_POLICY, wanted, call.context.user_id)
    return _shown(call, choice.default(wanted).name, wanted)


def _setting(call: Call) -> Any:
    with call.service.database.read() as session:
        return settings.get(session, settings.DEFAULT_POLICY)


def _shown(call: Call, name: str, setting: Any) -> Reply:
    policy = call.service.claims.choice.known[name]
    about = _text(policy).partition("\n")[2].partition(f"\n{SOURCE}")[0].strip()
    return Reply(200, {"policy": _policy(call, name, setting) | {"about": about}})


def _policy(call: Call, name: str, setting: Any) -> dict[str, Any]:
    choice = call.service.claims.choice
    policy = choice.known[name]
    return {
        "name": name,
        "default": name == choice.default(setting).name,
        "configured": name == choice.configured,
        "allowed": choice.allows(name, setting),
        "source": policy.source,
        "description": _text(policy).partition("\n")[0].removeprefix(f"{name}:").strip(),
    }


def _text(policy: Policy) -> str:
    """What the policy's file says of itself."""
    return inspect.getdoc(inspect.getmodule(type(policy))) or ""
