# SPDX-License-Identifier: Apache-2.0
"""`gsaas usage`: the GPU-hours and MiB-hours of projects over a period, and what they cost."""

from __future__ import annotations

from types import SimpleNamespace

from gsaasclient.api import API_VERSION, COSTS_VERSION
from gsaasclient.cli.columns import Column, select
from gsaasclient.cli.output import brief_table, print_list
from gsaasclient.errors import ApiError
from gsaasclient.times import minute

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from gsaasclient import Client

COLUMNS = (
    Column("project_id", "project", least=8),
    Column("leases"),
    Column("gpu_hours", "GPU-hours", text=lambda used: f"{used['gpu_hours']:.2f}"),
    Column("memory_mb_hours", "MiB-hours", text=lambda used: f"{used['memory_mb_hours']:.0f}"),
)
COSTS = (
    Column("cost", value=lambda used: used.get("cost")),
    Column(
        "unpriced_gpu_hours",
        "unpriced",
        lambda used: used.get("unpriced_gpu_hours"),
        text=lambda used: f"{used.get('unpriced_gpu_hours', 0):.2f}",
    ),
)
"""Columns that are there if the operator has prices; the second one in tables only if a model has none."""


def usage(client: Client, args: SimpleNamespace) -> int:
    """List GPU-hours and MiB-hours by project."""
    from urllib.parse import urlencode

    select([*COLUMNS, *COSTS], args.c)  # what does not exist is refused before the request
    query = {name: value for name, value in (("start", args.start), ("end", args.end)) if value}
    path = "/v1/usage" + (f"?{urlencode(query)}" if query else "")
    try:
        found = client.request("GET", path, version=COSTS_VERSION)["usage"]
    except ApiError as error:
        if error.code != "gsaas.microversion.unsupported":
            raise
        found = client.request("GET", path, version=API_VERSION)["usage"]
    columns = select([*COLUMNS, *(COSTS if args.c else _costs(found))], args.c)
    print_list(args, columns, found["projects"], found, lambda: _describe(columns, found))
    return 0


def _costs(usage: dict[str, Any]) -> list[Column]:
    """Return the columns of costs that say something of *usage*."""
    if not any("cost" in used for used in usage["projects"]):
        return []
    cost, unpriced = COSTS
    currency = f"cost ({usage['currency']})" if usage["currency"] else None
    shown = [Column(cost.name, currency, cost.value)]
    if any(used["unpriced_gpu_hours"] for used in usage["projects"]):
        shown.append(unpriced)
    return shown


def _describe(columns: list[Column], usage: dict[str, Any]) -> str:
    period = f"from {minute(usage['start'])} to {minute(usage['end'])}"
    return f"{period}\n{brief_table(columns, usage['projects'])}"
