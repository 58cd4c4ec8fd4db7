"""What the listings of GPUs and hosts share: the cloud's totals, and taking one out of service."""

from __future__ import annotations

from types import SimpleNamespace

from gsaas.cli.output import print_json
from gsaas.cli.paging import pages
from gsaas.cli.parser import UsageError
from gsaas.cli.tables import facts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from gsaas.client import Client


def command(
    client: Client,
    args: SimpleNamespace,
    noun: str,
    table_of: Callable[[list[dict[str, Any]]], str],
) -> int:
    """List every *noun*, or switch one off or on."""
    if args.disable and args.enable:
        raise UsageError("-disable and -enable do not go together")
    if args.reason and not args.disable:
        raise UsageError("-reason goes with -disable")
    if args.disable or args.enable:
        return _switch(client, args, noun, table_of)

    answer = pages(client, f"/v1/{noun}s", f"{noun}s")
    if args.f == "json":
        print_json({key: answer[key] for key in ("totals", f"{noun}s") if key in answer})
        return 0
    if rows := answer.get(f"{noun}s"):
        print(table_of(rows), end="\n\n")
    print(_totals(answer["totals"]))
    return 0


def _switch(
    client: Client,
    args: SimpleNamespace,
    noun: str,
    table_of: Callable[[list[dict[str, Any]]], str],
) -> int:
    from urllib.parse import quote

    change = {"disabled": bool(args.disable)}
    if args.reason:
        change["disabled_reason"] = args.reason
    path = f"/v1/{noun}s/{quote(args.disable or args.enable, safe='')}"
    changed = client.request("PATCH", path, {noun: change})[noun]
    if args.f == "json":
        print_json(changed)
    else:
        print(table_of([changed]))
    return 0


def state(row: dict[str, Any], otherwise: str) -> str:
    """Why a GPU or host is not offered, or *otherwise*."""
    if row["disabled"]:
        return f"disabled: {row['disabled_reason']}" if row["disabled_reason"] else "disabled"
    if reason := row.get("withdrawn"):
        return f"withdrawn: {reason}" + ("; -enable it" if row["awaits_operator"] else "")
    return otherwise


def _totals(totals: dict[str, int]) -> str:
    gpus = f"{totals['gpus']} on {totals['hosts']} hosts, {totals['idle']} idle"
    memory = f"{totals['free_mb']} of {totals['memory_mb']} MiB free"
    return facts([("GPUs", gpus), ("memory", memory)])
