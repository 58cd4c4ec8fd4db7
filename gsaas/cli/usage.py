"""`gsaas usage`: what projects held over a period."""

from __future__ import annotations

import sys
from types import SimpleNamespace

from gsaas.cli.output import print_json
from gsaas.cli.tables import table

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from gsaas.client import Client

COLUMNS = ("project_id", "leases", "gpu_hours", "memory_mb_hours")


def usage(client: Client, args: SimpleNamespace) -> int:
    """Tell GPU-hours and MiB-hours by project."""
    from urllib.parse import urlencode

    asked = {name: value for name, value in (("start", args.start), ("end", args.end)) if value}
    path = "/v1/usage" + (f"?{urlencode(asked)}" if asked else "")
    found = client.request("GET", path)["usage"]
    if args.f == "json":
        print_json(found)
    elif args.f == "csv":
        _print_csv(found["projects"])
    else:
        print(f"from {_minute(found['start'])} to {_minute(found['end'])}, UTC")
        rows = [
            (
                used["project_id"],
                used["leases"],
                f"{used['gpu_hours']:.2f}",
                f"{used['memory_mb_hours']:.0f}",
            )
            for used in found["projects"]
        ]
        print(table(("project", "leases", "GPU-hours", "MiB-hours"), rows))
    return 0


def _print_csv(projects: list[dict[str, Any]]) -> None:
    import csv

    lines = csv.writer(sys.stdout, lineterminator="\n")
    lines.writerow(COLUMNS)
    lines.writerows([used[column] for column in COLUMNS] for used in projects)


def _minute(time: str) -> str:
    return time[:16].replace("T", " ")
