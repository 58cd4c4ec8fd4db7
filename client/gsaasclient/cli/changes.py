# SPDX-License-Identifier: Apache-2.0
"""Changes of a lease on the command line: its name, end and consent to moves, and its priority while it waits."""

from __future__ import annotations

from types import SimpleNamespace

from gsaasclient import Client
from gsaasclient.api import ENDS_VERSION
from gsaasclient.cli import finding, leases, queue, readings
from gsaasclient.cli.columns import select
from gsaasclient.cli.output import print_resource
from gsaasclient.cli.parser import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

COLUMNS = leases.COLUMNS
CHANGES_VERSION = "1.4"
"""The first microversion that has changes of leases."""
NEVER = "never"
"""The argument of `-until` for a lease that is to have no end any more."""


class Longer:
    """The argument of `-for` for a lease that is to last so many *seconds* longer than it would."""

    def __init__(self, seconds: int) -> None:
        self.seconds = seconds


def change(client: Client, args: SimpleNamespace) -> int:
    """Change a lease, and print it as it is then."""
    columns = select(COLUMNS, args.c)
    lease_id = leases.require_id(args.id)
    changes = {name: getattr(args, name) for name in ("name", "priority", "movable")}
    changes = {name: value for name, value in changes.items() if value is not None}
    changes |= queue.end_from_options(args)
    if not changes:
        raise UsageError("nothing to change: give -name, -priority, -movable, -for or -until")
    lease = finding.lease(client, lease_id)
    path = f"/v1/leases/{lease['id']}"
    if isinstance(changes.get("duration"), Longer):
        lease = client.request("GET", path, version=ENDS_VERSION)["lease"]
        changes |= _postponed(lease, changes.pop("duration").seconds)
    if changes.get("ends_at") == NEVER:
        changes["ends_at"] = None

    def send(version: str) -> Any:
        return client.request("PATCH", path, {"lease": changes}, version=version)["lease"]

    if changes.keys() & {"duration", "ends_at", "movable"}:
        lease = send(ENDS_VERSION)
    else:
        lease = readings.with_readings(send, otherwise=CHANGES_VERSION)
    called = finding.called_lease(client, lease) if args.f == "table" else lease["id"]
    print_resource(args, columns, lease, lease, lambda: leases.describe(lease, called))
    return 0


def _postponed(lease: dict[str, Any], seconds: int) -> dict[str, Any]:
    """Return the end of *lease*, postponed by so many seconds. Raises `UsageError` if it has none."""
    if lease["duration"] is not None:
        return {"duration": lease["duration"] + seconds}
    if lease["ends_at"] is None:
        raise UsageError(
            f"lease {lease['id']} has no end that -for=+… could postpone: say how long it is to last in all, or -until"
        )
    # Imported here, because most commands get no time.
    from datetime import datetime, timedelta

    end = datetime.fromisoformat(lease["ends_at"].replace("Z", "+00:00"))
    try:
        return {"ends_at": (end + timedelta(seconds=seconds)).isoformat()}
    except OverflowError:
        raise UsageError(
            f"-for=+{seconds} is longer than time lasts; -until=never is no end"
        ) from None


def duration(value: str) -> int | Longer:
    """Convert to a duration, or after a + to one that is added. Raises `ValueError`."""
    from gsaasclient.quantities import seconds

    return Longer(seconds(value[1:])) if value.startswith("+") else seconds(value)
