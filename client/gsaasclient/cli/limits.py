# SPDX-License-Identifier: Apache-2.0
"""`gsaas limits`: the quota of the project, and how much of it is used."""

from __future__ import annotations

from types import SimpleNamespace

from gsaasclient.cli.columns import Column, select
from gsaasclient.cli.output import print_list

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gsaasclient import Client

HEADINGS = {"cgpus": "cGPUs", "gpu_memory_mb": "MiB of GPU memory", "leases": "leases"}
UNLIMITED = -1
"""The limit that the API gives where there is none."""

COLUMNS = (
    Column("name", "", text=lambda limit: HEADINGS.get(limit["name"], limit["name"])),
    Column("used"),
    Column("limit", text=lambda limit: "none" if limit["limit"] == UNLIMITED else limit["limit"]),
)


def limits(client: Client, args: SimpleNamespace) -> int:
    """List each limit and how much of it is used."""
    columns = select(COLUMNS, args.c)
    document = client.request("GET", "/v1/limits")["limits"]
    rows = [{"name": name, **amount} for name, amount in document.items()]
    print_list(args, columns, rows, document)
    return 0
