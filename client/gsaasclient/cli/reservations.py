# SPDX-License-Identifier: Apache-2.0
"""Reservations: making, listing, renaming and cancelling them."""

from __future__ import annotations

import signal
from time import time
from types import SimpleNamespace

from gsaasclient import Client, ConnectionLostError
from gsaasclient.api import CHANGED_RESERVATIONS_VERSION, RESERVATIONS_VERSION, version_for
from gsaasclient.cli import cgpus, finding
from gsaasclient.cli.columns import Column, id_column, select
from gsaasclient.cli.interrupts import as_keyboard_interrupt
from gsaasclient.cli.made import given_back_unless_told
from gsaasclient.cli.output import brief_table, print_list, print_note, print_resource
from gsaasclient.cli.paging import get_all
from gsaasclient.cli.parser import UsageError
from gsaasclient.cli.tables import facts
from gsaasclient.quantities import span
from gsaasclient.times import local, short

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Reservation = dict[str, Any]

PATH = "/v1/reservations"
_UNKNOWN = "gsaas reservations shows whether a reservation was made"

_NEEDED = "the id or the name of a reservation is needed; gsaas reservations lists them"

COLUMNS = (
    id_column("id", "id"),
    Column("name", least=6),
    Column(
        "status",
        text=lambda one: one["status"] + (", degraded" if one["degraded"] else ""),
        least=14,
    ),
    Column("project_id", "project"),
    Column("cgpus", "cGPUs", lambda one: one["cgpus"]["count"]),
    Column(
        "memory_mb",
        "each",
        lambda one: one["cgpus"]["memory_mb"],
        text=lambda one: _size(one),
    ),
    Column(
        "start",
        "from",
        text=lambda one: local(one["start"]),
        brief=lambda one: short(one["start"], time()),
    ),
    Column("end", "to", text=lambda one: local(one["end"])),
    Column("kept"),
    Column(
        "duration",
        "for",
        lambda one: _seconds(one),
        text=lambda one: span(_seconds(one)),
        optional=True,
    ),
    Column(
        "reservation", value=lambda one: one["id"], optional=True
    ),  # what "id" was called before
)
TABLE = ("id", "name", "status", "cgpus", "memory_mb", "start", "duration", "kept")
"""The columns of the table, unless others are picked."""


@as_keyboard_interrupt(signal.SIGTERM, signal.SIGHUP)
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
    version = version_for(wanted, RESERVATIONS_VERSION)
    try:
        made = client.request("POST", PATH, {"reservation": body}, version)["reservation"]
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"interrupted; {_UNKNOWN}") from None
    except ConnectionLostError:
        print_note(_UNKNOWN)
        raise
    path, noun, end = (
        _path(made["id"]),
        f"reservation {made['id']}",
        f"gsaas unreserve {made['id']}",
    )
    with given_back_unless_told(client, path, noun, end, RESERVATIONS_VERSION):
        _print(client, args, columns, made)
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
    print_list(args, columns, found, found, lambda: _describe_all(found))
    return 0


def _describe_all(found: list[Reservation]) -> str:
    return brief_table(select(COLUMNS, TABLE), found) if found else "no reservations"


def reservation(client: Client, args: SimpleNamespace) -> int:
    """Show a reservation, after giving it another name if an option says so."""
    columns = select(COLUMNS, args.c)
    # `gsaas reservation show NAME` is what users of `openstack` type, and `set NAME -name=NEW`.
    called = args.id[1:] if len(args.id) > 1 and args.id[0] in ("show", "set") else args.id
    if len(called) != 1:
        raise UsageError(_NEEDED)
    if called != args.id and args.id[0] == "set" and not args.name:
        raise UsageError("nothing to change: give -name")
    found = finding.reservation(client, called[0], over=True)
    if args.name:
        body, path = {"reservation": {"name": args.name}}, _path(found["id"])
        found = client.request("PATCH", path, body, CHANGED_RESERVATIONS_VERSION)["reservation"]
    _print(client, args, columns, found)
    return 0


def unreserve(client: Client, args: SimpleNamespace) -> int:
    """Cancel a reservation."""
    columns = select(COLUMNS, args.c)
    if not args.id:
        raise UsageError(_NEEDED)
    path = _path(finding.reservation(client, args.id)["id"])
    found = client.request("DELETE", path, version=RESERVATIONS_VERSION)["reservation"]
    line = f"reservation {found['id']}  {found['status']}"
    print_resource(args, columns, found, found, lambda: line)
    return 0


def _print(client: Client, args: SimpleNamespace, columns: list[Column], one: Reservation) -> None:
    called = finding.called_reservation(client, one) if args.f == "table" else one["id"]
    print_resource(args, columns, one, one, lambda: _describe(one, called))


def _describe(made: Reservation, called: str) -> str:
    """Return a reservation as text, with the commands that come next, which call it *called*."""
    pairs = [
        ("reservation", made["id"]),
        ("name", made["name"]),
        ("status", made["status"]),
        ("cGPUs", f"{made['cgpus']['count']}, {_size(made)} each"),
        ("from", local(made["start"])),
        ("to", local(made["end"])),
    ]
    if made["status"] not in ("PENDING", "ACTIVE"):
        return facts(pairs)
    then = "" if made["status"] == "ACTIVE" else " then"
    wanted = cgpus.asked(made["cgpus"] | {"mode": None})  # memory says it
    launch = f"gsaas -l {wanted} -reservation={called}"
    nexts = [(launch, f"launch in it{then}"), (f"gsaas unreserve {called}", "cancel it")]
    return f"{facts(pairs)}\n\n{facts(nexts)}"


def _path(reservation_id: str) -> str:
    return finding.path_of(PATH, reservation_id)


def _seconds(one: Reservation) -> float:
    """Return how long a reservation is in all."""
    from datetime import datetime

    start, end = (datetime.fromisoformat(one[name]) for name in ("start", "end"))
    return (end - start).total_seconds()


def _size(one: Reservation) -> str:
    return f"{one['cgpus']['memory_mb']} MiB" if one["cgpus"]["memory_mb"] else "whole GPU"
