"""`gsaas gpus`: what there is, and what is left of it."""

from __future__ import annotations

from types import SimpleNamespace

from gsaas.cli import inventory
from gsaas.cli.tables import table

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from gsaas.client import Client


READ = ("MiB in use", "busy %", "mean %", "°C", "W")
"""Headings of what its monitor read."""


def gpus(client: Client, args: SimpleNamespace) -> int:
    """List the GPUs, or take one out of service."""
    return inventory.command(client, args, "gpu", _table)


def _table(gpus: list[dict[str, Any]]) -> str:
    rows = [
        (
            gpu["uuid"],
            gpu["host"],
            gpu["index"],
            gpu["model"],
            gpu["used_mb"],
            gpu["memory_mb"],
            len(gpu["leases"]),
            *_reading(gpu["reading"] or {}),
            inventory.state(gpu, gpu["mode"]),
        )
        for gpu in sorted(gpus, key=lambda gpu: (gpu["host"], gpu["index"]))
    ]
    return table(
        ("GPU", "host", "index", "model", "MiB held", "of", "leases", *READ, "state"), rows
    )


def _reading(reading: dict[str, Any]) -> list[str | None]:
    """What its monitor read last; a dash for what it could not."""
    return [
        _rounded(reading.get(field))
        for field in ("used_mb", "utilisation", "mean_utilisation", "temperature_c", "power_w")
    ]


def _rounded(value: float | None) -> str | None:
    return None if value is None else f"{value:.0f}"
