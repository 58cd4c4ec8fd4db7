# SPDX-License-Identifier: Apache-2.0
"""GSaaS in the cloud: what an operator installs beside it, as processes of their own.

The controllers' part runs on this machine: the API with several workers, and two engines. Every compute host has a
RODVR endpoint and every GPU host a monitor, each on its machine (`machines`, `cpu_host`). Its configuration holds no
database, no password but that of its host's account on the message bus, and the key of this agent.

GSaaS runs from the environment that runs this, not from the cloud's own.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from gsaas import rpc
from tests.openstack.bed import (
    accounts,
    commands,
    cpu_host,
    database,
    files,
    keystone,
    machines,
    messages,
    processes,
    rest,
)
from tests.openstack.bed.once import once
from tests.openstack.bed.processes import Daemon, log_says
from tests.openstack.bed.settings import (
    ADDRESS,
    ETC,
    FAKE_HOSTS,
    FLAVOR,
    GSAAS_PORT,
    IMAGE,
    NETWORK,
    REAL_HOST,
    STATE,
)
from tests.openstack.bed.work import Unit

PROGRAMS = Path(sys.executable).parent
SOURCE = Path(__file__).parents[3] / "gsaas"
MIGRATIONS = SOURCE / "db" / "migrations" / "versions"

URL = f"http://{ADDRESS}:{GSAAS_PORT}"
SERVICE_TYPE = "gpu-scheduling"
USER = "gsaas"
WORKERS = 2

CONTROLLER = ETC / "gsaas" / "gsaas.conf"
INVENTORY = ETC / "gsaas" / "inventory.toml"
WITHDRAWN = STATE / "gsaas" / "withdrawn"
"""Names the machines on which somebody else may install GSaaS; there until ours is back."""

COMPUTE_HOSTS = (REAL_HOST, *FAKE_HOSTS)
GPUS = {**dict.fromkeys(machines.GPU_HOSTS, 4), REAL_HOST: 2}
"""GPU host -> how many it has. The last is a compute host as well, so its GPUs can be local ones."""
AGENTS = {
    "compute": (rpc.RODVR, COMPUTE_HOSTS),
    "gpu": (rpc.MONITOR, (*GPUS, machines.CPU_HOST)),
}
"""Role of a host -> its agent, and the hosts that have it."""
GPU_MEMORY = 8192
"""MiB of each GPU."""

CGPU_QUOTA = 200
"""cGPUs of each project: more than any test or benchmark takes, so that only a test of quotas meets it."""

PATIENCE = 240
"""Seconds until all agents have reported."""


def code() -> tuple[Path, ...]:
    """What the daemons are made from: when it changes they start anew."""
    return tuple(sorted(SOURCE.rglob("*.py")))


def program(name: str) -> Path:
    """A program of the environment that runs this."""
    return PROGRAMS / name


def _agent(name: str, machine: str) -> Daemon:
    settings = _settings(name, machine)
    return _daemon(
        f"{name}-{machine}",
        (*machines.inside(machine), program(name), "--config-file", settings, "--host", machine),
        settings,
        INVENTORY,
    )


def _settings(name: str, machine: str) -> Path:
    """The configuration file of an agent."""
    return ETC / "gsaas" / f"{name}-{machine}.conf"


def _daemon(name: str, command: tuple[str | Path, ...], *reads: Path) -> Daemon:
    return Daemon(
        name=name, command=command, reads=(*reads, *code()), ready=log_says(name, "has started")
    )


API = Daemon(
    name="gsaas-api",
    command=(
        program("gunicorn"),
        f"--workers={WORKERS}",
        "--threads=8",
        f"--bind={ADDRESS}:{GSAAS_PORT}",
        "gsaas.wsgi.api:application",
    ),
    environment={"GSAAS_CONFIG_FILES": str(CONTROLLER)},
    reads=(CONTROLLER, *code()),
    ports=(GSAAS_PORT,),
    ready=lambda: rest.answers(GSAAS_PORT),
)
ENGINES = tuple(
    _daemon(
        f"gsaas-engine-{number}", (program("gsaas-engine"), "--config-file", CONTROLLER), CONTROLLER
    )
    for number in (1, 2)
)
MONITORS = tuple(_agent(rpc.MONITOR, machine) for machine in GPUS)
ENDPOINTS = tuple(_agent(rpc.RODVR, machine) for machine in COMPUTE_HOSTS)


def units() -> list[Unit]:
    return [
        # Somebody else's GSaaS would have to be taken away from all of these.
        Unit(
            "gsaas tables",
            needs=("database", "message bus", "keystone", "machines"),
            prepare=prepare,
        ),
        Unit(
            "gsaas API",
            # Its workers ask these when they start.
            needs=("gsaas tables", "message bus", "nova API", "neutron API", "glance"),
            prepare=lambda: keystone.add_service(USER, SERVICE_TYPE, URL),
            daemons=(API,),
        ),
        Unit("gsaas engines", needs=("gsaas API",), daemons=ENGINES),
        # They would wait for an engine, and the first launch for what they report.
        Unit(
            "gsaas agents",
            needs=("gsaas engines", "machines"),
            daemons=(*MONITORS, *ENDPOINTS),
            finish=await_reports,
        ),
        *cpu_host.units(),
        Unit(
            "gsaas on the CPU host",
            needs=("gsaas engines", "CPU host", "ggml"),
            finish=start_cpu_host,
        ),
    ]


def prepare() -> None:
    """Configuration for controllers and for agents, the inventory of the GPU hosts, and the tables."""
    if WITHDRAWN.exists():
        _purge()
        WITHDRAWN.unlink()
    files.write(INVENTORY, _inventory())
    accounts.make(
        {
            machine: [role for role, (_, hosts) in AGENTS.items() if machine in hosts]
            for machine in dict.fromkeys((*GPUS, *COMPUTE_HOSTS, machines.CPU_HOST))
        }
    )
    for name, hosts in AGENTS.values():
        for machine in hosts:
            bus = accounts.url(machine, machines.management_address(REAL_HOST))
            own = cpu_host.configuration() if machine == machines.CPU_HOST else {}
            files.write_ini(
                _settings(name, machine),
                files.merge(_common(bus), {"bus": accounts.keys(name, machine)}, own),
            )
    files.write_ini(CONTROLLER, files.merge(_common(accounts.url()), _controller()))
    once(STATE / "gsaas" / "made-from", files.digest(sorted(MIGRATIONS.glob("*.py"))), _make_tables)


def _make_tables() -> None:
    """Tables without a lease in them: before a release, a migration may change after it was carried out."""
    database.query("DROP DATABASE IF EXISTS gsaas")
    database.create("gsaas", USER)
    commands.run(program("gsaas-manage"), "--config-file", CONTROLLER, "db", "upgrade")


def start_cpu_host() -> None:
    """Have the monitor of the CPU host run, and return once its devices are known."""
    cpu_host.start(_settings(rpc.MONITOR, machines.CPU_HOST))
    count = "SELECT COUNT(*) FROM gpus WHERE uuid LIKE 'CPU-%'"
    processes.wait_until(
        lambda: int(database.query(count, "gsaas")[0]) >= cpu_host.DEVICES,
        PATIENCE,
        "GSaaS knows the devices of the CPU host",
    )


def await_reports() -> None:
    """Return once every GPU and every endpoint is known."""
    processes.wait_until(_all_reported, PATIENCE, "GSaaS knows its hosts")


def _all_reported() -> bool:
    gpus, endpoints = (
        int(database.query(f"SELECT COUNT(*) FROM {table}", "gsaas")[0])
        for table in ("gpus", "endpoints")
    )
    return gpus >= sum(GPUS.values()) and endpoints >= len(COMPUTE_HOSTS)


def remove() -> None:
    """Take what the agents of this machine made out of its kernel."""
    if _settings(rpc.RODVR, REAL_HOST).exists():
        _clean(REAL_HOST)


def withdraw(hosts: Iterable[str]) -> None:
    """Have the cloud, and *hosts* of the pretended ones, as if nobody had ever installed GSaaS there."""
    files.write(WITHDRAWN, "\n".join(hosts))
    cpu_host.remove()
    daemons = [daemon.name for unit in units() for daemon in unit.daemons]
    pids = {record.pid for name in daemons if (record := processes.running(name))}
    processes.end({*pids, *processes.descendants(pids)})
    _purge()


def _purge() -> None:
    """Take away whoever's GSaaS there is."""
    for machine in WITHDRAWN.read_text().split():
        _clean(machine)
        commands.run(*machines.inside(machine), "nft", "flush", "ruleset")
    cloud = rest.cloud()
    for service in cloud.find("identity", "services", type=SERVICE_TYPE):
        for limit in cloud.find("identity", "registered_limits", service_id=service["id"]):
            cloud.call("DELETE", "identity", f"registered_limits/{limit['id']}")
        cloud.call("DELETE", "identity", f"services/{service['id']}")
    for user in cloud.find("identity", "users", name=USER):
        cloud.call("DELETE", "identity", f"users/{user['id']}")
    accounts.remove()
    commands.succeeds(*messages.CONTROL, "clear_policy", "nova-notifications")  # if there is one
    database.drop("gsaas", USER)
    (STATE / "gsaas" / "made-from").unlink(missing_ok=True)


def deploy() -> None:
    """Bring back what was withdrawn, in the place of what somebody else installed."""
    for unit in units():
        unit.bring_up()


def _clean(machine: str) -> None:
    for name, hosts in AGENTS.values():
        if machine in hosts:
            commands.run(*_agent(name, machine).command, "--clean")


def _common(bus: str) -> dict[str, dict[str, Any]]:
    return {
        "DEFAULT": {"transport_url": bus},
        "monitor": {"source": "simulated", "inventory": INVENTORY},
        "remoting": {"driver": "simulated", "cpu_driver": cpu_host.DRIVER},
        "rodvr": {"gpu_device": machines.GPU_DEVICE},
        "gpu_network": {"prefixes": f"{machines.NETWORKS[machines.GPU_DEVICE]}.0/24"},
    }


def _controller() -> dict[str, dict[str, Any]]:
    user = keystone.client(USER)
    services = {
        name: {"region_name": user["region_name"], "valid_interfaces": "public"}
        for name in ("nova", "neutron", "glance", "placement")
    }
    return files.merge(services, _own_sections(user))


def _own_sections(user: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {
        "api": {"auth_strategy": "keystone"},
        "database": {"connection": database.url("gsaas", USER)},
        "engine": {"cloud": "nova"},
        "quotas": {"cgpus": CGPU_QUOTA},
        "plain_servers": {"properties": "all", "vendordata_timeout": 50},
        "grants": {"direct": "always"},
        "bus": accounts.secrets(),
        "nova": {
            "notification_url": messages.url(),
            "default_image": IMAGE,
            "default_flavor": FLAVOR,
            "default_network": NETWORK,  # tests make further ones
        },
        **keystone.token_check(USER),
        "service_user": user,
    }


def _inventory() -> str:
    """The GPU hosts, as the monitors read them."""
    hosts = [
        f'[[hosts]]\nname = "{machine}"\ngpu_address = "{machines.gpu_address(machine)}"\n'
        f'gpus = {count}\nmodel = "NVIDIA A2"\nmemory_mb = {GPU_MEMORY}\n'
        for machine, count in GPUS.items()
    ]
    network = f"{machines.NETWORKS[machines.GPU_DEVICE]}.0/24"
    return "\n".join([f'gpu_network = "{network}"\n', *hosts])
