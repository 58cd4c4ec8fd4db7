# SPDX-License-Identifier: Apache-2.0
"""`gsaas endpoints`: what the RODVR endpoints last reported."""

from __future__ import annotations

from types import SimpleNamespace

from gsaasclient.cli.columns import Column, select
from gsaasclient.cli.output import brief_table, print_list, print_resource
from gsaasclient.cli.paging import get_all
from gsaasclient.cli.tables import INDENT, cell
from gsaasclient.times import local

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from gsaasclient import Client

COLUMNS = (
    Column("host", least=6),
    Column("seen_at", "seen", text=lambda endpoint: local(endpoint["seen_at"])),
    Column("installed", "bindings", lambda endpoint: endpoint["bindings"]["installed"]),
    Column("pending", value=lambda endpoint: endpoint["bindings"]["pending"]),
    Column("dropped_packets", "dropped packets", lambda endpoint: _dropped(endpoint)),
    Column("problems", text=lambda endpoint: "; ".join(endpoint["problems"]), optional=True),
)


def endpoints(client: Client, args: SimpleNamespace) -> int:
    """List the endpoints and their problems, or show the endpoint of one host."""
    columns = select(COLUMNS, args.c)
    if args.host:
        from urllib.parse import quote

        path = f"/v1/endpoints/{quote(args.host, safe='')}"
        endpoint = client.request("GET", path)["endpoint"]
        print_resource(args, columns, endpoint, endpoint, lambda: _describe(columns, [endpoint]))
        return 0
    found = get_all(client, "/v1/endpoints", "endpoints")["endpoints"]
    print_list(args, columns, found, found, lambda: _describe(columns, found))
    return 0


def _describe(columns: list[Column], endpoints: list[dict[str, Any]]) -> str:
    problems = [
        f"{INDENT}{cell(endpoint['host'])}: {cell(problem)}"
        for endpoint in endpoints
        for problem in endpoint["problems"]
    ]
    return "\n".join([brief_table(columns, endpoints), *problems])


def _dropped(endpoint: dict[str, Any]) -> int:
    """Return the packets dropped on all ports of the host, for whatever reason."""
    return sum(sum(reasons.values()) for reasons in endpoint["dropped_packets"].values())
