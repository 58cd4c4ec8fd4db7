# SPDX-License-Identifier: Apache-2.0
"""The lines under the message of an API error: GPUs by filter, the nearest request that fits, the request id."""

from __future__ import annotations

from gsaasclient.cli.cgpus import OPTIONS, to_options
from gsaasclient.cli.tables import INDENT, table

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from gsaasclient import ApiError


def explain(error: ApiError, options: Mapping[str, str] = OPTIONS) -> list[str]:
    """Return lines to print under the message of *error*. *options* are those of the command line, by field."""
    facts = error.facts
    lines = capacity(
        facts.get("filters") or [], facts.get("nearest"), facts.get("relaxed"), options
    )
    if error.status == 401:
        lines.append(f"{INDENT}the API does not accept the token of your credentials")
    if error.request_id:
        lines.append(f"{INDENT}request {error.request_id}")
    return lines


def capacity(
    filters: list[dict[str, Any]],
    nearest: dict[str, Any] | None,
    relaxed: str | None,
    options: Mapping[str, str] = OPTIONS,
) -> list[str]:
    """Return how many GPUs each filter excluded, and the largest similar request that would fit now.

    *nearest* is that request, as the API's `cgpus`; *relaxed* names the requirement that it lacks, if it lacks one.
    """
    lines = []
    if filters:
        rows = [(f["filter"], f["gpus"]) for f in filters]
        lines += table(("filter", "GPUs it left out"), rows).splitlines()
    if nearest:
        option = options.get(relaxed or "", relaxed)
        without = f", without {option}" if relaxed else ""
        lines.append(f"{INDENT}this would fit now{without}: {to_options(nearest, options)}")
    return lines
