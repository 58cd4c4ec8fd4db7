"""`gsaas limits`: the quota of the project, and what it uses of it."""

from __future__ import annotations

from types import SimpleNamespace

from gsaas.cli.output import print_json
from gsaas.cli.tables import table

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gsaas.client import Client

NAMES = {"cgpus": "cGPUs", "gpu_memory_mb": "MiB of GPU memory", "leases": "leases"}
UNLIMITED = -1


def limits(client: Client, args: SimpleNamespace) -> int:
    """Show each limit beside what is used of it."""
    known = client.request("GET", "/v1/limits")["limits"]
    if args.f == "json":
        print_json(known)
        return 0
    rows = [
        (NAMES.get(name, name), amount["used"], _limit(amount["limit"]))
        for name, amount in known.items()
    ]
    print(table(("", "used", "limit"), rows))
    return 0


def _limit(limit: int) -> str | int:
    return "none" if limit == UNLIMITED else limit
