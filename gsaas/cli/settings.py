"""`gsaas settings`: what an operator may change while the service runs."""

from __future__ import annotations

from types import SimpleNamespace

from gsaas.cli.output import print_json
from gsaas.cli.tables import facts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gsaas.client import Client

PATH = "/v1/settings"


def settings(client: Client, args: SimpleNamespace) -> int:
    """Show the settings, or change one."""
    if args.interval is None:
        answer = client.request("GET", PATH)
    else:
        interval = None if args.interval == "default" else args.interval
        answer = client.request("PATCH", PATH, {"settings": {"monitor_interval": interval}})
    if args.f == "json":
        print_json(answer["settings"])
        return 0
    interval = answer["settings"]["monitor_interval"]
    told = "as their configuration says" if interval is None else f"every {interval:g} s"
    print(facts([("GPU hosts report", told)]))
    return 0
