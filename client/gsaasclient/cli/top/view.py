# SPDX-License-Identifier: Apache-2.0
"""The text that `gsaas top` shows of a snapshot. This module uses neither a terminal nor the API.

In a memory bar, `#` is in use, `-` is claimed by leases and not in use, and `.` is free.
"""

from __future__ import annotations

from time import time
from types import SimpleNamespace

from gsaasclient import lease_fields
from gsaasclient.cli import readings
from gsaasclient.cli.columns import SHORT_ID
from gsaasclient.cli.leases import describe_status
from gsaasclient.cli.tables import cell, shortened, table
from gsaasclient.times import age, local, rounded

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

BAR_WIDTH = 20
"""Characters of a memory bar."""
LONGEST_NAME = 16
"""Characters of a name, so that 80 columns of a terminal have how busy a lease is; the rest is for wider ones."""
ENDS = "ends at"
"""The heading of the time at which a lease ends that stays idle."""
MAX_NAMES = 3
"""How many leases are named beside a GPU; of further ones only the number is shown."""


class Snapshot(SimpleNamespace):
    """What the API answered at one time.

    totals        GPUs, hosts and memory of the cloud, as in /v1/gpus
    gpus          every GPU; None for callers who may not see them
    silent_hosts  names of hosts that have not reported in time
    leases        the leases that the caller may see
    queue         `totals` and `places`, as in /v1/queue
    """


def _by_reading(field: str) -> Callable[[dict[str, Any]], tuple[float, str, int]]:
    """Return a sort key: the highest readings first, and GPUs without one last."""

    def key(gpu: dict[str, Any]) -> tuple[float, str, int]:
        value = (gpu["reading"] or {}).get(field)
        return (1.0 if value is None else -value, gpu["host"], gpu["index"])

    return key


ORDERS = {
    "host": lambda gpu: (gpu["host"], gpu["index"]),
    "held": lambda gpu: (-gpu["used_mb"] / gpu["memory_mb"], gpu["host"], gpu["index"]),
    "busy": _by_reading("utilisation"),
    "temperature": _by_reading("temperature_c"),
    "power": _by_reading("power_w"),
}
"""Sort keys of GPUs by the name of the order."""


def heading(snapshot: Snapshot) -> str:
    """Return one line with the numbers of GPUs, leases and waiting requests."""
    totals, waiting = snapshot.totals, snapshot.queue["totals"]
    held_mb = totals["memory_mb"] - totals["free_mb"]
    parts = (
        f"{_number(totals['gpus'], 'GPU')} on {_number(totals['hosts'], 'host')}",
        f"{totals['idle']} idle",
        f"{held_mb} of {totals['memory_mb']} MiB claimed or withheld",
        _number(sum(lease["status"] != "QUEUED" for lease in snapshot.leases), "lease"),
        f"{waiting['length']} waiting, {waiting['own']} of your project",
    )
    return ", ".join(parts)


def body(snapshot: Snapshot, order: str) -> list[str]:
    """Return the lines of the tables of GPUs, leases and the queue; empty tables are left out.

    *order*, of the GPUs, is one of `ORDERS`.
    """
    parts = [_leases(snapshot.leases), _queue(snapshot.queue["places"])]
    if snapshot.gpus is not None:
        parts.insert(0, _gpus(sorted(snapshot.gpus, key=ORDERS[order]), snapshot))
    return "\n\n".join(part for part in parts if part).splitlines()


def bar(claimed_mb: int, used_mb: int | None, memory_mb: int) -> str:
    """Return the memory bar of a GPU; *used_mb* is None if it is not known."""
    used = min(BAR_WIDTH, round(BAR_WIDTH * (used_mb or 0) / memory_mb))
    claimed = min(BAR_WIDTH, round(BAR_WIDTH * claimed_mb / memory_mb))
    return "#" * used + "-" * max(0, claimed - used) + "." * (BAR_WIDTH - max(used, claimed))


def _gpus(gpus: list[dict[str, Any]], snapshot: Snapshot) -> str:
    lease_names = {
        lease["id"]: f"{lease['name']} ({lease['project_id']})" for lease in snapshot.leases
    }
    rows = []
    for gpu in gpus:
        reading = gpu["reading"] or {}
        rows.append(
            (
                gpu["host"],
                gpu["index"],
                gpu["model"],
                bar(gpu["used_mb"], reading.get("used_mb"), gpu["memory_mb"]),
                gpu["used_mb"],
                reading.get("used_mb"),
                gpu["memory_mb"],
                *(_rounded(reading.get(f)) for f in ("utilisation", "temperature_c", "power_w")),
                "silent" if gpu["host"] in snapshot.silent_hosts else _state(gpu),
                _held_by(gpu["leases"], lease_names),
            )
        )
    headings = (
        *("host", "", "model", "memory", "MiB held", "in use", "of", "busy %", "°C", "W"),
        *("state", "held by"),
    )
    return table(headings, rows) if rows else ""


def _leases(leases: list[dict[str, Any]]) -> str:
    rows = [
        (
            lease["id"][:SHORT_ID],
            shortened(lease["name"], LONGEST_NAME),
            describe_status(lease),
            lease["cgpus"]["count"],
            _size(lease["cgpus"]),
            _rounded(readings.utilisation(lease)),
            readings.used_mb(lease),
            readings.per_second(readings.path(lease, "sent_bytes_per_second")),
            readings.per_second(readings.path(lease, "received_bytes_per_second")),
            readings.path(lease, "connections"),
            _idle(lease),
            lease["project_id"],
            age(lease["created_at"], time()),
        )
        for lease in leases
        if lease["status"] != "QUEUED"
    ]
    headings = (
        *("lease", "name", "status", "cGPUs", "each", "busy %", "MiB in use"),
        *("sent", "received", "conns", "idle since", "project", "age"),
    )
    return table(headings, rows) if rows else ""


def _idle(lease: dict[str, Any]) -> str | None:
    """Return since when nothing has used *lease*, and what follows if that goes on; None if it is in use."""
    since = local(lease.get("idle_since"))
    ends = [local(field.value(lease)) for field in lease_fields.FIELDS if field.heading == ENDS]
    return f", {ENDS} ".join(filter(None, (since, *ends))) if since else None


def _queue(places: list[dict[str, Any]]) -> str:
    rows = [
        (
            place["lease_id"][:SHORT_ID],
            shortened(place["name"], LONGEST_NAME),
            place["cgpus"]["count"],
            _size(place["cgpus"]),
            place["position"],
            rounded(place["estimate_seconds"]),
            place["project_id"],
        )
        for place in places
    ]
    return (
        table(("waits", "name", "cGPUs", "each", "turn", "about", "project"), rows) if rows else ""
    )


def _number(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _size(cgpus: dict[str, Any]) -> str:
    return f"{cgpus['memory_mb']} MiB" if cgpus["memory_mb"] else "whole GPU"


def _state(gpu: dict[str, Any]) -> str:
    if gpu["withdrawn"]:
        return "withdrawn"
    return "disabled" if gpu["disabled"] else gpu["mode"]


def _held_by(leases: list[str], lease_names: dict[str, str]) -> str:
    """Return the names of the leases with these ids, or the ids of those that the caller may not see."""
    names = [lease_names.get(lease_id, lease_id) for lease_id in leases[:MAX_NAMES]]
    more = [f"{len(leases) - MAX_NAMES} more"] if len(leases) > MAX_NAMES else []
    return cell(", ".join(names + more))


def _rounded(value: float | None) -> str | None:
    return None if value is None else f"{value:.0f}"
