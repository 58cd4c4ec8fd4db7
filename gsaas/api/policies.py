"""Which scheduling policies a request may name."""

from __future__ import annotations

import inspect

from gsaas.api.service import Call, Reply
from gsaas.gpgpums import policies


def index(call: Call) -> Reply:
    """List the policies that are installed, and say which is used when none is named."""
    default = call.service.conf.gpgpums.policy
    shown = [
        {"name": name, "default": name == default, "description": _description(name)}
        for name in policies.names()
    ]
    return Reply(200, {"policies": shown})


def _description(name: str) -> str:
    """The first line of what the policy's file says of itself, without its name."""
    module = inspect.getmodule(type(policies.load(name)))
    first_line = (inspect.getdoc(module) or "").partition("\n")[0]
    return first_line.removeprefix(f"{name}:").strip()
