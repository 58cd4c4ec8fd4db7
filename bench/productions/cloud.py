# SPDX-License-Identifier: Apache-2.0
"""The test bed as a production deployment: TLS in front, and the API under uWSGI with two processes.

The bed's Keystone, MariaDB, RabbitMQ, engines and Placement are used as they are. The API is a second one, started from
the shipped gsaas-api-uwsgi.ini. Hosts of GPUs are played: they are registered once, and promised to report again later
than the benchmark takes.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import certifi

from bench.productions import proxy
from gsaas.db import gpus, hosts
from gsaas.db.database import Database
from gsaas.objects.gpu_report import GpuInfo
from tests.openstack import cli
from tests.openstack.bed import database as bed_database
from tests.openstack.bed import gsaas as bed_gsaas
from tests.openstack.bed import machines, rest, settings, venv
from tests.support.ports import free_ports
from tests.support.waiting import until

PROCESSES = 2
UWSGI = Path(__file__).parents[2] / "etc" / "gsaas" / "gsaas-api-uwsgi.ini"
GPU_HOST = "bench-production"
ADDRESS_BYTE = 251
"""The last byte of the address that the played host has on the GPU network."""
MEMORY_MB = 8192
INTERVAL = 86_400.0
"""Seconds within which the played host promises to report."""
TENANT = settings.TENANTS[0]
INTERFACE = "admin"
"""The interface under which the catalogue has the URL of the proxy, while the benchmark runs."""
RESOURCE = "VGPU"
PLACEMENT_VERSION = "placement 1.36"


@dataclass
class Production:
    """What the benchmark uses: *environment* is that of a tenant's commands, *authorities* the certificate to trust."""

    environment: dict[str, str]
    trusting_all: dict[str, str]
    """The same environment, but with all public authorities beside the one that counts."""
    authorities: str
    gsaas: str
    placement: str
    provider: str
    """The id of Placement's resource provider with as many VGPUs as the played host has GPUs."""

    def tenant(self) -> tuple[str, str, str]:
        """Return a token of the tenant, and the ids of its project and user."""
        cloud = rest.cloud(TENANT, TENANT)
        (project,) = rest.cloud().find("identity", "projects", name=TENANT)
        (user,) = rest.cloud().find("identity", "users", name=TENANT)
        return cloud.token(), project["id"], user["id"]


@contextmanager
def running(gpus_wanted: int) -> Iterator[Production]:
    """Bring up the test bed if it is down, and yield it as a production; afterwards it is as it was found.

    Raises `subprocess.CalledProcessError` if it does not come up.
    """
    with cli.lent(), tempfile.TemporaryDirectory(prefix="gsaas-bench-", dir="/var/tmp") as name:
        folder = Path(name)
        with (
            _gpu_host(gpus_wanted),
            _api(folder) as port,
            proxy.ending_tls(
                folder,
                {
                    "keystone": settings.KEYSTONE_PORT,
                    "placement": settings.PLACEMENT_PORT,
                    "gsaas": port,
                },
            ) as (urls, authorities),
            _in_catalogue(urls["gsaas"]),
            _provider(gpus_wanted) as provider,
        ):
            environment = _environment(folder, f"{urls['keystone']}/v3", authorities)
            yield Production(
                environment,
                environment | _all_authorities(folder, authorities),
                authorities,
                urls["gsaas"],
                urls["placement"],
                provider,
            )


def _environment(folder: Path, auth_url: str, authorities: str) -> dict[str, str]:
    """Return the whole environment of a tenant's commands: Keystone's credentials, and an empty cache."""
    return {
        "PATH": f"{Path(sys.executable).parent}:/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME": str(folder),
        "XDG_CACHE_HOME": str(folder / "cache"),
        "LANG": "C.UTF-8",
        "OS_AUTH_URL": auth_url,
        "OS_CACERT": authorities,
        "OS_USERNAME": TENANT,
        "OS_PASSWORD": settings.password(TENANT),
        "OS_PROJECT_NAME": TENANT,
        "OS_USER_DOMAIN_NAME": "Default",
        "OS_PROJECT_DOMAIN_NAME": "Default",
        "OS_REGION_NAME": settings.REGION,
        "OS_INTERFACE": INTERFACE,
    }


def _all_authorities(folder: Path, own: str) -> dict[str, str]:
    """Return what else is in the environment of a tenant that trusts all public authorities, too."""
    bundle = folder / "all-authorities.pem"
    bundle.write_text(Path(certifi.where()).read_text() + Path(own).read_text())
    return {"OS_CACERT": str(bundle), "XDG_CACHE_HOME": str(folder / "cache-all")}


@contextmanager
def _api(folder: Path) -> Iterator[int]:
    """Run the API under uWSGI as the shipped file says; yield its port."""
    (port,) = free_ports(1)
    changed = {
        "virtualenv": sys.prefix,
        "http-socket": f"127.0.0.1:{port}",
        "processes": str(PROCESSES),
    }
    lines = [
        f"{option} = {changed[option]}" if (option := line.partition(" = ")[0]) in changed else line
        for line in UWSGI.read_text().splitlines()
    ]
    ini = folder / "uwsgi.ini"
    ini.write_text("\n".join(lines) + "\n")
    environment = settings.environment(GSAAS_CONFIG_FILES=str(bed_gsaas.CONTROLLER))
    with (folder / "uwsgi.log").open("wb") as log:
        process = subprocess.Popen(
            [venv.program("uwsgi"), "--ini", str(ini)], env=environment, stdout=log, stderr=log
        )
    try:
        until(lambda: rest.answers(port), "the API under uWSGI", 60)
        yield port
    finally:
        process.terminate()
        process.wait()


@contextmanager
def _gpu_host(number: int) -> Iterator[None]:
    """Register a host with so many GPUs during the block."""
    address = f"{machines.NETWORKS[machines.GPU_DEVICE]}.{ADDRESS_BYTE}"
    reported = [
        GpuInfo(f"GPU-bench-{index:04}", index, "NVIDIA A2", MEMORY_MB, 8308 + index)
        for index in range(number)
    ]
    database = Database.open(bed_database.url("gsaas", bed_gsaas.USER))
    try:
        with database.write() as session:
            gpus.register(session, GPU_HOST, address, reported, interval=INTERVAL)
        try:
            yield
        finally:
            with database.write() as session:
                hosts.forget(session, GPU_HOST, timeout=None, servers_stay=True)
            with database.write() as session:
                hosts.delete_forgotten(session)
    finally:
        database.close()


@contextmanager
def _in_catalogue(url: str) -> Iterator[None]:
    """Have *url* in Keystone's catalogue as an endpoint of GSaaS during the block."""
    cloud = rest.cloud()
    (service,) = cloud.find("identity", "services", type=bed_gsaas.SERVICE_TYPE)
    wanted = {
        "service_id": service["id"],
        "interface": INTERFACE,
        "region_id": settings.REGION,
        "url": url,
    }
    made = cloud.call("POST", "identity", "endpoints", {"endpoint": wanted})["endpoint"]
    try:
        yield
    finally:
        cloud.call("DELETE", "identity", f"endpoints/{made['id']}")


@contextmanager
def _provider(number: int) -> Iterator[str]:
    """Have a resource provider with so many VGPUs during the block; yield its id."""
    provider = str(uuid.uuid4())
    _ask("POST", "/resource_providers", {"name": GPU_HOST, "uuid": provider})
    inventory: dict[str, Any] = {"total": number, "max_unit": number}
    body = {"resource_provider_generation": 0, "inventories": {RESOURCE: inventory}}
    _ask("PUT", f"/resource_providers/{provider}/inventories", body)
    try:
        yield provider
    finally:
        _ask("DELETE", f"/resource_providers/{provider}")


def admin_token() -> str:
    """Return a token of the administrator, who may write allocations."""
    return rest.cloud().token()


def _ask(method: str, path: str, body: dict[str, Any] | None = None) -> None:
    connection = HTTPConnection(settings.ADDRESS, settings.PLACEMENT_PORT, timeout=60)
    headers = {
        "X-Auth-Token": admin_token(),
        "OpenStack-API-Version": PLACEMENT_VERSION,
        "Content-Type": "application/json",
    }
    connection.request(method, path, None if body is None else json.dumps(body), headers)
    response = connection.getresponse()
    answer = response.read()
    assert response.status < 300, (method, path, response.status, answer)
    connection.close()
