"""What `gsaas top` shows, as lines of text: a snapshot in, lines out. It knows no terminal and no API.

Of a memory bar, `#` is in use, `-` is held by leases and not in use, and `.` is free.
"""

from __future__ import annotations

from types import SimpleNamespace

from gsaas.cli.queue import describe_estimate
from gsaas.cli.tables import cell, table

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

BAR = 20
"""Characters of a memory bar."""
NAMED = 3
"""Leases that are named beside a GPU; of more, only the number is told."""


class Snapshot(SimpleNamespace):
    """What the API said: `totals`, `gpus` (None for whom it does not tell), `silent_hosts`, `leases`, `queue`."""


def _reading(field: str) -> Any:
    def key(gpu: dict[str, Any]) -> tuple[float, str, int]:
        value = (gpu["reading"] or {}).get(field)
        return (1.0 if value is None else -value, gpu["host"], gpu["index"])

    return key


ORDERS = {
    "host": lambda gpu: (gpu["host"], gpu["index"]),
    "held": lambda gpu: (-gpu["used_mb"] / gpu["memory_mb"], gpu["host"], gpu["index"]),
    "busy": _reading("utilisation"),
    "temperature": _reading("temperature_c"),
    "power": _reading("power_w"),
}
"""What GPUs can be sorted by."""


def heading(shown: Snapshot) -> str:
    """All GPUs, leases and requests that wait, in one line."""
    totals, waiting = shown.totals, shown.queue["totals"]
    held = totals["memory_mb"] - totals["free_mb"]
    told = (
        f"{_number(totals['gpus'], 'GPU')} on {_number(totals['hosts'], 'host')}",
        f"{totals['idle']} idle",
        f"{held} of {totals['memory_mb']} MiB held or withheld",
        _number(sum(lease["status"] != "QUEUED" for lease in shown.leases), "lease"),
        f"{waiting['length']} waiting, {waiting['own']} of your project",
    )
    return ", ".join(told)


def body(shown: Snapshot, order: str) -> list[str]:
    """The GPUs in this *order*, the leases and the queue, each under its headings, as far as there are any."""
    parts = [_leases(shown.leases), _queue(shown.queue["places"])]
    if shown.gpus is not None:
        parts.insert(0, _gpus(sorted(shown.gpus, key=ORDERS[order]), shown))
    return "\n\n".join(part for part in parts if part).splitlines()


def bar(held_mb: int, used_mb: int | None, memory_mb: int) -> str:
    """Show how much memory of a GPU is in use, if that is known, and how much is held."""
    used = min(BAR, round(BAR * (used_mb or 0) / memory_mb))
    held = min(BAR, round(BAR * held_mb / memory_mb))
    return "#" * used + "-" * max(0, held - used) + "." * (BAR - max(used, held))


def _gpus(gpus: list[dict[str, Any]], shown: Snapshot) -> str:
    holders = {lease["id"]: f"{lease['name']} ({lease['project_id']})" for lease in shown.leases}
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
                "silent" if gpu["host"] in shown.silent_hosts else _state(gpu),
                _held_by(gpu["leases"], holders),
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
            lease["id"],
            lease["name"],
            lease["project_id"],
            lease["status"],
            "degraded" if lease["degraded"] else "",
            lease["cgpus"]["count"],
            _size(lease["cgpus"]),
            lease["created_at"][:19].replace("T", " "),
        )
        for lease in leases
        if lease["status"] != "QUEUED"
    ]
    headings = ("lease", "name", "project", "status", "", "cGPUs", "each", "since (UTC)")
    return table(headings, rows) if rows else ""


def _queue(places: list[dict[str, Any]]) -> str:
    rows = [
        (
            place["lease_id"],
            place["name"],
            place["project_id"],
            place["cgpus"]["count"],
            _size(place["cgpus"]),
            place["position"],
            describe_estimate(place["estimate_seconds"]),
        )
        for place in places
    ]
    return (
        table(("waits", "name", "project", "cGPUs", "each", "turn", "about"), rows) if rows else ""
    )


def _number(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _size(cgpus: dict[str, Any]) -> str:
    return f"{cgpus['memory_mb']} MiB" if cgpus["memory_mb"] else "whole GPU"


def _state(gpu: dict[str, Any]) -> str:
    if gpu["withdrawn"]:
        return "withdrawn"
    return "disabled" if gpu["disabled"] else gpu["mode"]


def _held_by(leases: list[str], holders: dict[str, str]) -> str:
    names = [holders.get(lease, lease) for lease in leases[:NAMED]]
    more = [f"{len(leases) - NAMED} more"] if len(leases) > NAMED else []
    return cell(", ".join(names + more))


def _rounded(value: float | None) -> str | None:
    return None if value is None else f"{value:.0f}"
