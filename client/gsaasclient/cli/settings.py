# SPDX-License-Identifier: Apache-2.0
"""`gsaas settings`: what an administrator may change while the service runs."""

from __future__ import annotations

from types import SimpleNamespace

from gsaasclient.cli.columns import Column, select
from gsaasclient.cli.output import print_resource
from gsaasclient.cli.tables import facts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from gsaasclient import Client

PATH = "/v1/settings"
HEADING = "GPU hosts report"

COLUMNS = (Column("monitor_interval", HEADING, text=lambda settings: _interval(settings)),)


def settings(client: Client, args: SimpleNamespace) -> int:
    """Show the settings, after changing one if an option says so."""
    columns = select(COLUMNS, args.c)
    if args.interval is None:
        answer = client.request("GET", PATH)
    else:
        interval = None if args.interval == "default" else args.interval
        answer = client.request("PATCH", PATH, {"settings": {"monitor_interval": interval}})
    known = answer["settings"]
    print_resource(args, columns, known, known, lambda: facts([(HEADING, _interval(known))]))
    return 0


def _interval(settings: dict[str, Any]) -> str:
    seconds = settings["monitor_interval"]
    return "as their configuration says" if seconds is None else f"every {seconds:g} s"
