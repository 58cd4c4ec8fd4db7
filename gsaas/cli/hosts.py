"""`gsaas hosts`: the machines of the cloud, in service, out of it, and gone."""

from __future__ import annotations

from types import SimpleNamespace

from gsaas.cli import inventory
from gsaas.cli.output import print_json
from gsaas.cli.parser import UsageError
from gsaas.cli.tables import cell, table

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from gsaas.client import Client


def hosts(client: Client, args: SimpleNamespace) -> int:
    """List the hosts, take one out of service, or forget it."""
    if args.force and not args.forget:
        raise UsageError("-force goes with -forget")
    if args.forget:
        if args.disable or args.enable:
            raise UsageError("-forget goes with neither -disable nor -enable")
        return _forget(client, args)
    return inventory.command(client, args, "host", _table)


def _forget(client: Client, args: SimpleNamespace) -> int:
    from urllib.parse import quote

    path = f"/v1/hosts/{quote(args.forget, safe='')}" + ("?force=true" if args.force else "")
    forgotten = client.request("DELETE", path)["forgotten"]
    if args.f == "json":
        print_json(forgotten)
        return 0
    print(f"{cell(forgotten['name'])} is forgotten")
    for leases, what in (
        (forgotten["failed_leases"], "lost cGPUs and are in ERROR"),
        (forgotten["unbound_leases"], "had their VMs on it and wait for it no more"),
    ):
        if leases:
            print(f"these leases {what}: {', '.join(map(cell, leases))}")
    return 0


def _table(hosts: list[dict[str, Any]]) -> str:
    rows = [
        (
            host["name"],
            host["gpu_address"],
            host["gpus"],
            host["free_mb"],
            host["memory_mb"],
            host["compute"],
            _interval(host["monitor_interval"]),
            inventory.state(host, "silent" if host["silent"] else "ready"),
        )
        for host in hosts
    ]
    listed = table(
        ("host", "GPU address", "GPUs", "MiB free", "of", "runs VMs", "reports", "state"), rows
    )
    problems = [f"{host['name']}: {problem}" for host in hosts for problem in host["problems"]]
    return "\n".join([listed, *problems])


def _interval(seconds: float | None) -> str | None:
    return None if seconds is None else f"every {seconds:g} s"
