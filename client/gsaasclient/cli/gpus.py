# SPDX-License-Identifier: Apache-2.0
"""`gsaas gpus`: the GPUs of the cloud, and how much of them is free."""

from __future__ import annotations

from types import SimpleNamespace

from gsaasclient.cli import inventory
from gsaasclient.cli.columns import Column

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from gsaasclient import Client


def _reading(field: str, heading: str, name: str | None = None) -> Column:
    """Return the column of a value that the monitor read; a dash in tables where it could not."""

    def value(gpu: dict[str, Any]) -> float | None:
        reading: dict[str, float | None] = gpu["reading"] or {}
        return reading.get(field)

    return Column(name or field, heading, value, text=lambda gpu: _rounded(value(gpu)))


def _rounded(value: float | None) -> str | None:
    return None if value is None else f"{value:.0f}"


COLUMNS = (
    Column("uuid", "GPU"),
    Column("host"),
    Column("index"),
    Column("model"),
    Column("used_mb", "MiB held"),
    Column("memory_mb", "of"),
    Column("leases", text=lambda gpu: len(gpu["leases"])),
    _reading("used_mb", "MiB in use", "reading_used_mb"),
    _reading("utilisation", "busy %"),
    _reading("mean_utilisation", "mean %"),
    _reading("temperature_c", "°C"),
    _reading("power_w", "W"),
    Column("state", value=lambda gpu: inventory.state(gpu, gpu["mode"])),
)


def gpus(client: Client, args: SimpleNamespace) -> int:
    """List the GPUs, or take one out of service, or return it to service."""
    return inventory.run(
        client, args, "gpu", COLUMNS, order=lambda gpu: (gpu["host"], gpu["index"])
    )
