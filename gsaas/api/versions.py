# SPDX-License-Identifier: Apache-2.0
"""Version documents: where a client starts if it knows only the URL of the service."""

from __future__ import annotations

from typing import Any

from gsaas.api import microversions
from gsaas.api.request import ApiRequest, ApiResponse


def index(request: ApiRequest) -> ApiResponse:
    """List the major versions of the API. The status is 300, as in other OpenStack services."""
    return ApiResponse(300, {"versions": [_version(request)]})


def show(request: ApiRequest) -> ApiResponse:
    """Show version 1 and its microversions."""
    return ApiResponse(200, {"version": _version(request)})


def _version(request: ApiRequest) -> dict[str, Any]:
    return {
        "id": "v1.0",
        "status": "CURRENT",
        "min_version": microversions.OLDEST,
        "max_version": microversions.NEWEST,
        "links": [request.link("/v1/"), request.link("/v1/openapi.json", rel="describedby")],
    }
