# SPDX-License-Identifier: Apache-2.0
"""Neutron: ML2 with Open vSwitch, security groups in iptables, DHCP and routers.

A server's tap is the port of a small Linux bridge in front of the switch (hybrid plug). So the kernel
sees its packets first, as with the kernel's own datapath; a user space switch that read the tap itself
would see them before any hook of nftables could.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.openstack.bed import (
    commands,
    database,
    files,
    keystone,
    messages,
    processes,
    rest,
    switch,
    venv,
    wsgi,
)
from tests.openstack.bed.moments import seconds
from tests.openstack.bed.once import once
from tests.openstack.bed.processes import Daemon
from tests.openstack.bed.settings import (
    ADDRESS,
    ETC,
    FAKE_HOSTS,
    NEUTRON_PORT,
    OPENFLOW_PORT,
    REAL_HOST,
    RUN,
    STATE,
    VENV,
    VERSION_LOCK,
)
from tests.openstack.bed.work import Unit

DIRECTORY = ETC / "neutron"
CONFIGURATION = DIRECTORY / "neutron.conf"
ML2 = DIRECTORY / "ml2_conf.ini"
OVS_AGENT = DIRECTORY / "openvswitch_agent.ini"
DHCP_AGENT = DIRECTORY / "dhcp_agent.ini"
L3_AGENT = DIRECTORY / "l3_agent.ini"
PASTE = DIRECTORY / "api-paste.ini"
URL = f"http://{ADDRESS}:{NEUTRON_PORT}"

REPORTER = Path(__file__).with_name("fake_agents.py")
AGENT_DOWN_TIME = 2_000_000
"""Seconds. Nobody keeps reporting for the fake hosts; the most that Neutron takes is not far above."""

API = wsgi.daemon(
    "neutron-api",
    NEUTRON_PORT,
    "neutron.wsgi.api:application",
    environment={
        "OS_NEUTRON_CONFIG_DIR": str(DIRECTORY),
        "OS_NEUTRON_CONFIG_FILES": f"{CONFIGURATION.name};{ML2.name}",
    },
    reads=(CONFIGURATION, ML2, PASTE, VERSION_LOCK),
)

RPC = Daemon(
    name="neutron-rpc-server",
    command=(
        venv.program("neutron-rpc-server"),
        *("--config-file", CONFIGURATION, "--config-file", ML2),
    ),
    reads=(CONFIGURATION, ML2, VERSION_LOCK),
    ready=lambda: True,  # its queue keeps what comes before it
)


def _agent(name: str, *more: Path) -> Daemon:
    """An agent is ready once Neutron has heard of it since it was started."""
    return Daemon(
        name=name,
        command=(
            venv.program(name),
            *("--config-file", CONFIGURATION),
            *(word for path in more for word in ("--config-file", path)),
        ),
        reads=(CONFIGURATION, *more, VERSION_LOCK),
        ready=lambda: _reported(name, processes.running(name)),
    )


OVS = _agent("neutron-openvswitch-agent", ML2, OVS_AGENT)
DHCP = _agent("neutron-dhcp-agent", DHCP_AGENT)
L3 = _agent("neutron-l3-agent", L3_AGENT)


def units() -> list[Unit]:
    return [
        Unit("neutron tables", needs=("virtual environment", "database"), prepare=prepare),
        Unit(
            "neutron API",
            needs=("neutron tables", "keystone", "message bus"),
            prepare=lambda: keystone.add_service("neutron", "network", URL),
            daemons=(API, RPC),
        ),
        # A port that is bound before its host's agent has reported stays without a network for good.
        Unit(
            "neutron agents",
            needs=("neutron API", "switch"),
            daemons=(OVS, DHCP, L3),
            finish=report_fake_agents,
        ),
    ]


def prepare() -> None:
    database.create("neutron", "neutron")
    files.write(PASTE, (VENV / "etc" / "neutron" / "api-paste.ini").read_text())
    (STATE / "neutron").mkdir(parents=True, exist_ok=True)
    files.write_ini(CONFIGURATION, _server())
    files.write_ini(
        ML2,
        {
            "ml2": {
                "type_drivers": "local",
                "tenant_network_types": "local",
                "mechanism_drivers": "openvswitch",
                "extension_drivers": "port_security",
            },
            "securitygroup": {"enable_security_group": True},
        },
    )
    files.write_ini(
        OVS_AGENT,
        {
            "ovs": {
                "datapath_type": "netdev",
                "integration_bridge": switch.INTEGRATION_BRIDGE,
                "ovsdb_connection": switch.DATABASE_URL,
                "of_listen_address": ADDRESS,
                "of_listen_port": OPENFLOW_PORT,
            },
            "agent": {"tunnel_types": "", "polling_interval": 1, "minimize_polling": True},
            "securitygroup": {
                "firewall_driver": "iptables_hybrid",
                "enable_security_group": True,
                "enable_ipset": False,
            },
        },
    )
    agent = {
        "DEFAULT": {"interface_driver": "openvswitch", "ovs_use_veth": True},
        "ovs": {"datapath_type": "netdev", "ovsdb_connection": switch.DATABASE_URL},
    }
    # Servers have a configuration drive; the metadata service would only serve it a second time.
    dhcp = {"DEFAULT": {"enable_isolated_metadata": False, "resync_interval": 5}}
    files.write_ini(DHCP_AGENT, files.merge(agent, dhcp))
    files.write_ini(L3_AGENT, files.merge(agent, {"DEFAULT": {"enable_metadata_proxy": False}}))
    once(STATE / "neutron" / "made-from", files.digest([VERSION_LOCK]), _make_tables)


def report_fake_agents() -> None:
    known = {agent["host"] for agent in rest.cloud().find("network", "agents", binary=OVS.name)}
    if missing := [host for host in FAKE_HOSTS if host not in known]:
        commands.run(venv.program("python"), "-P", REPORTER, CONFIGURATION, ML2, *missing)


def _server() -> dict[str, dict[str, Any]]:
    return {
        "DEFAULT": {
            "host": REAL_HOST,
            "state_path": STATE / "neutron",
            "transport_url": messages.url(),
            "core_plugin": "ml2",
            "service_plugins": "router,auto_allocate",
            "auth_strategy": "keystone",
            "api_paste_config": PASTE,
            "agent_down_time": AGENT_DOWN_TIME,
            "dhcp_agents_per_network": 1,
            "notify_nova_on_port_status_changes": True,
            "notify_nova_on_port_data_changes": True,
            "send_events_interval": 1,
            "rpc_workers": 1,
            "rpc_state_report_workers": 0,
            "global_physnet_mtu": 1500,
        },
        "agent": {"root_helper": "sudo", "report_interval": 30},
        "database": {"connection": database.url("neutron", "neutron")},
        "oslo_concurrency": {"lock_path": RUN / "neutron-locks"},
        **keystone.token_check("neutron"),
        "nova": keystone.client("nova"),
        "placement": keystone.client("placement"),
    }


def _make_tables() -> None:
    commands.run(
        venv.program("neutron-db-manage"),
        *("--config-file", CONFIGURATION, "--config-file", ML2, "upgrade", "heads"),
    )


def _reported(binary: str, record: processes.Record | None) -> bool:
    agents = rest.cloud().find("network", "agents", binary=binary, host=REAL_HOST)
    return record is not None and any(
        seconds(agent["heartbeat_timestamp"]) > record.since for agent in agents
    )
