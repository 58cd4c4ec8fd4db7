# SPDX-License-Identifier: Apache-2.0
"""Requesting a lease, waiting for it in the queue, and listing the queue."""

from __future__ import annotations

import time
from types import SimpleNamespace

from gsaasclient import ApiError, Client, ClientError, StillBusyError, UnreachableError
from gsaasclient.api import version_of
from gsaasclient.cli import finding
from gsaasclient.cli.columns import Column, id_column, select
from gsaasclient.cli.output import Progress, brief_table, print_list
from gsaasclient.cli.paging import get_all
from gsaasclient.cli.parser import FOREVER, UsageError
from gsaasclient.idempotency import new_key
from gsaasclient.times import age, describe_estimate, rounded

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Lease = dict[str, Any]

INTERACTIVE_POLL, POLL = 2, 25
"""Seconds for which the API may delay its answer: on a terminal, where estimates are shown, and elsewhere."""
RETRY_DELAY = 1.0
"""Seconds between two requests, when the API is away or does not delay its answer."""
OUTAGE_TIMEOUT = 45.0
"""Seconds for which the API may be unreachable: less than [queue]client_timeout, after which the place is lost."""

AFTER_INTERRUPT = 3.0
"""Seconds for which the API may take to answer after an interrupt: whoever interrupts does not want to wait."""


COLUMNS = (
    Column("position", "turn"),
    id_column("lease_id", "lease"),
    Column("name", least=6),
    Column("project_id", "project", least=8),
    Column("priority"),
    Column("cgpus", "cGPUs", lambda place: place["cgpus"]["count"]),
    Column(
        "memory_mb",
        "each",
        lambda place: place["cgpus"]["memory_mb"],
        text=lambda place: (
            f"{place['cgpus']['memory_mb']} MiB" if place["cgpus"]["memory_mb"] else "whole GPU"
        ),
    ),
    Column("queued_at", "age", text=lambda place: age(place["queued_at"], time.time())),
    Column("estimate_seconds", "about", text=lambda place: rounded(place["estimate_seconds"])),
)


def request_lease(client: Client, args: SimpleNamespace, lease: dict[str, Any]) -> dict[str, Any]:
    """Request *lease*, wait in the queue if `args.wait` says so, and return the API's answer.

    The lease in the answer is not QUEUED, unless `args.nowait` is true. An interrupt gives up the place in the queue.
    Raises what the client raises, and `StillBusyError` when the wait ends without GPUs.
    """
    nowait = getattr(args, "nowait", False)
    _add_options(client, lease, args, attended=not nowait)
    key = new_key()
    try:
        answer: dict[str, Any] = client.launch(lease, key)
    except KeyboardInterrupt:
        _give_up(client, lease, key)
        raise KeyboardInterrupt("interrupted; the cGPUs are released") from None
    if answer["lease"]["status"] == "QUEUED" and not nowait:
        answer["lease"] = wait(client, answer["lease"])
    return answer


def wait(client: Client, lease: Lease) -> Lease:
    """Wait until a QUEUED lease leaves the queue; return it as it is then.

    Raises `StillBusyError` if it left the queue without GPUs.
    """
    path = f"/v1/leases/{lease['id']}"
    try:
        with Progress() as progress:
            while lease["status"] == "QUEUED":
                progress.show("QUEUED", describe_position(lease["queue"]))
                lease = _poll(client, lease, INTERACTIVE_POLL if progress.interactive else POLL)
    except KeyboardInterrupt:
        client.hurry(AFTER_INTERRUPT)
        try:
            client.request("DELETE", path)
        except ClientError as error:
            raise KeyboardInterrupt(
                f"interrupted, but the place in the queue is kept, as {error}; to give it up: gsaas -t {lease['id']}"
            ) from None
        raise KeyboardInterrupt("interrupted; the place in the queue is released") from None
    if lease["status"] in ("RELEASING", "RELEASED"):
        fault = lease.get("fault")
        reason = fault["message"] if fault else "its place in the queue was released"
        raise StillBusyError(f"lease {lease['id']} got no GPUs: {reason}")
    return lease


def queue(client: Client, args: SimpleNamespace) -> int:
    """List the requests in the queue, in the order of their turns."""
    columns = select(COLUMNS, args.c)
    answer = get_all(client, "/v1/queue", "places")
    print_list(args, columns, answer["places"], answer, lambda: _describe(columns, answer))
    return 0


def _describe(columns: list[Column], answer: dict[str, Any]) -> str:
    totals, places = answer["totals"], answer["places"]
    if not totals["length"]:
        return "no request waits"
    requests = "request waits" if totals["length"] == 1 else "requests wait"
    lines = [f"{totals['length']} {requests}, {totals['own']} of your project"]
    if places:
        lines.append(brief_table(columns, places))
    return "\n".join(lines)


def _give_up(client: Client, lease: Lease, key: str) -> None:
    """End the lease of a request whose answer, with the lease's id, is lost: the same request, sent again, returns it.

    Raises `KeyboardInterrupt` if that fails or is interrupted as well.
    """
    unknown = "interrupted during the request; gsaas list shows whether a lease was made"
    if seconds := lease.get("keepalive"):
        unknown = (
            f"interrupted during the request; if it has cGPUs, they are released within {seconds} s"
        )
    client.hurry(AFTER_INTERRUPT)
    try:
        made = client.launch(lease, key)["lease"]
        if made["status"] not in ("RELEASING", "RELEASED"):
            client.request("DELETE", f"/v1/leases/{made['id']}")
    except ApiError as error:
        if error.status < 500:
            return  # the launch is refused, or the lease has ended
        raise KeyboardInterrupt(unknown) from None
    except (ClientError, KeyboardInterrupt):
        raise KeyboardInterrupt(unknown) from None


def _add_options(
    client: Client, lease: dict[str, Any], args: SimpleNamespace, attended: bool
) -> None:
    """Add `-wait`, `-priority`, `-for`, `-until` and `-reservation` to a request; *attended*: the client stays to wait.

    Raises `UsageError` where they contradict each other.
    """
    lease |= end_from_options(args)
    if getattr(args, "movable", None):
        lease["movable"] = args.movable
    if getattr(args, "reservation", None):
        lease["reservation"] = finding.reservation_id(client, args.reservation)
    if args.priority is not None:
        lease["priority"] = args.priority
    if args.wait is not None:
        lease["wait"] = None if args.wait == FOREVER else args.wait
        lease["attended"] = attended


def end_from_options(args: SimpleNamespace) -> dict[str, Any]:
    """Return the fields of a lease's end for the options given. Raises `UsageError` for both `-for` and `-until`."""
    duration = getattr(args, "for")
    if duration is not None and args.until is not None:
        raise UsageError("-for and -until cannot be combined: each says when the lease ends")
    if duration is not None:
        return {"duration": duration}
    return {} if args.until is None else {"ends_at": args.until}


def _poll(client: Client, lease: Lease, seconds: int) -> Lease:
    """Return *lease* when it is not QUEUED any more, or after *seconds*.

    An API that is restarted is asked again: the place in the queue is in its database.
    """
    path = f"/v1/leases/{lease['id']}?while_status=QUEUED&timeout={seconds}"
    version = version_of(lease)
    started_at = time.monotonic()
    while True:
        try:
            answer = client.request("GET", path, version=version)
        except (UnreachableError, ApiError) as error:
            away = isinstance(error, UnreachableError) or error.status in (502, 503, 504)
            if not away or time.monotonic() - started_at > OUTAGE_TIMEOUT:
                raise
            time.sleep(RETRY_DELAY)
            continue
        lease = answer["lease"]
        if lease["status"] == "QUEUED" and time.monotonic() - started_at < RETRY_DELAY / 2:
            # The API has too many waiting clients to delay this answer: do not ask again at once.
            time.sleep(RETRY_DELAY)
        return lease


def describe_position(place: dict[str, Any] | None) -> str:
    """Return a lease's position in the queue and how long it will take; empty if it has just left the queue."""
    if place is None:
        return ""
    estimate = describe_estimate(place["estimate_seconds"])
    position = f"{place['position']} of {place['length']}"
    return f"{position}, {estimate}" if estimate else position
