"""Waiting in the queue, and looking at it."""

from __future__ import annotations

import time
from types import SimpleNamespace

from gsaas.cli.output import Progress, print_json
from gsaas.cli.paging import pages
from gsaas.cli.parser import FOREVER
from gsaas.cli.tables import table
from gsaas.client import ApiError, Client, StillBusyError, UnreachableError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Lease = dict[str, Any]

WATCHED_POLL, POLL = 2, 25
"""Seconds until the API answers in any case: before somebody who watches, and otherwise."""
PAUSE = 1.0
"""Seconds before asking again, when the API was away or could not keep us waiting."""
PATIENCE = 45.0
"""Seconds for which the API may be away: less than it takes before it counts us as gone."""


def ask(client: Client, args: SimpleNamespace, lease: dict[str, Any]) -> dict[str, Any]:
    """Ask for *lease*, and wait in the queue if that is wanted; return the API's answer.

    Its lease is not QUEUED, unless *args* say `-nowait`. Who is interrupted gives the place back.
    Raises what the client raises, and `StillBusyError` when the wait ended without GPUs.
    """
    nowait = getattr(args, "nowait", False)
    _add_options(lease, args, attended=not nowait)
    try:
        answer = client.request("POST", "/v1/leases", {"lease": lease})
    except KeyboardInterrupt:
        raise KeyboardInterrupt(
            "interrupted while the API was asked; gsaas list shows whether there is a lease"
        ) from None
    if answer["lease"]["status"] == "QUEUED" and not nowait:
        answer["lease"] = wait(client, answer["lease"])
    return answer


def wait(client: Client, lease: Lease) -> Lease:
    """Stay in the queue with a lease until it is its turn; return it as it then is."""
    path = f"/v1/leases/{lease['id']}"
    try:
        with Progress() as progress:
            while lease["status"] == "QUEUED":
                progress.show("QUEUED", standing(lease["queue"]))
                lease = _poll(client, path, WATCHED_POLL if progress.watched else POLL)
    except KeyboardInterrupt:
        client.request("DELETE", path)
        raise KeyboardInterrupt("interrupted; the place in the queue is given back") from None
    if lease["status"] in ("RELEASING", "RELEASED"):
        fault = lease.get("fault")
        why = fault["message"] if fault else "somebody gave its place in the queue back"
        raise StillBusyError(f"lease {lease['id']} got no GPUs: {why}")
    return lease


def queue(client: Client, args: SimpleNamespace) -> int:
    """Who waits, in the order of their turns."""
    found = pages(client, "/v1/queue", "places")
    if args.f == "json":
        print_json(found)
        return 0
    totals, places = found["totals"], found["places"]
    if not totals["length"]:
        print("nobody waits")
        return 0
    waiting = "request waits" if totals["length"] == 1 else "requests wait"
    print(f"{totals['length']} {waiting}, {totals['own']} of your project")
    if places:
        rows = [
            (
                place["position"],
                place["lease_id"],
                place["name"],
                place["project_id"],
                place["priority"],
                place["cgpus"]["count"],
                f"{place['cgpus']['memory_mb']} MiB"
                if place["cgpus"]["memory_mb"]
                else "whole GPU",
                place["queued_at"],
                about(place["estimate_seconds"]),
            )
            for place in places
        ]
        headings = (
            "turn",
            "lease",
            "name",
            "project",
            "priority",
            "cGPUs",
            "each",
            "since",
            "about",
        )
        print(table(headings, rows))
    return 0


def _add_options(lease: dict[str, Any], args: SimpleNamespace, attended: bool) -> None:
    if args.priority is not None:
        lease["priority"] = args.priority
    if args.wait is not None:
        lease["wait"] = None if args.wait == FOREVER else args.wait
        lease["attended"] = attended


def _poll(client: Client, path: str, seconds: int) -> Lease:
    """Ask until the API answers; it may be restarted meanwhile, and our place is in its database."""
    begun = time.monotonic()
    while True:
        try:
            answer = client.request("GET", f"{path}?while_status=QUEUED&timeout={seconds}")
        except (UnreachableError, ApiError) as error:
            away = isinstance(error, UnreachableError) or error.status in (502, 503, 504)
            if not away or time.monotonic() - begun > PATIENCE:
                raise
            time.sleep(PAUSE)
            continue
        if answer["lease"]["status"] == "QUEUED" and time.monotonic() - begun < PAUSE / 2:
            time.sleep(PAUSE)  # it has too many to keep waiting
        return answer["lease"]


def standing(standing: dict[str, Any] | None) -> str:
    """Where a lease stands in the queue, and for how long about."""
    if standing is None:  # it has just left the queue
        return ""
    left = about(standing["estimate_seconds"])
    told = f"{standing['position']} of {standing['length']}"
    return f"{told}, {left}" if left else told


def about(seconds: float | None) -> str:
    """An estimate in words; nothing for None."""
    if seconds is None:
        return ""
    if seconds < 90:
        return f"about {max(1, round(seconds))} s"
    if seconds < 5400:
        return f"about {round(seconds / 60)} min"
    return f"about {round(seconds / 3600)} h"
