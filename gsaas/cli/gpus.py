"""`gsaas gpus`: what there is, and what is left of it."""

from __future__ import annotations

from types import SimpleNamespace

from gsaas.cli import inventory
from gsaas.cli.tables import table

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from gsaas.client import Client


def gpus(client: Client, args: SimpleNamespace) -> int:
    """List the GPUs, or take one out of service."""
    return inventory.command(client, args, "gpu", _table)


def _table(gpus: list[dict[str, Any]]) -> str:
    rows = [
        (
            gpu["uuid"],
            gpu["host"],
            gpu["index"],
            gpu["model"],
            gpu["used_mb"],
            gpu["memory_mb"],
            len(gpu["leases"]),
            inventory.state(gpu, gpu["mode"]),
        )
        for gpu in sorted(gpus, key=lambda gpu: (gpu["host"], gpu["index"]))
    ]
    return table(("GPU", "host", "index", "model", "MiB used", "of", "leases", "state"), rows)
