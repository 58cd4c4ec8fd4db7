# SPDX-License-Identifier: Apache-2.0
"""Where the bed keeps things and what it calls them. Values only."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from tests.openstack.bed import ownership

GIVEN = Path(os.environ.get("GSAAS_CLOUD_DIR", "/var/tmp/gsaas-cloud")).absolute()  # noqa: S108
"""What `DIR` is called; it may be a symbolic link."""
DIR = GIVEN.resolve()
"""Root's own directory, on a file system with about 4 GB of room; `ownership` makes sure of that."""

CACHE = DIR / "cache"
"""What takes long to make and depends on nothing here: kept by `wipe`."""
VENV = CACHE / "venv"
GUEST = CACHE / "guest"

ETC = DIR / "etc"
LOG = DIR / "log"
RUN = DIR / "run"
TMP = RUN / "tmp"
STATE = DIR / "state"
BIN = DIR / "bin"
PASSWORDS = DIR / "passwords"

ADDRESS = "127.0.0.1"
REGION = "RegionOne"

KEYSTONE_PORT = 5000
NOVA_PORT = 8774
PLACEMENT_PORT = 8778
GLANCE_PORT = 9292
NEUTRON_PORT = 9696
# Away from the usual ports: a machine that tests GSaaS may have its own of these.
GSAAS_PORT = 9871
MARIADB_PORT = 13306
RABBITMQ_PORT = 15673
EPMD_PORT = 14369
MEMCACHED_PORT = 21211
OVSDB_PORT = 16640
OPENFLOW_PORT = 16633

KEYSTONE_URL = f"http://{ADDRESS}:{KEYSTONE_PORT}/v3"

CONTROLLER = "controller"
REAL_HOST = "real1"
FAKE_HOSTS = ("fake1", "fake2", "fake3")

TENANTS = ("tenant-a", "tenant-b")
TENANT_OF_ENGINES = "tenant-c"
"""For tests whose engine is not the bed's, and which run beside those of the bed's."""
USER_OF_ENGINES = "engine-of-tests"
"""The service user of these engines."""
IMAGE = "guest"
EMPTY_IMAGE = "empty"
"""With nothing to boot. For VMs into which no test looks: they wait, where an emulated guest takes most of a core."""
FLAVOR = "small"
"""For guests that really boot: 512 MiB, on the real hypervisor only."""
FAKE_FLAVOR = "fake"
"""For servers without a guest: on the fake hypervisors only."""
NETWORK = "private"

VERSION_LOCK = Path(__file__).with_name("requirements.lock")


def password(user: str) -> str:
    """The password of *user*, made up when first asked for; only root can read it."""
    path = PASSWORDS / user
    if not path.exists():
        ownership.make(PASSWORDS, mode=0o700)
        unfinished = path.with_suffix(f".{secrets.token_hex(4)}")
        unfinished.touch(mode=0o600)
        unfinished.write_text(secrets.token_urlsafe(18))
        try:
            path.hardlink_to(unfinished)  # the first one to ask decides
        except FileExistsError:
            pass
        finally:
            unfinished.unlink()
    return path.read_text()


def environment(**extra: str) -> dict[str, str]:
    """What the cloud's own programs run with: nothing of the caller's but these, and its PATH."""
    return {
        "PATH": f"{BIN}:{VENV / 'bin'}:{os.environ['PATH']}",
        "HOME": str(STATE),
        "LANG": "C.UTF-8",
        "TMPDIR": str(TMP),
        "OVS_RUNDIR": str(RUN / "ovs"),
        "OVS_LOGDIR": str(LOG),
        **extra,
    }
