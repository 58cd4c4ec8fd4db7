# SPDX-License-Identifier: Apache-2.0
"""RabbitMQ: the message bus of all services."""

from __future__ import annotations

from tests.openstack.bed import files, machines, processes
from tests.openstack.bed.settings import (
    ADDRESS,
    EPMD_PORT,
    ETC,
    LOG,
    RABBITMQ_PORT,
    REAL_HOST,
    RUN,
    STATE,
    password,
)
from tests.openstack.bed.work import Unit

USER = "openstack"
CONFIGURATION = ETC / "rabbitmq" / "rabbitmq.conf"
NO_PLUGINS = ETC / "rabbitmq" / "enabled_plugins"

DAEMON = processes.Daemon(
    name="rabbitmq",
    command=("/usr/lib/rabbitmq/bin/rabbitmq-server",),  # the one in /usr/sbin insists on its user
    environment={
        "HOME": str(STATE / "rabbitmq"),
        "RABBITMQ_NODENAME": "gsaas-cloud@localhost",
        "RABBITMQ_CONFIG_FILE": str(CONFIGURATION),
        "RABBITMQ_MNESIA_BASE": str(STATE / "rabbitmq" / "mnesia"),
        "RABBITMQ_LOG_BASE": str(LOG),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(NO_PLUGINS),
        "RABBITMQ_PID_FILE": str(RUN / "rabbitmq.pid"),
        "RABBITMQ_DIST_PORT": str(RABBITMQ_PORT + 20000),
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": (
            # Idle schedulers of Erlang spin by default, which two cores cannot afford.
            "-kernel inet_dist_use_interface {127,0,0,1} +sbwt none +sbwtdcpu none +sbwtdio none"
        ),
        "ERL_EPMD_ADDRESS": ADDRESS,
        "ERL_EPMD_PORT": str(EPMD_PORT),
    },
    reads=(CONFIGURATION,),
    ports=(RABBITMQ_PORT,),
    ready=lambda: processes.listens(RABBITMQ_PORT),
)

CONTROL = (
    "env",
    *(
        f"{name}={DAEMON.environment[name]}"
        for name in ("HOME", "RABBITMQ_NODENAME", "ERL_EPMD_PORT")
    ),
    "/usr/lib/rabbitmq/bin/rabbitmqctl",
)
"""What a command to the server begins with."""


def units() -> list[Unit]:
    needs = ("machines",)
    return [Unit("message bus", needs=needs, prepare=configure, daemons=(DAEMON,))]


def configure() -> None:
    """Write the configuration; the user in it is made at the very first start."""
    (STATE / "rabbitmq").mkdir(parents=True, exist_ok=True)
    options = {
        "listeners.tcp.1": f"{ADDRESS}:{RABBITMQ_PORT}",
        "listeners.tcp.2": f"{machines.management_address(REAL_HOST)}:{RABBITMQ_PORT}",
        "default_user": USER,
        "default_pass": password(f"messages-{USER}"),
        "vm_memory_high_watermark.absolute": "512MB",
        "disk_free_limit.absolute": "50MB",
        "log.console": "true",
        "log.file": "false",
    }
    files.write(CONFIGURATION, "".join(f"{key} = {value}\n" for key, value in options.items()))
    files.write(NO_PLUGINS, "[].\n")


def url(address: str = ADDRESS, account: str = USER, virtual_host: str = "") -> str:
    """The transport URL for oslo.messaging; *address* is where the machine that uses it finds the bus."""
    secret = password(f"messages-{account}")
    return f"rabbit://{account}:{secret}@{address}:{RABBITMQ_PORT}/{virtual_host}"
