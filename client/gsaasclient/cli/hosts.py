# SPDX-License-Identifier: Apache-2.0
"""`gsaas hosts`: the hosts of the cloud. Administrators take them out of service and remove those that are gone."""

from __future__ import annotations

from types import SimpleNamespace

from gsaasclient.cli import inventory
from gsaasclient.cli.columns import Column, select
from gsaasclient.cli.output import print_resource
from gsaasclient.cli.parser import UsageError
from gsaasclient.cli.tables import cell

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from gsaasclient import Client

COLUMNS = (
    Column("name", "host", least=6),
    Column("gpu_address", "GPU address", least=15),
    Column("gpus", "GPUs"),
    Column("free_mb", "MiB free"),
    Column("memory_mb", "of"),
    Column("compute", "runs VMs"),
    Column("monitor_interval", "reports", text=lambda host: _interval(host["monitor_interval"])),
    Column(
        "state",
        value=lambda host: inventory.state(host, "silent" if host["silent"] else "ready"),
        brief=lambda host: inventory.brief_state(host, "silent" if host["silent"] else "ready"),
        least=8,
    ),
    Column("problems", text=lambda host: "; ".join(host["problems"]), optional=True),
)
TABLE = ("name", "gpu_address", "gpus", "free_mb", "memory_mb", "compute", "state")
"""The columns of the table, unless others are picked."""
FORGOTTEN = (
    Column("name"),
    Column("failed_leases", text=lambda answer: ", ".join(answer["failed_leases"])),
    Column("unbound_leases", text=lambda answer: ", ".join(answer["unbound_leases"])),
)


def hosts(client: Client, args: SimpleNamespace) -> int:
    """List the hosts, or take one out of service, return it to service, or remove it."""
    if args.force and not args.forget:
        raise UsageError("-force is valid only with -forget")
    if args.forget:
        if args.disable or args.enable:
            raise UsageError("-forget cannot be combined with -disable or -enable")
        return _forget(client, args)
    return inventory.run(
        client,
        args,
        "host",
        COLUMNS,
        TABLE,
        problems=lambda host: [f"{host['name']}: {problem}" for problem in host["problems"]],
    )


def _forget(client: Client, args: SimpleNamespace) -> int:
    from urllib.parse import quote

    columns = select(FORGOTTEN, args.c)
    path = f"/v1/hosts/{quote(args.forget, safe='')}" + ("?force=true" if args.force else "")
    answer = client.request("DELETE", path)["forgotten"]
    print_resource(args, columns, answer, answer, lambda: _describe_forgotten(answer))
    return 0


def _describe_forgotten(answer: dict[str, Any]) -> str:
    lines = [f"{cell(answer['name'])} is forgotten"]
    for leases, consequence in (
        (answer["failed_leases"], "lost cGPUs and are in ERROR"),
        (answer["unbound_leases"], "had their VMs on it and no longer wait for it"),
    ):
        if leases:
            lines.append(f"these leases {consequence}: {', '.join(map(cell, leases))}")
    return "\n".join(lines)


def _interval(seconds: float | None) -> str | None:
    return None if seconds is None else f"every {seconds:g} s"
