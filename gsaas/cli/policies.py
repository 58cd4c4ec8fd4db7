"""`gsaas policies`: the ways in which GPUs can be chosen."""

from __future__ import annotations

from types import SimpleNamespace

from gsaas.cli.output import print_json
from gsaas.cli.tables import table

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gsaas.client import Client


def policies(client: Client, args: SimpleNamespace) -> int:
    """List the policies that -policy may name."""
    known = client.request("GET", "/v1/policies")["policies"]
    if args.f == "json":
        print_json(known)
        return 0
    rows = [
        (policy["name"] + (" (default)" if policy["default"] else ""), policy["description"])
        for policy in known
    ]
    print(table(("policy", "rule"), rows))
    return 0
