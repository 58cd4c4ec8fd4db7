# SPDX-License-Identifier: Apache-2.0
"""`gsaas hosts`: the hosts of the cloud. Administrators drain them, and remove those that are gone."""

from __future__ import annotations

import sys
from time import sleep
from types import SimpleNamespace

from gsaasclient import ApiError, ClientError
from gsaasclient.api import API_VERSION, MOVES_VERSION
from gsaasclient.cli import inventory
from gsaasclient.cli.columns import Column, select
from gsaasclient.cli.output import print_resource
from gsaasclient.cli.parser import UsageError
from gsaasclient.cli.tables import cell, printable

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
    Column(
        "drain",
        value=lambda host: host.get("drain"),
        text=lambda host: _waits(host),
        optional=True,
    ),
)
UNSUPPORTED = "gsaas.microversion.unsupported"
PAUSE = 1.0
"""Seconds between two looks at a host that is drained."""
TABLE = ("name", "gpu_address", "gpus", "free_mb", "memory_mb", "compute", "state")
"""The columns of the table, unless others are picked."""
FORGOTTEN = (
    Column("name"),
    Column("failed_leases", text=lambda answer: ", ".join(answer["failed_leases"])),
    Column("unbound_leases", text=lambda answer: ", ".join(answer["unbound_leases"])),
)


def hosts(client: Client, args: SimpleNamespace) -> int:
    """List the hosts, or take one out of service, drain it, return it to service, or remove it."""
    if args.force and not (args.forget or args.drain):
        raise UsageError("-force is valid only with -drain and -forget")
    if (args.by or args.wait) and not args.drain:
        raise UsageError("-by and -wait are valid only with -drain")
    if args.force and args.by:
        raise UsageError("-force cuts connections at once, and -by later: give one of them")
    if sum(map(bool, (args.forget, args.drain, args.disable or args.enable))) > 1:
        raise UsageError("-disable, -enable, -drain and -forget cannot be combined")
    if args.forget:
        return _forget(client, args)
    for version in (MOVES_VERSION, API_VERSION):
        try:
            return _run(client, args, version)
        except ApiError as error:
            # An older service lists its hosts, and drains none.
            if error.code != UNSUPPORTED or version == API_VERSION or args.drain:
                raise
    raise AssertionError


def _run(client: Client, args: SimpleNamespace, version: str) -> int:
    return inventory.run(
        client,
        args,
        "host",
        COLUMNS,
        TABLE,
        problems=_notes,
        version=version,
        change=(lambda: _drain(client, args)) if args.drain else None,
    )


def _notes(host: dict[str, Any]) -> list[str]:
    """Return lines with the problems of *host*, and with the leases that it is to lose and still has."""
    said = [f"{host['name']}: {problem}" for problem in host["problems"]]
    if (drain := host.get("drain")) is not None:
        said += [
            f"{host['name']}: lease {lease['id']}: {lease['waits'] or 'not looked at yet'}"
            for lease in drain["leases"]
        ]
    return said


def _drain(client: Client, args: SimpleNamespace) -> dict[str, Any]:
    """Have leases leave a host, and return it: with `-wait`, when it has none any more."""
    from urllib.parse import quote

    path = f"/v1/hosts/{quote(args.drain, safe='')}"
    drain = {"force": True} if args.force else {"by": args.by}
    change = {"disabled": True, "drain": drain}
    if args.reason:
        change["disabled_reason"] = args.reason
    host = client.request("PATCH", path, {"host": change}, version=MOVES_VERSION)["host"]
    return _wait(client, path, host) if args.wait else host


def _wait(client: Client, path: str, host: dict[str, Any]) -> dict[str, Any]:
    """Return *host* when no lease has its GPUs; tell on standard error how far it is, whenever that changes.

    Raises `ClientError` if it is drained no longer.
    """
    told: list[str] = []
    while host["drain"] is not None and host["drain"]["leases"]:
        lines = _notes({**host, "problems": []})
        for line in lines:
            if line not in told:
                print(printable(line), file=sys.stderr, flush=True)
        told = lines
        try:
            sleep(PAUSE)
        except KeyboardInterrupt:
            raise KeyboardInterrupt(
                f"the drain goes on; gsaas hosts shows how far it is, and gsaas hosts -enable={host['name']} ends it"
            ) from None
        host = client.request("GET", path, version=MOVES_VERSION)["host"]
    if host["drain"] is None:
        raise ClientError(
            f"{host['name']} is drained no longer: somebody has enabled or disabled it meanwhile"
        )
    return host


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


def _waits(host: dict[str, Any]) -> str | None:
    drain = host.get("drain")
    return drain and "; ".join(
        f"{lease['id']}: {lease['waits'] or '-'}" for lease in drain["leases"]
    )


def _interval(seconds: float | None) -> str | None:
    return None if seconds is None else f"every {seconds:g} s"
