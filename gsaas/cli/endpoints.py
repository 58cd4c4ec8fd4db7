"""`gsaas endpoints`: what the RODVR endpoints say of themselves."""

from __future__ import annotations

from types import SimpleNamespace

from gsaas.cli.output import print_json
from gsaas.cli.paging import pages
from gsaas.cli.tables import INDENT, cell, table

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from gsaas.client import Client


def endpoints(client: Client, args: SimpleNamespace) -> int:
    """List the endpoints, with whatever keeps one of them from its work."""
    if args.host:
        from urllib.parse import quote

        path = f"/v1/endpoints/{quote(args.host, safe='')}"
        endpoints = [client.request("GET", path)["endpoint"]]
    else:
        endpoints = pages(client, "/v1/endpoints", "endpoints")["endpoints"]
    if args.f == "json":
        print_json(endpoints[0] if args.host else endpoints)
        return 0
    rows = [
        (
            endpoint["host"],
            endpoint["seen_at"],
            endpoint["bindings"]["installed"],
            endpoint["bindings"]["pending"],
            _dropped(endpoint),
        )
        for endpoint in endpoints
    ]
    print(table(("host", "seen", "bindings", "pending", "dropped packets"), rows))
    for endpoint in endpoints:
        for problem in endpoint["problems"]:
            print(f"{INDENT}{cell(endpoint['host'])}: {cell(problem)}")
    return 0


def _dropped(endpoint: dict[str, Any]) -> int:
    return sum(sum(reasons.values()) for reasons in endpoint["dropped_packets"].values())
