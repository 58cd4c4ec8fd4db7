# SPDX-License-Identifier: Apache-2.0
"""URLs and versions of services, without asking them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from gsaasclient.sdk.base import NEWEST


def within(endpoint: str, version: str) -> str:
    """Return the URL of *version* of a service, whose endpoint in the catalogue may or may not end with a version.

    With an empty *version*, the endpoint as it is.
    """
    endpoint = endpoint.rstrip("/")
    if not version or re.search(r"/v[0-9][0-9.]*$", endpoint):
        return endpoint
    return f"{endpoint}/{version}"


def newest(described: Mapping[str, Any]) -> str:
    """Return the newest microversion that both the SDK and the service know, from what `GET /v1` says."""
    theirs = str(described["max_version"])
    return min(theirs, NEWEST, key=_parts)


def _parts(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))
