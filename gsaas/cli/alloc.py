"""cGPUs for whoever types: `gsaas alloc` takes them and prints their environment, `gsaas release` gives them back."""

from __future__ import annotations

import os
import socket
import sys
from types import SimpleNamespace

from gsaas.cli import cgpus, leases, queue
from gsaas.cli.output import note, print_json
from gsaas.cli.spelling import UsageError
from gsaas.client import Client, ClientError
from gsaas.grants import grant_client

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any


def alloc(client: Client, args: SimpleNamespace) -> int:
    """Take cGPUs and print the environment with which programs find them."""
    asked: dict[str, Any] = {
        "cgpus": cgpus.from_options(args),
        "server": None,
        "consumer": consumer(args),
    }
    if args.name:
        asked["name"] = args.name
    answer = queue.ask(client, args, asked)
    for sentence in answer.get("notes", []):
        note(sentence)
    lease = answer["lease"]
    try:
        if lease["status"] != "ACTIVE":
            lease = leases.follow(client, lease, lambda status: status != "CLAIMED")
        if lease["status"] != "ACTIVE":
            raise ClientError(_what_went_wrong(lease))
        environment = answer.get("environment")
        if environment is None:
            environment = leases.environment(client, lease, "json")["environment"]
        if args.on is None and grant_client.GATE in environment:
            show_grant(environment)
            environment = leases.environment(client, lease, "json")["environment"]
        if args.f == "json":
            print_json({"lease": lease, "environment": environment})
        else:
            from gsaas.cloudinit.environment import shell_exports

            sys.stdout.write(shell_exports(environment))
    except BaseException:
        # Whoever did not read the environment would not know what to give back.
        client.request("DELETE", f"/v1/leases/{lease['id']}")
        raise
    return 0


def release(client: Client, args: SimpleNamespace) -> int:
    """Give back the cGPUs of a lease: the one named, or the shell's own."""
    wanted = args.id or os.environ.get(grant_client.LEASE)
    if not wanted:
        raise UsageError(f"-id is needed, because {grant_client.LEASE} is not set: which lease")
    args.id = wanted
    return leases.terminate(client, args)


def redeem(_client: None, _args: SimpleNamespace) -> int:
    """Have this host admitted to the GPUs of the lease whose environment this is."""
    missing = [
        name
        for name in (grant_client.LEASE, grant_client.GRANT, grant_client.GATE)
        if not os.environ.get(name)
    ]
    if missing:
        raise UsageError(
            f"{' and '.join(missing)} not set; evaluate the environment of a lease first, and if it has no "
            "grant, none is needed"
        )
    show_grant(os.environ)
    print(f"this host is admitted to lease {os.environ[grant_client.LEASE]}")
    return 0


def show_grant(environment: Mapping[str, str]) -> None:
    """Show a lease's grant where its environment says; raises `ClientError`."""
    lease_id = environment[grant_client.LEASE]
    try:
        grant_client.present(
            environment[grant_client.GATE], lease_id, environment[grant_client.GRANT]
        )
    except grant_client.NotAdmitted as refusal:
        raise ClientError(f"lease {lease_id} cannot be used from here: {refusal}") from refusal


def consumer(args: SimpleNamespace) -> dict[str, Any]:
    """The API's `consumer` for the options given: by default this user, on this host."""
    told: dict[str, Any] = {"host": args.on or socket.gethostname()}
    if args.uid is None:
        told["uid"] = os.getuid()
    elif args.uid != "any":
        told["uid"] = args.uid
    return told


def user_id(value: str) -> int | str:
    """A number, or `any`."""
    if value == "any":
        return value
    if not (value.isascii() and value.isdecimal()):
        raise ValueError(f"needs the number of a user or any, not '{value}'")
    return int(value)


def _what_went_wrong(lease: dict[str, Any]) -> str:
    fault = lease.get("fault")
    said = f": {fault['message']}" if fault else ""
    return f"lease {lease['id']} cannot be used, it is {lease['status']}{said}"
