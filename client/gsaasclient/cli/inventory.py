# SPDX-License-Identifier: Apache-2.0
"""What `gsaas gpus` and `gsaas hosts` share: they list resources with totals, and disable or enable one of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace

from gsaasclient.api import API_VERSION
from gsaasclient.cli.columns import Column, select
from gsaasclient.cli.output import brief_table, print_list, print_resource
from gsaasclient.cli.paging import get_all
from gsaasclient.cli.parser import UsageError
from gsaasclient.cli.tables import facts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from gsaasclient import Client

    Resource = dict[str, Any]

TOTALS = (
    Column("gpus", "GPUs"),
    Column("hosts"),
    Column("idle"),
    Column("free_mb", "MiB free"),
    Column("memory_mb", "of"),
)
"""The columns for callers to whom the API does not show each GPU and host."""


def run(
    client: Client,
    args: SimpleNamespace,
    noun: str,
    columns: Sequence[Column],
    table: Sequence[str],
    *,
    order: Callable[[Resource], Any] | None = None,
    problems: Callable[[Resource], list[str]] = lambda _: [],
    version: str = API_VERSION,
    find: Callable[[str], str] = lambda called: called,
    change: Callable[[], Resource] | None = None,
    instead: Callable[[], tuple[Resource, str]] = lambda: ({}, ""),
) -> int:
    """List every *noun*, in the API's order or by *order*, or take one out of service or return it to service.

    *table* names the columns of the table, unless others are picked. *problems* returns lines to print under the table
    for one of them. *version* is the microversion of the list. *find* returns the name of what `-disable` or `-enable`
    names. *change* does what else is to be done to one of them, and returns it. *instead* returns what else a caller
    sees to whom the API shows none of them: members of the document, and a text.
    """
    if args.disable and args.enable:
        raise UsageError("-disable and -enable cannot be combined")
    if args.reason and not (args.disable or change):
        raise UsageError("-reason is valid only with -disable")

    def describe(found: list[Resource]) -> str:
        lines = [line for each in found for line in (*_out_of_service(each), *problems(each))]
        return "\n".join([brief_table(select(columns, table), found), *lines])

    if change or args.disable or args.enable:
        # Before the request: a column that does not exist must leave everything as it is.
        selected = select(columns, args.c)
        changed = change() if change else _change(client, args, noun, find)
        print_resource(args, selected, changed, changed, lambda: describe([changed]))
        return 0

    answer = get_all(client, f"/v1/{noun}s", f"{noun}s", version)
    totals = answer["totals"]
    document = {key: answer[key] for key in ("totals", f"{noun}s") if key in answer}
    if f"{noun}s" not in answer:
        selected = select(TOTALS, args.c)
        more, text = instead()
        parts = [part for part in (text, _describe_totals(totals)) if part]
        print_resource(args, selected, totals, document | more, lambda: "\n\n".join(parts))
        return 0
    selected = select(columns, args.c)
    found = sorted(answer[f"{noun}s"], key=order) if order else answer[f"{noun}s"]

    def describe_all() -> str:
        parts = [describe(found)] if found else []
        return "\n\n".join([*parts, _describe_totals(totals)])

    print_list(args, selected, found, document, describe_all)
    return 0


def _change(
    client: Client, args: SimpleNamespace, noun: str, find: Callable[[str], str]
) -> Resource:
    """Take a GPU or host out of service, or return it to service; return it as it is then."""
    from urllib.parse import quote

    change = {"disabled": bool(args.disable)}
    if args.reason:
        change["disabled_reason"] = args.reason
    path = f"/v1/{noun}s/{quote(find(args.disable or args.enable), safe='')}"
    changed: Resource = client.request("PATCH", path, {noun: change})[noun]
    return changed


def state(resource: Resource, in_service: str) -> str:
    """Return why a GPU or host is out of service, or *in_service*."""
    if resource["disabled"]:
        reason = resource["disabled_reason"]
        named = "disabled"
        if (drain := resource.get("drain")) is not None:
            named = "draining" if drain["leases"] else "drained"
        return f"{named}: {reason}" if reason else named
    if reason := resource.get("withdrawn"):
        return f"withdrawn: {reason}" + ("; -enable it" if resource["awaits_operator"] else "")
    return in_service


def brief_state(resource: Resource, in_service: str) -> str:
    """Return what `state` returns without the reason, such as `disabled` or `withdrawn`."""
    return state(resource, in_service).partition(":")[0]


def _out_of_service(resource: Resource) -> list[str]:
    """Return a line that says why, if there is a reason."""
    name, said = resource.get("uuid", resource.get("name")), state(resource, "")
    return [f"{name}: {said}"] if ":" in said else []


def _describe_totals(totals: dict[str, int]) -> str:
    gpus = f"{totals['gpus']} on {totals['hosts']} hosts, {totals['idle']} idle"
    memory = f"{totals['free_mb']} of {totals['memory_mb']} MiB free"
    return facts([("GPUs", gpus), ("memory", memory)])
