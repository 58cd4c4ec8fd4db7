# SPDX-License-Identifier: Apache-2.0
"""`gsaas move`: administrators move cGPUs of a lease to other GPUs, while its VM or its programs go on."""

from __future__ import annotations

from time import sleep
from types import SimpleNamespace

from gsaasclient import ClientError
from gsaasclient.api import MOVES_VERSION
from gsaasclient.cli import finding, leases
from gsaasclient.cli.columns import Column, select
from gsaasclient.cli.exit_statuses import DONE, FAILED
from gsaasclient.cli.output import print_resource

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from gsaasclient import Client

PAUSE = 0.5
"""Seconds between two looks at a lease that moves."""
BEGAN, MOVED, UNDONE = "move", "moved", "move-undone"
"""Events of a lease."""


def _places(move: dict[str, Any]) -> str:
    return "; ".join(
        f"cGPU {cgpu['index']} from {cgpu['from']['gpu_uuid']} of {cgpu['from']['gpu_host']} "
        f"to {cgpu['to']['gpu_uuid']} of {cgpu['to']['gpu_host']}"
        for cgpu in move["cgpus"]
    )


COLUMNS = (
    Column("lease_id", "lease"),
    Column("kind"),
    Column("connections", "open connections"),
    Column("stage"),
    Column("cgpus", text=_places),
)
KINDS = {
    "idle": "only if no connection is open then",
    "cut": "open connections are cut",
}


def move(client: Client, args: SimpleNamespace) -> int:
    """Move cGPUs of a lease, and wait until programs reach them there, or it is known that they stay."""
    columns = select(COLUMNS, args.c)
    lease_id = finding.lease(client, leases.require_id(args.id))["id"]
    wanted = {"index": args.index, "gpu": args.to, "host": args.host}
    wanted = {name: value for name, value in wanted.items() if value is not None}
    wanted |= {name: True for name in ("force",) if args.force}
    wanted |= {"dry_run": True} if args.check else {}
    path = f"{leases.path_of(lease_id)}/move"
    begun = client.request("POST", path, {"move": wanted}, version=MOVES_VERSION)["move"]
    outcome = None
    if not (args.check or args.nowait):
        outcome = _wait(client, lease_id)
    print_resource(args, columns, begun, begun, lambda: _describe(begun, outcome, args.check))
    return FAILED if outcome is not None and outcome["event"] != MOVED else DONE


def _wait(client: Client, lease_id: str) -> dict[str, Any]:
    """Return the event with which the move ended that began last. Raises `ClientError` if the lease ended before."""
    while True:
        lease = client.request("GET", leases.path_of(lease_id))["lease"]
        for event in reversed(lease["events"]):
            if event["event"] in (MOVED, UNDONE):
                ended: dict[str, Any] = event
                return ended
            if event["event"] == BEGAN:
                break
        if lease["status"] != "ACTIVE":
            raise ClientError(f"lease {lease_id} is {lease['status']}: it ended while it moved")
        try:
            sleep(PAUSE)
        except KeyboardInterrupt:
            raise KeyboardInterrupt(
                f"the move goes on; gsaas show {lease_id} says whether it has moved"
            ) from None


def _describe(move: dict[str, Any], outcome: dict[str, Any] | None, is_check: bool) -> str:
    lease, places = f"lease {move['lease_id']}", _places(move)
    if outcome is not None and outcome["event"] == MOVED:
        return f"{lease} has moved: {places}"
    if outcome is not None:
        return f"{lease} stays where it was: {outcome['detail']}"
    verb = "would move" if is_check else "moves"
    return f"{lease} {verb}, {KINDS.get(move['kind'], move['kind'])}: {places}"
