"""`gsaas check`: would it fit?"""

from __future__ import annotations

from types import SimpleNamespace

from gsaas.cli import cgpus
from gsaas.cli.output import print_json
from gsaas.cli.refusals import capacity
from gsaas.cli.tables import table
from gsaas.client import Client


def check(client: Client, args: SimpleNamespace) -> int:
    """Say whether the request would fit now; 0 if so, else 1."""
    wanted = cgpus.from_options(args)
    answer = client.request("POST", "/v1/checks", {"check": wanted})["check"]
    if args.f == "json":
        print_json(answer)
    elif answer["fits"]:
        print(f"it fits: gsaas -l {cgpus.to_options(wanted)}")
        if "gpu_uuid" in answer["devices"][0]:
            rows = [(d["gpu_uuid"], d["gpu_host"], d["memory_mb"]) for d in answer["devices"]]
            print(table(("GPU", "on", "MiB"), rows))
    else:
        never = answer["code"] == "gsaas.capacity.impossible"
        print(f"it {'can never fit' if never else 'does not fit now'}: {answer['reason']}")
        for line in capacity(answer["filters"], answer["nearest"]):
            print(line)
    return 0 if answer["fits"] else 1
