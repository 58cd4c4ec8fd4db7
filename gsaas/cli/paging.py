"""Lists that the API gives in pages, put together."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from gsaas.client import Client


def pages(client: Client, path: str, noun: str) -> dict[str, Any]:
    """Return the first page of *path*, its *noun* rows, if it has any, followed by all others."""
    document = client.request("GET", path)
    page, rows = document, [*document.get(noun, [])]
    while following := [a["href"] for a in page.get(f"{noun}_links", []) if a["rel"] == "next"]:
        # The link may be absolute, and the API may live under a path of its server.
        page = client.request("GET", "/v1" + following[0].partition("/v1")[2])
        rows += page[noun]
    if noun in document:
        document[noun] = rows
    return document
