# SPDX-License-Identifier: Apache-2.0
"""One cloud for all tests that need it. It is left as it was found: up, or down."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from openstack.config import OpenStackConfig
from openstack.connection import Connection

from gsaas.cloud import server_tags
from gsaas.context import RequestContext
from gsaasclient import sdk
from tests.openstack import cli
from tests.openstack.bed import credentials, fitness, settings
from tests.openstack.dashboards import as_tenant as as_tenant
from tests.openstack.dashboards import browser as browser
from tests.openstack.dashboards import horizon as horizon
from tests.openstack.dashboards import window as window
from tests.openstack.launches import Launches, caller
from tests.openstack.servers import Servers
from tests.openstack.taps import with_taps

PATIENCE = 900  # seconds; a busy machine emulates slowly: a guest of 20 s takes minutes there


@pytest.fixture(autouse=True)
def own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No command of a test uses a token that another test, or the user, has cached."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture(scope="session")
def cloud() -> Iterator[None]:
    """The cloud, up. A run that is asked to end takes it down as well."""
    if lacking := fitness.lacks():
        pytest.skip(f"the cloud needs {lacking}")
    asked = signal.signal(signal.SIGTERM, lambda *_: pytest.exit("asked to end", 143))
    with cli.lent():
        yield
    signal.signal(signal.SIGTERM, asked)


@pytest.fixture(scope="session")
def connect(cloud: None) -> Callable[[str], Connection]:
    """Makes a connection as one of the users of `clouds.yaml`."""

    clouds = OpenStackConfig(config_files=[str(credentials.CLOUDS)], load_envvars=False)

    def connect(user: str) -> Connection:
        return Connection(config=clouds.get_one(user))

    return connect


@pytest.fixture(scope="session")
def admin(connect: Callable[[str], Connection]) -> Connection:
    return connect("admin")


@pytest.fixture(scope="session")
def tenant(connect: Callable[[str], Connection]) -> Connection:
    return connect(settings.TENANTS[0])


@pytest.fixture
def servers(admin: Connection, tenant: Connection) -> Iterator[Servers]:
    """Boots servers of the tenant; deletes them afterwards, and sees that nothing is left."""
    servers = Servers(admin, tenant)
    yield servers
    servers.delete()
    assert servers.remains() == []


@pytest.fixture
def all_released(admin: Connection) -> Iterator[None]:
    """No project has a lease afterwards: one that a test leaves fails that test, and is in the way of no other."""
    yield
    sdk.add_service(admin)
    gpus = admin.gpu_scheduling
    found = list(gpus.leases(all_projects=True))
    left = [lease.id for lease in found if not _is_ending(admin, lease)]
    for lease in found:
        gpus.delete_lease(lease)
        gpus.wait_for_release(lease, wait=PATIENCE)
    assert left == []


def _is_ending(admin: Connection, lease: Any) -> bool:
    """Whether a lease is being released, or is going to be as soon as the engine has heard that its server is gone."""
    server_id = (lease.server or {}).get("id")
    if lease.status == "RELEASING":
        return True
    return server_id is not None and admin.compute.find_server(server_id, all_projects=True) is None


@pytest.fixture
def taps(admin: Connection, servers: Servers) -> Iterator[None]:
    """Servers of fake hypervisors have taps."""
    with with_taps(admin, servers):
        yield


@pytest.fixture
def gpu_flavor(admin: Connection) -> Iterator[Callable[..., str]]:
    """Makes flavors like another one with properties of GSaaS, as an operator does."""
    flavors = []

    def gpu_flavor(like: str, properties: dict[str, str]) -> str:
        model = admin.compute.find_flavor(like)
        flavor = admin.compute.create_flavor(
            name=f"{like}-with-cgpus", ram=model.ram, vcpus=model.vcpus, disk=model.disk
        )
        flavors.append(flavor)
        specs = admin.compute.fetch_flavor_extra_specs(model).extra_specs
        admin.compute.create_flavor_extra_specs(flavor, {**specs, **properties})
        return flavor.name

    yield gpu_flavor
    for flavor in flavors:
        admin.compute.delete_flavor(flavor)


@pytest.fixture(scope="session")
def eventually() -> Callable[[Callable[[], Any]], Any]:
    """Asks until the answer is a true one, and returns it."""

    def eventually(ask: Callable[[], Any]) -> Any:
        deadline = time.monotonic() + PATIENCE
        while not (answer := ask()):
            assert time.monotonic() < deadline, f"not within {PATIENCE} s"
            time.sleep(1.0)
        return answer

    return eventually


@pytest.fixture
def await_lease(
    admin: Connection, eventually: Callable[[Callable[[], Any]], Any]
) -> Callable[[str, str], None]:
    """Waits until a lease has a status; in this process, as each run of `gsaas` costs a second of a processor."""
    sdk.add_service(admin)

    def await_lease(lease_id: str, status: str) -> None:
        eventually(lambda: admin.gpu_scheduling.get_lease(lease_id).status == status)

    return await_lease


@pytest.fixture
def owner(tenant: Connection) -> RequestContext:
    return caller(tenant)


@pytest.fixture
def made(admin: Connection) -> Callable[[str], list[Any]]:
    """Nova's servers of a lease, in all projects. One that is gone is listed for a moment more, as DELETED."""

    def made(lease_id: str) -> list[Any]:
        found = admin.compute.servers(all_projects=True, tags=server_tags.tag(lease_id))
        return [server for server in found if server.status != "DELETED"]

    return made


@pytest.fixture
def make_launches(tenant: Connection, tmp_path: Path) -> Iterator[Callable]:
    """Makes a GSaaS; afterwards, what its leases hold is given back."""
    made = []
    image = tenant.image.find_image(settings.IMAGE).id
    flavor = tenant.compute.find_flavor(settings.FAKE_FLAVOR).id
    network = tenant.network.find_network(settings.NETWORK).id

    def make(nova_url: str | None = None) -> Launches:
        made.append(Launches(tmp_path, image, flavor, network, nova_url))
        return made[-1]

    yield make
    for launches in made:
        launches.close()


@pytest.fixture
def launches(make_launches: Callable) -> Launches:
    return make_launches()
