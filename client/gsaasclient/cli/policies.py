# SPDX-License-Identifier: Apache-2.0
"""`gsaas policies` and `gsaas policy`: the policies by which GPUs are selected, and the default one."""

from __future__ import annotations

from types import SimpleNamespace
from urllib.parse import quote

from gsaasclient.cli.columns import Column, select
from gsaasclient.cli.output import print_list, print_resource
from gsaasclient.cli.parser import UsageError
from gsaasclient.cli.tables import INDENT, WIDTH, cell, clip, facts, table, width

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from gsaasclient import Client

PATH = "/v1/policies"

NAME = Column("name", "policy")
DEFAULT = Column("default", optional=True)
CONFIGURED = Column("configured", optional=True)
ALLOWED = Column("allowed", optional=True)
SOURCE = Column("source", "from")
DESCRIPTION = Column("description", "rule")
LIST = (
    NAME,
    Column("use", "", lambda policy: _use(policy)),
    SOURCE,
    DESCRIPTION,
    *(DEFAULT, CONFIGURED, ALLOWED),
)
FIELDS = (
    NAME,
    Column("use", "here", lambda policy: _use(policy)),
    SOURCE,
    DESCRIPTION,
    Column("about"),
    *(DEFAULT, CONFIGURED, ALLOWED),
)


def policies(client: Client, args: SimpleNamespace) -> int:
    """List the policies, and which of them -policy may name."""
    columns = select(LIST, args.c)
    found = client.request("GET", PATH)["policies"]
    print_list(args, columns, found, found, lambda: _describe_all(found))
    return 0


def _describe_all(found: list[dict[str, Any]]) -> str:
    """Return the policies with their rules, which are too long for a column: they go on under their beginnings."""
    from textwrap import wrap

    heads = table(("policy", ""), [(policy["name"], _use(policy)) for policy in found]).splitlines()
    columns = max(map(width, heads)) + len(INDENT)
    lines = [f"{clip(heads[0], columns, fill=True)}rule"]
    for policy, head in zip(found, heads[1:], strict=True):
        first, *more = wrap(cell(policy["description"]), WIDTH - columns)
        lines.append(clip(head, columns, fill=True) + first)
        lines += [" " * columns + line for line in more]
    return "\n".join(lines)


def policy(client: Client, args: SimpleNamespace) -> int:
    """Show one policy, or the default one; -default and -reset first change which policy is the default."""
    if args.default is not None and args.reset:
        raise UsageError("-default and -reset cannot be combined")
    if args.name is not None and (args.default is not None or args.reset):
        raise UsageError(
            "NAME shows a policy, -default=NAME makes it the default: give one of the two"
        )
    columns = select(FIELDS, args.c)
    if args.default is not None or args.reset:
        shown = client.request("PATCH", PATH, {"policies": {"default": args.default}})["policy"]
    else:
        name = args.name or _default_name(client)
        shown = client.request("GET", f"{PATH}/{quote(name, safe='')}")["policy"]
    print_resource(args, columns, shown, shown, lambda: _describe(shown))
    return 0


def _describe(policy: dict[str, Any]) -> str:
    parts = [f"{policy['name']}: {policy['description']}"]
    if policy["about"]:
        parts.append(policy["about"])
    pairs = [("here", _use(policy) or "not for requests to name"), ("from", policy["source"])]
    parts.append(facts([(name, value) for name, value in pairs if value]))
    return "\n\n".join(parts)


def _default_name(client: Client) -> str:
    found: list[dict[str, Any]] = client.request("GET", PATH)["policies"]
    return next(str(policy["name"]) for policy in found if policy["default"])


def _use(policy: dict[str, Any]) -> str:
    """Return whether the policy is the default, or at least allowed in requests; empty if it is neither."""
    if policy["default"]:
        return "default" if policy["configured"] else "default (set by an admin)"
    if policy["configured"]:
        return "configured default"
    return "allowed" if policy["allowed"] else ""
