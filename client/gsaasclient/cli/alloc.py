# SPDX-License-Identifier: Apache-2.0
"""cGPUs without a VM: `gsaas alloc` claims them, `gsaas release` releases them, `gsaas redeem` presents their grant."""

from __future__ import annotations

import os
import signal
import socket
from types import SimpleNamespace

from gsaasclient import Client, ClientError, grant_client
from gsaasclient.cli import cgpus, keepalive, leases, queue
from gsaasclient.cli.columns import select
from gsaasclient.cli.interrupts import as_keyboard_interrupt
from gsaasclient.cli.made import given_back_unless_told
from gsaasclient.cli.output import print_note, print_resource, print_text
from gsaasclient.cli.parser import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any


@as_keyboard_interrupt(signal.SIGTERM, signal.SIGHUP)
def alloc(client: Client, args: SimpleNamespace) -> int:
    """Claim cGPUs and print the environment with which programs find them, or the lease; return the exit status."""
    columns = select(leases.COLUMNS, args.c)
    request: dict[str, Any] = {
        "cgpus": cgpus.from_options(args),
        "server": None,
        "consumer": consumer_from_options(args),
    }
    if args.name:
        request["name"] = args.name
    process = getattr(args, "while")
    user = None if process is None else keepalive.watch(process)
    if user is not None:
        request["keepalive"] = keepalive.SECONDS
    answer = queue.request_lease(client, args, request)
    lease = answer["lease"]
    # A caller that has not received the environment does not know which lease to release.
    path, end = f"/v1/leases/{lease['id']}", f"gsaas release -id={lease['id']}"
    with given_back_unless_told(client, path, f"lease {lease['id']}", end):
        for sentence in answer.get("notes", []):
            print_note(sentence)
        if lease["status"] != "ACTIVE":
            lease = leases.wait_until(client, lease, lambda status: status != "CLAIMED")
        if lease["status"] != "ACTIVE":
            raise ClientError(_unusable(lease))
        environment = usable_environment(client, lease, answer.get("environment"), args.on)
        document = {"lease": lease, "environment": environment}
        print_resource(args, columns, lease, document, lambda: leases.lines(client, lease))
        if user is not None:
            keepalive.keep_while(lease["id"], user)
    return 0


def release(client: Client, args: SimpleNamespace) -> int:
    """Release the cGPUs of the leases that are named, or of the shell's own lease."""
    own = os.environ.get(grant_client.LEASE)
    if not (args.id or own):
        raise UsageError(f"-id is needed, because {grant_client.LEASE} is not set")
    args.id = args.id or [own]
    return leases.terminate(client, args)


def redeem(_client: None, _args: SimpleNamespace) -> int:
    """Present the grant in this process's environment, so that the GPU hosts admit this host."""
    missing = [
        name
        for name in (grant_client.LEASE, grant_client.GRANT, grant_client.GATE)
        if not os.environ.get(name)
    ]
    if missing:
        raise UsageError(
            f"{', '.join(missing)}: not set; evaluate the environment of a lease first, and if it has no grant, none "
            "is needed"
        )
    present_grant(os.environ)
    print_text(f"this host is admitted to lease {os.environ[grant_client.LEASE]}")
    return 0


def usable_environment(
    client: Client, lease: dict[str, Any], environment: dict[str, str] | None, host: str | None
) -> dict[str, str]:
    """Return the environment of an ACTIVE lease, after presenting its grant if it has one.

    *environment* is the one that came with the lease, or None. *host* is None if programs of this host will use the
    cGPUs. For any other host the grant is not presented, because it admits the host that presents it. Raises
    `ClientError`.
    """
    if environment is None:
        environment = leases.variables(client, lease)
    if host is None and grant_client.GATE in environment:
        present_grant(environment)
        # A grant can be redeemed once: from now on the environment does not contain it.
        environment = leases.variables(client, lease)
    return environment


def present_grant(environment: Mapping[str, str]) -> None:
    """Present the grant in *environment* at the gate that it names. Raises `ClientError`."""
    lease_id = environment[grant_client.LEASE]
    try:
        grant_client.present(
            environment[grant_client.GATE], lease_id, environment[grant_client.GRANT]
        )
    except grant_client.NotAdmitted as refusal:
        raise ClientError(f"lease {lease_id} cannot be used from here: {refusal}") from refusal


def consumer_from_options(args: SimpleNamespace) -> dict[str, Any]:
    """Return the API's `consumer` for the options given: by default this user, on this host."""
    consumer: dict[str, Any] = {"host": args.on or socket.gethostname()}
    if args.uid is None:
        consumer["uid"] = os.getuid()
    elif args.uid != "any":
        consumer["uid"] = args.uid
    return consumer


def user_id(value: str) -> int | str:
    """Convert to a user id, or return `any`. Raises `ValueError`."""
    if value == "any":
        return value
    if not (value.isascii() and value.isdecimal()):
        raise ValueError(f"needs the number of a user or any, not '{value}'")
    return int(value)


def _unusable(lease: dict[str, Any]) -> str:
    fault = lease.get("fault")
    reason = f": {fault['message']}" if fault else ""
    return f"lease {lease['id']} cannot be used, it is {lease['status']}{reason}"
