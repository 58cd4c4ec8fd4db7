# SPDX-License-Identifier: Apache-2.0
"""What a host's agents need of the controllers: an account on the message bus, a key for each, and their answers."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from gsaas import rpc
from gsaas.rpc import permissions, signatures
from gsaas.setup import services, texts
from gsaas.setup.answers import Controller, written
from gsaas.setup.machine import LeftToDo, run

ROLES = {"compute": "compute", "gpu-host": "gpu"}
"""Role of a machine -> that of its agent on the message bus."""


def password(controller: Controller, account: str) -> str:
    """Return the password of a host's *account*: the same each time, and of no use to find the secret or another."""
    return signatures.key_of(_secret(controller), f"account {account}")


def answers(controller: Controller, host: str, roles: Sequence[str]) -> str:
    """Return the file of answers for *host*, which has *roles* of `ROLES`; it contains secrets."""
    account = f"gsaas-{host}"
    keys = {
        role: signatures.key_of(_secret(controller), rpc.agent_name(rpc.ROLES[ROLES[role]], host))
        for role in roles
    }
    lines = written(
        {
            "host": host,
            "bus": controller.bus,
            "bus_account": account,
            "bus_password": password(controller, account),
            "gpu_network": controller.gpu_network,
            "driver": controller.driver,
            **{role: {"host_key": key} for role, key in keys.items()},
        }
    )
    head = f"# The answers of {host} for gsaas-manage setup {' and '.join(roles)}. They contain its keys."
    return "\n".join([head, *lines, ""])


def have_account(controller: Controller, host: str, roles: Sequence[str]) -> None:
    """Give *host* its account on the message bus, with the permissions of *roles*; raises `LeftToDo`."""
    account = f"gsaas-{host}"
    allowed = permissions.of_host(host, [ROLES[role] for role in roles])
    commands = allowed.commands(texts.VIRTUAL_HOST, account)
    try:
        known = account in services.listed("users", "user")
        how = "change_password" if known else "add_user"
        services.set_password(how, account, password(controller, account))
        for command in commands:
            run(*command)
    except LeftToDo as error:
        typed = [shlex.join(command) for command in commands]
        why = f"{error}; type where the message bus is, with the bus_password of these answers:"
        raise LeftToDo(why, [f"rabbitmqctl add_user {account} PASSWORD", *typed]) from error


def _secret(controller: Controller) -> str:
    return controller.bus_secret.split(",")[0]
