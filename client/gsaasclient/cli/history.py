# SPDX-License-Identifier: Apache-2.0
"""`gsaas history`: the leases that have ended, and what each of them used."""

from __future__ import annotations

from time import time
from types import SimpleNamespace

from gsaasclient import lease_fields, quantities
from gsaasclient.cli import readings
from gsaasclient.cli.columns import Column, id_column, select
from gsaasclient.cli.finding import SORTING_VERSION
from gsaasclient.cli.output import brief_table, print_list
from gsaasclient.cli.paging import get_all
from gsaasclient.cli.parser import UsageError
from gsaasclient.times import local, minute, short

TYPE_CHECKING = False
if TYPE_CHECKING:
    from datetime import datetime
    from typing import Any

    from gsaasclient import Client

    Lease = dict[str, Any]
    """A lease as the API shows it."""
MANY = 1000
"""From how many on a number has no decimals."""


def _rounded(name: str, digits: int) -> Column:
    (field,) = lease_fields.named([name])

    def text(lease: Lease) -> str | None:
        value = field.value(lease)
        return None if value is None else f"{value:.{0 if value >= MANY else digits}f}"

    return Column(name, _HEADINGS[name], field.value, text=text)


_HEADINGS = {
    "gpu_hours": "GPU-h",
    "mean_utilisation": "mean %",
    "peak_utilisation": "peak %",
}


def _time(name: str, heading: str) -> Column:
    """Return the column of a time."""
    return Column(
        name,
        heading,
        lambda lease: lease.get(name),
        text=lambda lease: local(lease.get(name)),
        brief=lambda lease: short(lease.get(name), time()),
    )


COLUMNS = (
    id_column("id", "lease"),
    Column("name", least=6),
    Column("project_id", "project", optional=True),
    _time("claimed_at", "from"),
    _time("released_at", "to"),
    Column("took", None, lambda lease: _seconds(lease), text=lambda lease: _took(lease)),
    Column("cgpus", "cGPUs", lambda lease: lease["cgpus"]["count"]),
    Column("memory_mb", "each MiB", lambda lease: lease["cgpus"]["memory_mb"], optional=True),
    _rounded("gpu_hours", 2),
    _rounded("mean_utilisation", 0),
    _rounded("peak_utilisation", 0),
    Column(
        "peak_memory_mb", "peak MiB", lambda lease: (lease.get("usage") or {}).get("peak_memory_mb")
    ),
)

TABLE = (
    *("id", "name", "claimed_at", "took", "cgpus", "gpu_hours", "mean_utilisation"),
    *("peak_utilisation", "peak_memory_mb"),
)
"""The columns of the table, unless others are picked."""


def history(client: Client, args: SimpleNamespace) -> int:
    """List the leases that have ended since a time, the last one at the end."""
    from datetime import UTC, datetime
    from urllib.parse import urlencode

    columns = select(COLUMNS, args.c)
    since = _since(args.since, datetime.now(UTC)).isoformat()
    query = {
        "status": "RELEASED",
        "changes-since": since,
        "sort_key": "released_at",
        **({"all_projects": "true"} if args.all else {}),
        **({"name": args.name} if args.name else {}),
    }
    path = f"/v1/leases?{urlencode(query)}"
    found = readings.with_readings(
        lambda version: get_all(client, path, "leases", version), SORTING_VERSION
    )["leases"]

    def text() -> str:
        if not found:
            return f"no lease has ended since {minute(since)}"
        return brief_table(select(COLUMNS, TABLE), found)

    print_list(args, columns, found, found, text)
    return 0


def _since(text: str, now: datetime) -> datetime:
    """Return the moment that `-since` names: how long ago, or a time. Raises `UsageError`."""
    from datetime import timedelta

    try:
        return now - timedelta(seconds=quantities.seconds(text))
    except (ValueError, OverflowError):
        pass
    try:
        return quantities.moment(text, now)
    except ValueError as error:
        raise UsageError(f"-since {error}, or how long ago it is, such as 7d") from None


def _seconds(lease: Lease) -> float | None:
    """Return for how long a lease had its GPUs; None if it never had any."""
    from datetime import datetime

    begin, end = lease.get("claimed_at"), lease["released_at"]
    if begin is None or end is None:
        return None
    return (datetime.fromisoformat(end) - datetime.fromisoformat(begin)).total_seconds()


def _took(lease: Lease) -> str | None:
    """Return how long it had its GPUs in the two largest units, such as `3h12m`; None for None."""
    exact = _seconds(lease)
    if exact is None:
        return None
    rest = round(exact)
    parts: list[str] = []
    for unit, length in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        count, rest = divmod(rest, length)
        if count or parts or unit == "s":
            parts.append(f"{count}{unit}")
    return "".join(parts[:2])
