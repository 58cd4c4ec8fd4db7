# SPDX-License-Identifier: Apache-2.0
"""Lists that the API returns page by page."""

from __future__ import annotations

from gsaasclient.api import API_VERSION

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from gsaasclient import Client


def get_all(client: Client, path: str, noun: str, version: str = API_VERSION) -> dict[str, Any]:
    """Return the document at *path*, with its list *noun* completed by those of all further pages.

    *version* is the microversion of the requests. An answer without that list is returned as it is. Raises what
    `Client.request` raises.
    """
    document: dict[str, Any] = client.request("GET", path, version=version)
    page, items = document, [*document.get(noun, [])]
    while links := [
        link["href"] for link in page.get(f"{noun}_links", []) if link["rel"] == "next"
    ]:
        # The link may be absolute, and the API may be served under a path prefix.
        page = client.request("GET", "/v1" + links[0].partition("/v1")[2], version=version)
        items += page[noun]
    if noun in document:
        document[noun] = items
    return document
