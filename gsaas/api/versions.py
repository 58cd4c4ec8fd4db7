"""Version documents: where a client begins when it knows nothing but the address."""

from __future__ import annotations

from typing import Any

from gsaas.api import microversions
from gsaas.api.service import Call, Reply


def index(call: Call) -> Reply:
    """List the major versions; there is one. 300, as other OpenStack services answer."""
    return Reply(300, {"versions": [_version(call)]})


def show(call: Call) -> Reply:
    """Show version 1 and its microversions."""
    return Reply(200, {"version": _version(call)})


def _version(call: Call) -> dict[str, Any]:
    return {
        "id": "v1.0",
        "status": "CURRENT",
        "min_version": microversions.OLDEST,
        "max_version": microversions.NEWEST,
        "links": [call.link("/v1/"), call.link("/v1/openapi.json", rel="describedby")],
    }
