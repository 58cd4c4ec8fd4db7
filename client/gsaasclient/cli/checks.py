# SPDX-License-Identifier: Apache-2.0
"""`gsaas check`: whether a request would fit now."""

from __future__ import annotations

from types import SimpleNamespace

from gsaasclient import Client
from gsaasclient.api import API_VERSION, CHECKS_VERSION, version_for
from gsaasclient.cli import cgpus, finding
from gsaasclient.cli.columns import Column, select
from gsaasclient.cli.error_details import capacity
from gsaasclient.cli.exit_statuses import DONE, status_of
from gsaasclient.cli.output import print_resource
from gsaasclient.cli.tables import table

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

COLUMNS = (
    Column("fits"),
    Column("code", value=lambda answer: answer.get("code")),
    Column("reason", value=lambda answer: answer.get("reason")),
    Column("nearest", "would fit now", lambda answer: _nearest(answer)),
)


def check(client: Client, args: SimpleNamespace) -> int:
    """Print whether the request would fit now, and return the exit status that says the same."""
    columns = select(COLUMNS, args.c)
    request = cgpus.from_options(args)
    body, version = dict(request), API_VERSION
    if args.on is not None:
        body["consumer"] = {"host": args.on}
    if args.reservation:
        body["reservation"] = finding.reservation_id(client, args.reservation)
        version = CHECKS_VERSION
    version = version_for(request, version)
    answer = client.request("POST", "/v1/checks", {"check": body}, version=version)["check"]
    print_resource(args, columns, answer, answer, lambda: _describe(answer, request, args))
    return DONE if answer["fits"] else status_of(answer["code"])


def _describe(answer: dict[str, Any], request: dict[str, Any], args: SimpleNamespace) -> str:
    if answer["fits"]:
        options = cgpus.to_options(request)
        command = f"alloc {options} -on={args.on}" if args.on else f"-l {options}"
        if args.reservation:
            command += f" -reservation={args.reservation}"
        lines = [f"it fits: gsaas {command}"]
        if "gpu_uuid" in answer["devices"][0]:  # for administrators only
            rows = [(d["gpu_uuid"], d["gpu_host"], d["memory_mb"]) for d in answer["devices"]]
            lines.append(table(("GPU", "on", "MiB"), rows))
        return "\n".join(lines)
    never = answer["code"] == "gsaas.capacity.impossible"
    return "\n".join(
        [
            f"it {'can never fit' if never else 'does not fit now'}: {answer['reason']}",
            *capacity(answer["filters"], answer["nearest"], answer["relaxed"]),
        ]
    )


def _nearest(answer: dict[str, Any]) -> str | None:
    nearest = answer.get("nearest")
    return cgpus.to_options(nearest) if nearest else None
