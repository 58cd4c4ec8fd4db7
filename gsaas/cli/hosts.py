"""`gsaas hosts`: the machines of the cloud."""

from __future__ import annotations

from types import SimpleNamespace

from gsaas.cli import inventory
from gsaas.cli.tables import table

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from gsaas.client import Client


def hosts(client: Client, args: SimpleNamespace) -> int:
    """List the hosts, or take one out of service."""
    return inventory.command(client, args, "host", _table)


def _table(hosts: list[dict[str, Any]]) -> str:
    rows = [
        (
            host["name"],
            host["gpu_address"],
            host["gpus"],
            host["free_mb"],
            host["memory_mb"],
            host["compute"],
            inventory.state(host, "silent" if host["silent"] else "ready"),
        )
        for host in hosts
    ]
    return table(("host", "GPU address", "GPUs", "MiB free", "of", "runs VMs", "state"), rows)
