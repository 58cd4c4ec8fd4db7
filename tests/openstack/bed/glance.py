# SPDX-License-Identifier: Apache-2.0
"""Glance: images, kept as files."""

from __future__ import annotations

from tests.openstack.bed import commands, database, files, keystone, venv, wsgi
from tests.openstack.bed.once import once
from tests.openstack.bed.settings import ADDRESS, ETC, GLANCE_PORT, STATE, VENV, VERSION_LOCK
from tests.openstack.bed.work import Unit

CONFIGURATION = ETC / "glance" / "glance-api.conf"
URL = f"http://{ADDRESS}:{GLANCE_PORT}"

DAEMON = wsgi.daemon(
    "glance",
    GLANCE_PORT,
    "glance.wsgi.api:application",
    environment={"OS_GLANCE_CONFIG_DIR": str(CONFIGURATION.parent)},
    reads=(CONFIGURATION, VERSION_LOCK),
)


def units() -> list[Unit]:
    return [
        Unit("glance tables", needs=("virtual environment", "database"), prepare=prepare),
        Unit(
            "glance",
            needs=("glance tables", "keystone"),
            prepare=lambda: keystone.add_service("glance", "image", URL),
            daemons=(DAEMON,),
        ),
    ]


def prepare() -> None:
    database.create("glance", "glance")
    data = STATE / "glance"
    for name in ("images", "staging", "tasks"):
        (data / name).mkdir(parents=True, exist_ok=True)
    files.write_ini(
        CONFIGURATION,
        {
            "DEFAULT": {"enabled_backends": "files:file", "worker_self_reference_url": URL},
            "database": {"connection": database.url("glance", "glance")},
            "glance_store": {"default_backend": "files"},
            "files": {"filesystem_store_datadir": data / "images"},
            "os_glance_staging_store": {"filesystem_store_datadir": data / "staging"},
            "os_glance_tasks_store": {"filesystem_store_datadir": data / "tasks"},
            "paste_deploy": {
                "flavor": "keystone",
                "config_file": VENV / "etc" / "glance" / "glance-api-paste.ini",
            },
            **keystone.token_check("glance"),
        },
    )
    once(
        data / "made-from",
        files.digest([VERSION_LOCK]),
        lambda: commands.run(
            venv.program("glance-manage"), "--config-file", CONFIGURATION, "db_sync"
        ),
    )
