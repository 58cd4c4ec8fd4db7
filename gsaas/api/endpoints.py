# SPDX-License-Identifier: Apache-2.0
"""RODVR endpoints and their last reports."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gsaas.api.request import ApiRequest, ApiResponse
from gsaas.api.times import iso
from gsaas.db import endpoints, models

PATH = "/v1/endpoints"
_NOTHING_DROPPED = {"unmapped": 0, "refused": 0}


def index(request: ApiRequest) -> ApiResponse:
    """List the endpoints, in the order of their hosts' names unless the query names another one."""
    with request.service.database.read() as session:
        found = endpoints.page(
            session,
            limit=request.page_size + 1,
            marker=request.query.get("marker"),
            sort=request.sort,
        )
    body: dict[str, Any] = {"endpoints": [_endpoint(row) for row in found[: request.page_size]]}
    if len(found) > request.page_size:
        body["endpoints_links"] = request.next_page(PATH, body["endpoints"][-1]["host"])
    return ApiResponse(200, body)


def show(request: ApiRequest, host: str) -> ApiResponse:
    """Show the endpoint of one host."""
    with request.service.database.read() as session:
        return ApiResponse(200, {"endpoint": _endpoint(endpoints.get(session, host))})


def _endpoint(endpoint: models.EndpointRow) -> dict[str, Any]:
    bindings = endpoint.report.get("bindings", {})
    installed = sum(binding["installed"] for binding in bindings.values())
    return {
        "host": endpoint.host_name,
        "seen_at": iso(endpoint.seen_at),
        "bindings": {"installed": installed, "pending": len(bindings) - installed},
        "problems": list(endpoint.report.get("problems", [])),
        "dropped_packets": {
            port_id: dropped_packets(binding) for port_id, binding in bindings.items()
        },
    }


def dropped_packets(binding: Mapping[str, Any]) -> dict[str, int]:
    """Return the packets that were dropped, by each reason, of one binding in the report of an endpoint."""
    return {**_NOTHING_DROPPED, **binding.get("dropped_packets", {})}
