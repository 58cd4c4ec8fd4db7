# SPDX-License-Identifier: Apache-2.0
"""Placement: what the hypervisors have, and what of it is taken."""

from __future__ import annotations

from tests.openstack.bed import commands, database, files, keystone, venv, wsgi
from tests.openstack.bed.once import once
from tests.openstack.bed.settings import ADDRESS, ETC, PLACEMENT_PORT, STATE, VERSION_LOCK
from tests.openstack.bed.work import Unit

CONFIGURATION = ETC / "placement" / "placement.conf"

DAEMON = wsgi.daemon(
    "placement",
    PLACEMENT_PORT,
    "placement.wsgi.api:application",
    environment={"OS_PLACEMENT_CONFIG_DIR": str(CONFIGURATION.parent)},
    reads=(CONFIGURATION, VERSION_LOCK),
)


def units() -> list[Unit]:
    return [
        Unit("placement tables", needs=("virtual environment", "database"), prepare=prepare),
        Unit(
            "placement",
            needs=("placement tables", "keystone"),
            prepare=lambda: keystone.add_service(
                "placement", "placement", f"http://{ADDRESS}:{PLACEMENT_PORT}"
            ),
            daemons=(DAEMON,),
        ),
    ]


def prepare() -> None:
    database.create("placement", "placement")
    files.write_ini(
        CONFIGURATION,
        {
            "placement_database": {"connection": database.url("placement", "placement")},
            "api": {"auth_strategy": "keystone"},
            **keystone.token_check("placement"),
        },
    )
    once(
        STATE / "placement" / "made-from",
        files.digest([VERSION_LOCK]),
        lambda: commands.run(
            venv.program("placement-manage"), "--config-file", CONFIGURATION, "db", "sync"
        ),
    )
