# SPDX-License-Identifier: Apache-2.0
"""Reservations: making, listing and cancelling them."""

from __future__ import annotations

from types import SimpleNamespace

from gsaasclient import Client
from gsaasclient.api import RESERVATIONS_VERSION
from gsaasclient.cli import cgpus
from gsaasclient.cli.columns import Column, select
from gsaasclient.cli.output import print_list, print_resource
from gsaasclient.cli.paging import get_all
from gsaasclient.cli.parser import UsageError
from gsaasclient.cli.readings import clock_time
from gsaasclient.cli.tables import facts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Reservation = dict[str, Any]

PATH = "/v1/reservations"

COLUMNS = (
    Column("id", "reservation"),
    Column("name"),
    Column("status", text=lambda one: one["status"] + (", degraded" if one["degraded"] else "")),
    Column("project_id", "project"),
    Column("cgpus", "cGPUs", lambda one: one["cgpus"]["count"]),
    Column(
        "memory_mb",
        "each",
        lambda one: one["cgpus"]["memory_mb"],
        text=lambda one: _size(one),
    ),
    Column("start", "from (UTC)", text=lambda one: str(clock_time(one["start"]))),
    Column("end", "to (UTC)", text=lambda one: str(clock_time(one["end"]))),
    Column("kept"),
)


def reserve(client: Client, args: SimpleNamespace) -> int:
    """Make a reservation."""
    columns = select(COLUMNS, args.c)
    if args.end is None:
        raise UsageError("-end is needed: when the reservation is over")
    args.locality, args.policy = "any", None
    wanted = cgpus.from_options(args)
    del wanted["locality"]
    body = {"cgpus": wanted, "end": args.end}
    body |= {name: getattr(args, name) for name in ("start", "name") if getattr(args, name)}
    made = _ask(client, "POST", PATH, {"reservation": body})["reservation"]
    print_resource(args, columns, made, made, lambda: _describe(made))
    return 0


def reservations(client: Client, args: SimpleNamespace) -> int:
    """List reservations from all pages, the earliest first unless the options name another order."""
    from urllib.parse import urlencode

    columns = select(COLUMNS, args.c)
    filters = {
        "status": args.status,
        "all_projects": "true" if args.all else None,
        "sort_key": [key for key, _ in args.sort],
        "sort_dir": [direction for _, direction in args.sort],
    }
    query = urlencode({name: value for name, value in filters.items() if value}, doseq=True)
    path = PATH + (f"?{query}" if query else "")
    found = get_all(client, path, "reservations", RESERVATIONS_VERSION)["reservations"]
    print_list(args, columns, found, found, None if found else lambda: "no reservations")
    return 0


def unreserve(client: Client, args: SimpleNamespace) -> int:
    """Cancel a reservation."""
    from urllib.parse import quote

    columns = select(COLUMNS, args.c)
    if not args.id:
        raise UsageError("the id of a reservation is needed; gsaas reservations lists them")
    found = _ask(client, "DELETE", f"{PATH}/{quote(args.id, safe='')}")["reservation"]
    line = f"reservation {found['id']}  {found['status']}"
    print_resource(args, columns, found, found, lambda: line)
    return 0


def _ask(client: Client, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
    return client.request(method, path, body, version=RESERVATIONS_VERSION)


def _describe(made: Reservation) -> str:
    pairs = [
        ("reservation", made["id"]),
        ("name", made["name"]),
        ("status", made["status"]),
        ("cGPUs", f"{made['cgpus']['count']}, {_size(made)} each"),
        ("from", f"{clock_time(made['start'])} UTC"),
        ("to", f"{clock_time(made['end'])} UTC"),
    ]
    then = (
        f"gsaas -l {cgpus.to_options(made['cgpus'])} -reservation={made['id']}  launch in it then"
    )
    return f"{facts(pairs)}\n\n{then}"


def _size(one: Reservation) -> str:
    return f"{one['cgpus']['memory_mb']} MiB" if one["cgpus"]["memory_mb"] else "whole GPU"
