# SPDX-License-Identifier: Apache-2.0
"""`gsaas exec`: run a command inside a VM of gsaas-standalone, which is a network namespace.

The VM is found by the end of its namespace's name: the operator configures how that name begins.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import SimpleNamespace

from gsaasclient import Client, ClientError
from gsaasclient.cli import finding, leases
from gsaasclient.cli.environments import merged
from gsaasclient.cli.parser import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

NAMESPACES = "/run/netns"
ID_DIGITS = 8
"""How many digits of a server's id the name of its namespace ends with; see `gsaas.standalone.cloud`."""


def run(client: Client, args: SimpleNamespace) -> NoReturn:
    """Replace this process by the command, in the VM's namespace and with the lease's environment."""
    if not args.remainder:
        raise UsageError("a command is needed: gsaas exec ID -- COMMAND [ARGUMENT ...]")
    if os.geteuid() != 0:
        raise ClientError("to enter a VM's network namespace needs root; try it with sudo")
    lease = finding.lease(client, leases.require_id(args.id))
    namespace = _namespace(lease)
    variables = leases.variables(client, lease)
    sys.stdout.flush()
    command = ["ip", "netns", "exec", namespace, *args.remainder]
    try:
        os.execvpe(command[0], command, merged(os.environ, variables))
    except FileNotFoundError:
        raise ClientError("the program ip is not installed; install iproute2") from None


def _namespace(lease: leases.Lease) -> str:
    """Return the name of the namespace that is the lease's VM. Raises `ClientError` if there is none."""
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
