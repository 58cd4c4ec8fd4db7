"""Leases on the command line: launch, terminate, list, show, env."""

from __future__ import annotations

import sys
from collections.abc import Callable
from time import sleep
from types import SimpleNamespace

from gsaas.cli import cgpus, queue
from gsaas.cli.output import Progress, note, print_json
from gsaas.cli.paging import pages
from gsaas.cli.parser import UsageError
from gsaas.cli.tables import facts, table
from gsaas.client import ApiError, Client, ClientError, UnreachableError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Lease = dict[str, Any]

FIRST_PAUSE, LONGEST_PAUSE = 0.02, 1.0
"""Seconds between two looks at a lease on its way; each pause is half as long again as the last."""
UUID_LENGTH = 36
FAILED = "a GPU of it has failed, or nobody knows how it is; it may come back"
"""Why a lease is degraded, for those who are not told."""


def launch(client: Client, args: SimpleNamespace) -> int:
    """Ask for a lease and its VM, and wait until it works."""
    lease = {"cgpus": cgpus.from_options(args), "server": server(client, args)}
    if args.name:
        lease["name"] = args.name
    answer = queue.ask(client, args, lease)
    for sentence in answer.get("notes", []):
        note(sentence)
    lease = answer["lease"]
    if not args.nowait:
        try:
            lease = follow(client, lease, lambda status: status not in ("CLAIMED", "BOOTING"))
        except KeyboardInterrupt:
            raise KeyboardInterrupt(
                f"interrupted, but the launch goes on: gsaas show {lease['id']} tells how, "
                f"gsaas -t -id={lease['id']} ends it"
            ) from None
    if args.f == "json":
        print_json(lease)
    else:
        print(describe(lease))
    return _launched(lease, args.nowait)


def _launched(lease: Lease, nowait: bool) -> int:
    if nowait or lease["status"] == "ACTIVE":
        return 0
    fault = lease.get("fault")
    if fault is None:  # somebody terminated it meanwhile
        raise ClientError(f"lease {lease['id']} did not become active: it is {lease['status']}")
    raise ClientError(f"lease {lease['id']} failed{_at(fault)}: {fault['message']}")


def terminate(client: Client, args: SimpleNamespace) -> int:
    """End a lease, and wait until all of it is given back."""
    found = find(client, needed(args.id))
    lease = client.request("DELETE", _path(found["id"]))["lease"]
    if not args.nowait:
        try:
            lease = follow(client, lease, lambda status: status == "RELEASED")
        except KeyboardInterrupt:
            raise KeyboardInterrupt(
                f"interrupted, but lease {lease['id']} goes on being released"
            ) from None
    if args.f == "json":
        print_json(lease)
    else:
        given_back = f", cGPUs given back: {lease['cgpus']['count']}"
        if found["status"] == "QUEUED":
            given_back = ", its place in the queue is given back"
        print(f"lease {lease['id']}  {lease['status']}{'' if args.nowait else given_back}")
    return 0


def list_all(client: Client, args: SimpleNamespace) -> int:
    """Every lease that matches, page by page."""
    from urllib.parse import urlencode

    query = {"status": args.status, "name": args.name, "all_projects": "true" if args.all else None}
    query = urlencode({key: value for key, value in query.items() if value})
    leases = pages(client, "/v1/leases" + (f"?{query}" if query else ""), "leases")["leases"]
    if args.f == "json":
        print_json(leases)
    elif leases:
        rows = [
            (
                lease["id"],
                lease["name"],
                lease["status"] + (", degraded" if lease["degraded"] else ""),
                lease["cgpus"]["count"],
                _size(lease["cgpus"]),
                (lease["server"] or {}).get("id"),
            )
            for lease in leases
        ]
        print(table(("lease", "name", "status", "cGPUs", "each", "VM"), rows))
    else:
        print("no leases; gsaas -l -ncgpus=1 launches a VM with one cGPU")
    return 0


def show(client: Client, args: SimpleNamespace) -> int:
    """One lease and its story."""
    lease = find(client, needed(args.id))
    lease = client.request("GET", _path(lease["id"]))["lease"]
    if args.f == "json":
        print_json(lease)
        return 0
    print(describe(lease))
    if events := lease.get("events"):
        print()
        columns = ["at", "event", "status"]
        if any(event["detail"] for event in events):  # told to administrators only
            columns.append("detail")
        print(table(columns, [[event[column] for column in columns] for event in events]))
    return 0


def env(client: Client, args: SimpleNamespace) -> int:
    """The environment of a lease, in the form asked for."""
    forms = [form for form in ("shell", "dotenv", "json") if getattr(args, form)]
    if len(forms) > 1:
        raise UsageError(f"-{forms[0]} and -{forms[1]} do not go together")
    answer = environment(client, find(client, needed(args.id)), *forms or ["shell"])
    if isinstance(answer, str):
        sys.stdout.write(answer if answer.endswith("\n") else f"{answer}\n")
    else:
        print_json(answer["environment"])
    return 0


def environment(client: Client, lease: Lease, form: str) -> Any:
    return client.request("GET", f"{_path(lease['id'])}/environment?format={form}")


def server(client: Client, args: SimpleNamespace) -> dict[str, Any]:
    """Nova's server fields for the options given; fields not asked for are left to the cloud."""

    def resolved(noun: str, name: str | None) -> str | None:
        return name and client.resolve(noun, name)

    fields = {
        "name": args.name,
        "imageRef": resolved("image", args.image),
        "flavorRef": resolved("flavor", args.flavor),
        "networks": [{"uuid": resolved("network", network)} for network in args.network],
        "key_name": args.key,
        "user_data": _user_data(args.userdata) if args.userdata else None,
    }
    return {name: value for name, value in fields.items() if value}


def _user_data(path: str) -> str:
    from base64 import b64encode
    from pathlib import Path

    try:
        return b64encode(Path(path).read_bytes()).decode()
    except OSError as error:
        raise UsageError(f"-userdata={path} cannot be read: {error.strerror}") from None


def find(client: Client, wanted: str) -> Lease:
    """The lease with this id, of the VM with this id, or with this name if only one has it.

    Raises `ClientError` when there is none, or when a name means several.
    """
    from urllib.parse import urlencode

    if len(wanted) == UUID_LENGTH and wanted.count("-") == 4:
        try:
            return client.request("GET", _path(wanted))["lease"]
        except ApiError as error:
            if error.status != 404:
                raise
        query = urlencode({"server_id": wanted})
        if leases := client.request("GET", f"/v1/leases?{query}")["leases"]:
            return leases[0]
    query = urlencode({"name": wanted})
    leases = client.request("GET", f"/v1/leases?{query}")["leases"]
    if not leases:
        raise ClientError(f"there is no lease or VM {wanted}; gsaas list shows yours")
    if len(leases) > 1:
        ids = ", ".join(lease["id"] for lease in leases)
        raise ClientError(f"{len(leases)} leases are named {wanted}; say which by its id: {ids}")
    return leases[0]


def follow(client: Client, lease: Lease, settled: Callable[[str], bool]) -> Lease:
    """Look at a lease until its status is *settled*, telling whoever watches how it gets on.

    If the API goes away meanwhile, the error says which lease is left to itself.
    """
    pause = FIRST_PAUSE
    with Progress() as progress:
        progress.show(lease["status"])
        while not settled(lease["status"]):
            sleep(pause)
            pause = min(pause * 1.5, LONGEST_PAUSE)
            try:
                lease = client.request("GET", _path(lease["id"]))["lease"]
            except UnreachableError as error:
                raise UnreachableError(f"{error} The lease is {lease['id']}") from error
            progress.show(lease["status"])
    return lease


def describe(lease: Lease) -> str:
    """A lease for people: its cGPUs, its ids, and how to go on."""
    server, consumer = lease["server"] or {}, lease["consumer"] or {}
    pairs = [
        ("lease", lease["id"]),
        ("name", lease["name"]),
        ("VM", server.get("id") if lease["server"] else "none"),
        ("asked", cgpus.to_options(lease["cgpus"])),
        ("policy", lease["cgpus"]["policy"]),
        ("status", lease["status"]),
    ]
    if lease.get("queue"):
        pairs.append(("turn", queue.standing(lease["queue"])))
    if server.get("host"):
        pairs.insert(3, ("VM's host", server["host"]))
    if consumer.get("host"):
        pairs.insert(3, ("used on", consumer["host"]))
    if lease["degraded"]:
        pairs.append(("degraded", "; ".join(lease.get("degraded_reasons", [FAILED]))))
    if lease.get("fault"):
        pairs.append(("fault", f"{lease['fault']['message']}{_at(lease['fault'])}"))
    dropped = {why: n for why, n in (lease.get("dropped_packets") or {}).items() if n}
    if dropped:
        pairs.append(("dropped", ", ".join(f"{n} {why}" for why, n in dropped.items())))
    if lease["status"] == "ACTIVE" and lease.get("timings"):
        pairs.append(("took", _took(lease["timings"])))
    parts = [facts(pairs)]
    if lease["devices"]:
        parts.append(_devices(lease))
    if lease["status"] in ("CLAIMED", "BOOTING", "ACTIVE"):
        parts.append(_how_to_go_on(lease))
    return "\n\n".join(parts)


def _took(timings: dict[str, float]) -> str:
    """The phases of a launch, each with its time; most of them are far below a second."""
    phases = ((phase.replace("_", " "), seconds) for phase, seconds in timings.items())
    return ", ".join(
        f"{phase} {seconds:.1f} s" if seconds >= 1 else f"{phase} {seconds * 1000:.1f} ms"
        for phase, seconds in phases
    )


def _devices(lease: Lease) -> str:
    """One row for each cGPU; administrators, and consumers who need it, also see which GPU it is."""
    columns = {
        "index": "cGPU",
        "masked_address": "masked address",
        "memory_mb": "MiB",
        "gpu_uuid": "GPU",
        "gpu_host": "on",
        "real_address": "real address",
    }
    told = [name for name in columns if lease["devices"][0].get(name) is not None]
    headings = [columns[name] for name in told]
    rows = [[device[name] for name in told] for device in lease["devices"]]
    after = told.index("memory_mb") + 1
    headings.insert(after, "mode")
    for row in rows:
        row.insert(after, lease["cgpus"]["mode"])
    return table(headings, rows)


def _size(cgpus: dict[str, Any]) -> str:
    return f"{cgpus['memory_mb']} MiB" if cgpus["memory_mb"] else "whole GPU"


def _how_to_go_on(lease: Lease) -> str:
    end = (lease["server"] or {}).get("id") or lease["id"]
    return facts(
        [
            (f"gsaas env {lease['id']}", "what programs need to find its cGPUs"),
            (f"gsaas -t -id={end}", "end it"),
        ]
    )


def _at(fault: dict[str, str | None]) -> str:
    return f" at {fault['step']}" if fault["step"] else ""


def _path(lease_id: str) -> str:
    from urllib.parse import quote

    return f"/v1/leases/{quote(lease_id, safe='')}"


def needed(wanted: str | None) -> str:
    if wanted is None:
        raise UsageError("-id is needed: a lease's id, its VM's id, or a lease's name")
    return wanted
