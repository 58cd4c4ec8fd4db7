"""What more there is to say about an error: filter by filter, the nearest fit, the request id."""

from __future__ import annotations

from gsaas.cli.cgpus import to_options
from gsaas.cli.tables import INDENT, table

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from gsaas.client import ApiError


def explain(error: ApiError) -> list[str]:
    """Lines to print under the error's own sentence."""
    lines = capacity(error.facts.get("filters") or [], error.facts.get("nearest"))
    if error.status == 401:
        lines.append(f"{INDENT}the token of your credentials is not one that the API knows")
    if error.request_id:
        lines.append(f"{INDENT}request {error.request_id}")
    return lines


def capacity(filters: list[dict[str, Any]], nearest: dict[str, Any] | None) -> list[str]:
    """Why GPUs were passed over, and the largest request like this one that would fit now."""
    lines = []
    if filters:
        rows = [(f["filter"], f["gpus"]) for f in filters]
        lines += table(("filter", "GPUs it left out"), rows).splitlines()
    if nearest:
        lines.append(f"{INDENT}this would fit now: {to_options(nearest)}")
    return lines
