"""`gsaas check`: would it fit?"""

from __future__ import annotations

from types import SimpleNamespace

from gsaas.cli import cgpus
from gsaas.cli.error_details import capacity
from gsaas.cli.exit_statuses import DONE, status_of
from gsaas.cli.output import print_json
from gsaas.cli.tables import table
from gsaas.client import Client


def check(client: Client, args: SimpleNamespace) -> int:
    """Say whether the request would fit now; the exit status tells it, too."""
    wanted = cgpus.from_options(args)
    consumer = {} if args.on is None else {"consumer": {"host": args.on}}
    answer = client.request("POST", "/v1/checks", {"check": wanted | consumer})["check"]
    if args.f == "json":
        print_json(answer)
    elif answer["fits"]:
        options = cgpus.to_options(wanted)
        print(f"it fits: gsaas {f'alloc {options} -on={args.on}' if args.on else f'-l {options}'}")
        if "gpu_uuid" in answer["devices"][0]:
            rows = [(d["gpu_uuid"], d["gpu_host"], d["memory_mb"]) for d in answer["devices"]]
            print(table(("GPU", "on", "MiB"), rows))
    else:
        never = answer["code"] == "gsaas.capacity.impossible"
        print(f"it {'can never fit' if never else 'does not fit now'}: {answer['reason']}")
        for line in capacity(answer["filters"], answer["nearest"], answer["relaxed"]):
            print(line)
    return DONE if answer["fits"] else status_of(answer["code"])
