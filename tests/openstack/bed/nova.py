# SPDX-License-Identifier: Apache-2.0
"""Nova without its hypervisors: API, conductor, scheduler."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.openstack.bed import commands, database, files, glance, keystone, messages, venv, wsgi
from tests.openstack.bed.once import once
from tests.openstack.bed.processes import Daemon, log_says
from tests.openstack.bed.settings import (
    ADDRESS,
    CONTROLLER,
    ETC,
    GSAAS_PORT,
    NOVA_PORT,
    RUN,
    STATE,
    VENV,
    VERSION_LOCK,
)
from tests.openstack.bed.work import Unit

CONFIGURATION = ETC / "nova" / "nova.conf"
PASTE = ETC / "nova" / "api-paste.ini"
POLICY = ETC / "nova" / "policy.yaml"
READS = (CONFIGURATION, POLICY, VERSION_LOCK)
URL = f"http://{ADDRESS}:{NOVA_PORT}/v2.1"

# A service such as GSaaS may choose the host of a server that it creates with a tenant's token.
# Nova's own rule leaves that to administrators.
RULES = """\
"compute:servers:create:requested_destination": "rule:context_is_admin or service_roles:service"
"""

API = wsgi.daemon(
    "nova-api",
    NOVA_PORT,
    "nova.wsgi.osapi_compute:application",
    environment={"OS_NOVA_CONFIG_DIR": str(CONFIGURATION.parent)},
    reads=(*READS, PASTE),
)


def _worker(name: str, ready: str) -> Daemon:
    return Daemon(
        name=name,
        command=(venv.program(name), "--config-file", CONFIGURATION),
        reads=READS,
        ready=log_says(name, ready),
    )


CONDUCTOR = _worker("nova-conductor", "Starting conductor node")
SCHEDULER = _worker("nova-scheduler", "Starting scheduler node")


def units() -> list[Unit]:
    return [
        Unit("nova tables", needs=("virtual environment", "database"), prepare=prepare),
        Unit(
            "nova API",
            needs=("nova tables", "keystone", "message bus"),
            prepare=lambda: keystone.add_service("nova", "compute", URL),
            daemons=(API,),
        ),
        # These two end when they cannot log in to Placement at their start.
        Unit(
            "nova conductor and scheduler",
            needs=("nova API", "placement"),
            daemons=(CONDUCTOR, SCHEDULER),
        ),
    ]


def prepare() -> None:
    """Configuration, and the tables of the API and of one cell."""
    for name in ("nova_api", "nova_cell0", "nova_cell1"):
        database.create(name, "nova")
    files.write(PASTE, (VENV / "etc" / "nova" / "api-paste.ini").read_text())
    files.write(POLICY, RULES)
    (STATE / "nova").mkdir(parents=True, exist_ok=True)
    files.write_ini(CONFIGURATION, files.merge(common("nova", CONTROLLER), _databases()))
    once(STATE / "nova" / "made-from", files.digest([VERSION_LOCK]), _make_tables)


def common(name: str, host: str) -> dict[str, dict[str, Any]]:
    """What every process of Nova is told; *name* gives it a directory of its own."""
    return {
        "DEFAULT": {
            "host": host,
            "my_ip": ADDRESS,
            "state_path": STATE / name,
            "transport_url": messages.url(),
            "enabled_apis": "osapi_compute",
            "force_config_drive": True,
            "allow_resize_to_same_host": True,
            # Once in some hundred boots, Neutron's event for a port that it has wired does not reach Nova.
            "vif_plugging_is_fatal": False,
            "vif_plugging_timeout": 60,
            # By each report of a host, which no test needs, conductor, message bus and database work, too.
            "report_interval": 30,
            "service_down_time": 90,
            "graceful_shutdown_timeout": 5,
            "manager_shutdown_timeout": 3,
        },
        # GSaaS gives the environment of their cGPUs to servers that are made with Nova alone. The target is called
        # cloud-init, because that is the entry which cloud-init reads.
        "api": {
            "auth_strategy": "keystone",
            "vendordata_providers": "StaticJSON,DynamicJSON",
            "vendordata_dynamic_targets": f"cloud-init@http://{ADDRESS}:{GSAAS_PORT}/v1/vendordata",
            # As doc/plain-servers.md recommends.
            "vendordata_dynamic_failure_fatal": True,
            # A busy machine answers slowly, and a guest whose vendor data is late would not boot.
            "vendordata_dynamic_connect_timeout": 60,
            "vendordata_dynamic_read_timeout": 60,
        },
        "vendordata_dynamic_auth": keystone.client("nova"),
        "oslo_policy": {"policy_file": POLICY},
        "conductor": {"workers": 1},
        # A server that fails to boot is not tried elsewhere, so that its fault is the reason.
        "scheduler": {"workers": 1, "max_attempts": 1},
        "filter_scheduler": {"track_instance_changes": False},
        # Versioned notifications tell listeners of every change of a server.
        "notifications": {
            "notification_format": "versioned",
            "notify_on_state_change": "vm_and_task_state",
        },
        "oslo_messaging_notifications": {"driver": "messagingv2"},
        "oslo_concurrency": {"lock_path": RUN / f"{name}-locks"},
        "glance": {"api_servers": glance.URL},
        "vnc": {"enabled": False},
        "spice": {"enabled": False},
        **keystone.token_check("nova"),
        "service_user": keystone.client("nova") | {"send_service_user_token": True},
        "placement": keystone.client("placement") | {"valid_interfaces": "public"},
        "neutron": keystone.client("neutron") | {"valid_interfaces": "public"},
    }


def manage(*words: str | Path) -> str:
    """Run `nova-manage`."""
    return commands.run(venv.program("nova-manage"), "--config-file", CONFIGURATION, *words)


def _databases() -> dict[str, dict[str, Any]]:
    return {
        "api_database": {"connection": database.url("nova_api", "nova")},
        "database": {"connection": database.url("nova_cell1", "nova")},
    }


def _make_tables() -> None:
    manage("api_db", "sync")
    manage("cell_v2", "map_cell0", "--database_connection", database.url("nova_cell0", "nova"))
    if " cell1 " not in manage("cell_v2", "list_cells"):
        manage("cell_v2", "create_cell", "--name", "cell1")
    manage("db", "sync")
