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
    facts = error.facts
    lines = capacity(facts.get("filters") or [], facts.get("nearest"), facts.get("relaxed"))
    if error.status == 401:
        lines.append(f"{INDENT}the token of your credentials is not one that the API knows")
    if error.request_id:
        lines.append(f"{INDENT}request {error.request_id}")
    return lines


REQUIREMENTS = {
    "locality": "-locality",
    "gpu_model": "-model",
    "compute_capability": "-capability",
    "hosts": "-hosts",
    "host": "-host",
}


def capacity(
    filters: list[dict[str, Any]], nearest: dict[str, Any] | None, relaxed: str | None
) -> list[str]:
    """Why GPUs were passed over, and the largest request like this one that would fit now.

    *relaxed* is the requirement that it gives up.
    """
    lines = []
    if filters:
        rows = [(f["filter"], f["gpus"]) for f in filters]
        lines += table(("filter", "GPUs it left out"), rows).splitlines()
    if nearest:
        without = f", without {REQUIREMENTS.get(relaxed, relaxed)}" if relaxed else ""
        lines.append(f"{INDENT}this would fit now{without}: {to_options(nearest)}")
    return lines
