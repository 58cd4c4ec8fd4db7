# SPDX-License-Identifier: Apache-2.0
"""`gsaas gpus`: the GPUs of the cloud, and how much of them is free; their models for who may not see each GPU."""

from __future__ import annotations

from types import SimpleNamespace

from gsaasclient.api import API_VERSION
from gsaasclient.cli import finding, inventory, models
from gsaasclient.cli.columns import Column, select
from gsaasclient.cli.output import brief_table, print_resource
from gsaasclient.cli.parser import UsageError
from gsaasclient.errors import ApiError

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


def _mode(gpu: dict[str, Any]) -> str:
    """Return how leases use *gpu*, and what of it they cannot have because it is kept for reservations."""
    mode: str = gpu["mode"]
    kept = gpu.get("reserved_mb")
    return f"{mode}, {kept} MiB reserved" if kept else mode


COLUMNS = (
    Column("uuid", "GPU", least=12),
    Column("host", least=6),
    Column("index"),
    Column("kind", value=lambda gpu: gpu.get("kind")),
    Column("model", brief=lambda gpu: models.brief_model(gpu["model"]), least=8),
    Column("used_mb", "MiB held"),
    Column("memory_mb", "of"),
    Column("leases", text=lambda gpu: len(gpu["leases"])),
    _reading("used_mb", "MiB in use", "reading_used_mb"),
    _reading("utilisation", "busy %"),
    _reading("mean_utilisation", "mean %"),
    _reading("temperature_c", "°C"),
    _reading("power_w", "W"),
    Column(
        "state",
        value=lambda gpu: inventory.state(gpu, _mode(gpu)),
        brief=lambda gpu: inventory.brief_state(gpu, _mode(gpu)).replace(" MiB ", " "),
        least=19,
    ),
)
TABLE = ("uuid", "host", "model", "used_mb", "memory_mb", "leases", "state")
"""The columns of the table, unless others are picked."""


ADOPTION = "1.2"
"""The first microversion of the API in which a GPU moves only with an operator's consent."""
KINDS = "1.9"
"""The first microversion of the API whose GPUs have a kind."""
RESERVED = "1.7"
"""The first microversion of the API whose GPUs say how much of them is kept for reservations."""


def gpus(client: Client, args: SimpleNamespace) -> int:
    """List the GPUs, or take one out of service, return it to service, or consent to its move to another host."""
    if args.host and not args.adopt:
        raise UsageError("-host is valid only with -adopt")
    if args.adopt:
        if args.disable or args.enable:
            raise UsageError("-adopt cannot be combined with -disable or -enable")
        return _adopt(client, args)
    for version in (KINDS, RESERVED, ADOPTION):
        try:
            return _list(client, args, version)
        except ApiError as error:
            if error.code != "gsaas.microversion.unsupported":
                raise
    return _list(client, args, API_VERSION)  # an older service


def _list(client: Client, args: SimpleNamespace, version: str) -> int:
    return inventory.run(
        client,
        args,
        "gpu",
        COLUMNS,
        TABLE,
        order=lambda gpu: (gpu["host"], gpu["index"]),
        problems=_disputes,
        version=version,
        find=lambda called: finding.gpu_uuid(client, called),
        instead=lambda: _models(client, args),
    )


def _models(client: Client, args: SimpleNamespace) -> tuple[dict[str, Any], str]:
    """Return the models of GPUs for a caller who may not see each GPU; none of an older API, or in CSV and values."""
    if args.c or args.f in ("csv", "value"):
        return {}, ""
    try:
        found = models.of(client)
    except ApiError as error:
        if error.code in ("gsaas.microversion.unsupported", "gsaas.forbidden"):
            return {}, ""
        raise
    return {"models": found}, models.describe(found) if found else ""


def _disputes(gpu: dict[str, Any]) -> list[str]:
    """Return a line for each other host that reports *gpu*."""
    return [
        f"{gpu['uuid']} of {gpu['host']} is reported by {host}, too; if it was moved there: "
        f"gsaas gpus -adopt={gpu['uuid']} -host={host}"
        for host in gpu.get("reported_by", [])
    ]


def _adopt(client: Client, args: SimpleNamespace) -> int:
    """Consent to the move of a GPU to `-host`, or to the only other host that reports it."""
    from urllib.parse import quote

    columns = select(COLUMNS, args.c)
    path = f"/v1/gpus/{quote(finding.gpu_uuid(client, args.adopt), safe='')}"
    host = args.host or _only_reporter(client, path)
    answer = client.request("POST", f"{path}/adopt", {"adopt": {"host": host}}, ADOPTION)
    gpu = answer["gpu"]
    print_resource(args, columns, gpu, gpu, lambda: brief_table(select(COLUMNS, TABLE), [gpu]))
    return 0


def _only_reporter(client: Client, path: str) -> str:
    """Return the only other host that reports a GPU. Raises `UsageError` if there is none, or several."""
    gpu = client.request("GET", path, version=ADOPTION)["gpu"]
    reporters: list[str] = gpu["reported_by"]
    if not reporters:
        raise UsageError(f"no host but {gpu['host']} reports {gpu['uuid']}")
    if len(reporters) > 1:
        raise UsageError(
            f"several hosts report it; add -host with one of these: {', '.join(reporters)}"
        )
    return reporters[0]
