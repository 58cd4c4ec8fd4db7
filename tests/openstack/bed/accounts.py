# SPDX-License-Identifier: Apache-2.0
"""GSaaS on the message bus, as the operator's guide has it: a virtual host, and an account and keys for each host.

`gsaas-manage bus permissions` prints commands; what these would set for seven hosts is imported at once here, because
each run of rabbitmqctl takes seconds.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any

from gsaas import rpc
from gsaas.rpc import permissions, signatures
from tests.openstack.bed import commands, files, messages
from tests.openstack.bed.once import once
from tests.openstack.bed.settings import ADDRESS, ETC, STATE, password

VIRTUAL_HOST = CONTROLLERS = "gsaas"
"""The virtual host, and the account of the controllers."""
DEFINITIONS = ETC / "rabbitmq" / "gsaas.json"
MADE = STATE / "gsaas" / "accounts"


def url(host: str | None = None, address: str = ADDRESS) -> str:
    """The transport URL of the controllers, or of *host*."""
    return messages.url(address, _account(host), VIRTUAL_HOST)


def keys(agent: str, host: str) -> dict[str, Any]:
    """The section [bus] of an agent, `rpc.MONITOR` or `rpc.RODVR`, of *host*."""
    return {"host_keys": signatures.key_of(_secret(), rpc.agent_name(agent, host))}


def secrets() -> dict[str, Any]:
    """The section [bus] of controllers."""
    return {"secrets": _secret()}


def make(hosts: Mapping[str, Sequence[str]]) -> None:
    """Make the virtual host and all accounts; *hosts* are names with roles, those of `gsaas-manage bus permissions`."""
    allowed = {host: permissions.of_host(host, roles) for host, roles in hosts.items()}
    everything = {"configure": ".*", "write": ".*", "read": ".*"}
    definitions = {
        "vhosts": [{"name": VIRTUAL_HOST}],
        "users": [
            {"name": name, "password": password(f"messages-{name}"), "tags": ""}
            for name in map(_account, (None, *hosts))
        ],
        "permissions": [
            {"user": CONTROLLERS, "vhost": VIRTUAL_HOST, **everything},
            *(
                {"user": _account(host), "vhost": VIRTUAL_HOST}
                | {kind: getattr(its, kind) for kind in everything}
                for host, its in allowed.items()
            ),
        ],
        "topic_permissions": [
            {"user": _account(host), "vhost": VIRTUAL_HOST, "exchange": rpc.EXCHANGE}
            | {"write": its.topic_write, "read": its.topic_read}
            for host, its in allowed.items()
        ],
    }
    files.write(DEFINITIONS, json.dumps(definitions))
    made_from = files.digest([DEFINITIONS], *map(dataclasses.astuple, allowed.values()))
    once(MADE, made_from, lambda: commands.run(*_control("import_definitions", str(DEFINITIONS))))


def remove() -> None:
    """Take the virtual host and the controllers' account away, if they are there."""
    commands.succeeds(*_control("delete_vhost", VIRTUAL_HOST))
    commands.succeeds(*_control("delete_user", CONTROLLERS))
    MADE.unlink(missing_ok=True)


def _account(host: str | None) -> str:
    return CONTROLLERS if host is None else f"gsaas-{host}"


def _secret() -> str:
    return password("gsaas-bus")


def _control(*words: str) -> tuple[str, ...]:
    return (*messages.CONTROL, *words)
