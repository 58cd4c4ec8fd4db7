"""`gsaas policies`, `gsaas policy`: the ways in which GPUs can be chosen, and the one by default."""

from __future__ import annotations

from types import SimpleNamespace
from urllib.parse import quote

from gsaas.cli.output import print_json
from gsaas.cli.parser import UsageError
from gsaas.cli.tables import facts, table

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from gsaas.client import Client

PATH = "/v1/policies"


def policies(client: Client, args: SimpleNamespace) -> int:
    """List the policies that work here, and say which -policy may name."""
    known = client.request("GET", PATH)["policies"]
    if args.f == "json":
        print_json(known)
        return 0
    rows = [
        (policy["name"], _standing(policy), policy["source"], policy["description"])
        for policy in known
    ]
    print(table(("policy", "", "from", "rule"), rows))
    return 0


def policy(client: Client, args: SimpleNamespace) -> int:
    """Tell about one policy; or about the default, which may be set before."""
    if args.default is not None and args.reset:
        raise UsageError("-default and -reset do not go together")
    if args.name is not None and (args.default is not None or args.reset):
        raise UsageError("a NAME asks about a policy; -default=NAME makes it the default")
    if args.default is not None or args.reset:
        shown = client.request("PATCH", PATH, {"policies": {"default": args.default}})["policy"]
    else:
        name = args.name or _default(client)
        shown = client.request("GET", f"{PATH}/{quote(name, safe='')}")["policy"]
    if args.f == "json":
        print_json(shown)
        return 0
    print(f"{shown['name']}: {shown['description']}\n")
    if shown["about"]:
        print(f"{shown['about']}\n")
    pairs = [("here", _standing(shown) or "not for requests to name"), ("from", shown["source"])]
    print(facts([(word, value) for word, value in pairs if value]))
    return 0


def _default(client: Client) -> str:
    known = client.request("GET", PATH)["policies"]
    return next(policy["name"] for policy in known if policy["default"])


def _standing(policy: dict[str, Any]) -> str:
    """Whether it is the default, or may be asked for at least."""
    if policy["default"]:
        return "default" if policy["configured"] else "default (set by an admin)"
    if policy["configured"]:
        return "configured default"
    return "allowed" if policy["allowed"] else ""
