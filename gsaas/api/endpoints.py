"""RODVR endpoints, and what they reported last."""

from __future__ import annotations

from typing import Any

from gsaas.api.service import Call, Reply
from gsaas.api.times import iso
from gsaas.db import endpoints, models

PATH = "/v1/endpoints"


def index(call: Call) -> Reply:
    """List the endpoints, by host."""
    with call.service.database.read() as session:
        found = endpoints.page(session, limit=call.limit + 1, marker=call.query.get("marker"))
    body: dict[str, Any] = {"endpoints": [_endpoint(row) for row in found[: call.limit]]}
    if len(found) > call.limit:
        body["endpoints_links"] = call.next_page(PATH, body["endpoints"][-1]["host"])
    return Reply(200, body)


def show(call: Call, host: str) -> Reply:
    """Show the endpoint of one host."""
    with call.service.database.read() as session:
        return Reply(200, {"endpoint": _endpoint(endpoints.get(session, host))})


def _endpoint(endpoint: models.EndpointRow) -> dict[str, Any]:
    bindings = endpoint.report.get("bindings", {})
    installed = sum(binding["installed"] for binding in bindings.values())
    return {
        "host": endpoint.host_name,
        "seen_at": iso(endpoint.seen_at),
        "bindings": {"installed": installed, "pending": len(bindings) - installed},
        "problems": list(endpoint.report.get("problems", [])),
        "dropped_packets": {
            port_id: binding["dropped_packets"] for port_id, binding in bindings.items()
        },
    }
