# SPDX-License-Identifier: Apache-2.0
"""`gsaas usage`: the GPU-hours and MiB-hours of projects over a period."""

from __future__ import annotations

from types import SimpleNamespace

from gsaasclient.cli.columns import Column, select
from gsaasclient.cli.output import print_list, table_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from gsaasclient import Client

COLUMNS = (
    Column("project_id", "project"),
    Column("leases"),
    Column("gpu_hours", "GPU-hours", text=lambda used: f"{used['gpu_hours']:.2f}"),
    Column("memory_mb_hours", "MiB-hours", text=lambda used: f"{used['memory_mb_hours']:.0f}"),
)


def usage(client: Client, args: SimpleNamespace) -> int:
    """List GPU-hours and MiB-hours by project."""
    from urllib.parse import urlencode

    columns = select(COLUMNS, args.c)
    query = {name: value for name, value in (("start", args.start), ("end", args.end)) if value}
    path = "/v1/usage" + (f"?{urlencode(query)}" if query else "")
    found = client.request("GET", path)["usage"]
    print_list(args, columns, found["projects"], found, lambda: _describe(columns, found))
    return 0


def _describe(columns: list[Column], usage: dict[str, Any]) -> str:
    period = f"from {_minute(usage['start'])} to {_minute(usage['end'])}, UTC"
    return f"{period}\n{table_of(columns, usage['projects'])}"


def _minute(time: str) -> str:
    """Return an ISO 8601 time without its seconds."""
    return time[:16].replace("T", " ")
