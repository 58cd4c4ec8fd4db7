# SPDX-License-Identifier: Apache-2.0
"""Open vSwitch, its user space datapath: no kernel module is needed, and taps are real taps."""

from __future__ import annotations

from tests.openstack.bed import commands, processes
from tests.openstack.bed.settings import ADDRESS, OVSDB_PORT, REAL_HOST, RUN, STATE
from tests.openstack.bed.work import Unit

DATA = STATE / "openvswitch" / "conf.db"
SCHEMA = "/usr/share/openvswitch/vswitch.ovsschema"
SOCKET = RUN / "ovs" / "db.sock"
CONTROL = RUN / "ovs" / "vswitchd.ctl"
DATABASE_URL = f"tcp:{ADDRESS}:{OVSDB_PORT}"
INTEGRATION_BRIDGE = "br-int"

DATABASE = processes.Daemon(
    name="ovsdb",
    command=(
        "ovsdb-server",
        str(DATA),
        f"--remote=punix:{SOCKET}",
        f"--remote=ptcp:{OVSDB_PORT}:{ADDRESS}",
        f"--unixctl={RUN / 'ovs' / 'ovsdb.ctl'}",
    ),
    ports=(OVSDB_PORT,),
    ready=lambda: processes.listens(OVSDB_PORT) and SOCKET.exists(),
)

SWITCH = processes.Daemon(
    name="vswitchd",
    command=("ovs-vswitchd", f"unix:{SOCKET}", f"--unixctl={CONTROL}"),
    ready=lambda: commands.succeeds("ovs-appctl", "-t", CONTROL, "version"),
)


def units() -> list[Unit]:
    return [
        Unit(
            "switch database",
            prepare=initialise,
            daemons=(DATABASE,),
            finish=configure,
        ),
        Unit("switch", needs=("switch database",), daemons=(SWITCH,)),
    ]


def initialise() -> None:
    """Make an empty switch database, unless there is one."""
    SOCKET.parent.mkdir(parents=True, exist_ok=True)
    DATA.parent.mkdir(parents=True, exist_ok=True)
    if not DATA.exists():
        commands.run("ovsdb-tool", "create", DATA, SCHEMA)


def configure() -> None:
    """Packets of local TCP come with half a checksum; the switch has to know how to finish it."""
    ask("--no-wait", "init")
    ask(
        *("--no-wait", "set", "Open_vSwitch", "."),
        *("other_config:userspace-tso-enable=true", f"external_ids:hostname={REAL_HOST}"),
    )


def ask(*words: str) -> str:
    """Run `ovs-vsctl` on this switch."""
    return commands.run("ovs-vsctl", f"--db=unix:{SOCKET}", "--timeout=20", *words)
