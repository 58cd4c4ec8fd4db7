"""`gsaas exec`: run a command inside a VM of gsaas-standalone, which is a network namespace.

The VM is found by the end of its namespace's name, since the beginning is the operator's choice.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import SimpleNamespace

from gsaas.cli.leases import environment, find, needed
from gsaas.cli.parser import UsageError
from gsaas.client import Client, ClientError

NAMESPACES = "/run/netns"
ID_DIGITS = 8
"""How much of a server's id is in the name of its namespace; see `gsaas.standalone.cloud`."""


def run(client: Client, args: SimpleNamespace) -> int:
    """Become the command, in the VM's namespace and with the lease's environment."""
    if not args.remainder:
        raise UsageError("a command is needed: gsaas exec ID -- COMMAND [ARGUMENT ...]")
    if os.geteuid() != 0:
        raise ClientError("to enter a VM's network namespace needs root; try it with sudo")
    lease = find(client, needed(args.id))
    namespace = _namespace(lease)
    variables = environment(client, lease, "json")["environment"]
    sys.stdout.flush()
    command = ["ip", "netns", "exec", namespace, *args.remainder]
    try:
        os.execvpe(command[0], command, {**os.environ, **variables})
    except FileNotFoundError:
        raise ClientError("the program ip is not here; install iproute2") from None


def _namespace(lease: dict) -> str:
    server_id = (lease["server"] or {}).get("id")
    if server_id is None:
        raise ClientError(f"lease {lease['id']} has no VM: it is {lease['status']}")
    found = [path.name for path in Path(NAMESPACES).glob(f"*vm-{server_id[:ID_DIGITS]}")]
    if len(found) != 1:
        raise ClientError(
            f"VM {server_id} is not a network namespace of this machine, as those of "
            "gsaas-standalone are; log in to it instead"
        )
    return found[0]
