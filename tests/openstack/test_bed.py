# SPDX-License-Identifier: Apache-2.0
"""The test bed is a real cloud: it answers, boots guests, pretends where it says so, and forgets."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from collections.abc import Callable
from typing import Any

import oslo_messaging
import pytest
from openstack.connection import Connection
from openstack.exceptions import ForbiddenException
from oslo_config import cfg

from tests.openstack import cli
from tests.openstack.bed import accounts, gsaas, messages, rest, settings
from tests.openstack.servers import Servers, links

pytestmark = [
    pytest.mark.openstack,
    pytest.mark.timeout(1800),
]

HOSTS = {settings.REAL_HOST, *settings.FAKE_HOSTS}
USER_DATA = """\
#cloud-config
runcmd:
  - echo "user data ran on $(hostname), six times seven is $((6 * 7))" >/dev/console
"""


def test_every_hypervisor_is_up(admin: Connection):
    services = admin.compute.services(binary="nova-compute")
    assert {service.host for service in services if service.state == "up"} == HOSTS
    hypervisors = admin.compute.hypervisors()
    assert {hypervisor.name for hypervisor in hypervisors} == HOSTS


def test_keystone_has_the_roles_of_its_bootstrap(admin: Connection):
    names = {role.name for role in admin.identity.roles()}
    assert names >= {"reader", "member", "manager", "admin", "service"}, "Heat adds one of its own"


def test_bringing_up_what_is_up_starts_nothing(cloud: None):
    before = _status()
    cli.bed("up", f"--for={os.getpid()}")
    after = _status()
    assert after["state"] == "up"
    assert _pids(after) == _pids(before)
    assert None not in _pids(after)


def test_every_host_has_an_account_on_the_message_bus_and_is_believed(cloud: None):
    """What ships is what is tested: messages are signed, and permissions those of `gsaas-manage bus permissions`."""
    hosts = {*gsaas.GPUS, *gsaas.COMPUTE_HOSTS}
    control = [*messages.CONTROL, "--quiet", "--formatter=json"]
    rows = subprocess.check_output([*control, "list_connections", "user", "vhost"], text=True)
    users = {row["user"] for row in json.loads(rows) if row["vhost"] == accounts.VIRTUAL_HOST}
    assert users == {"gsaas", *(f"gsaas-{host}" for host in hosts)}
    shipped = subprocess.check_output(
        [gsaas.program("gsaas-manage"), "bus", "permissions", settings.REAL_HOST]
        + ["--role=compute", "--role=gpu"],
        text=True,
    )
    listed = [*control, "list_user_permissions", f"gsaas-{settings.REAL_HOST}"]
    (allowed,) = json.loads(subprocess.check_output(listed, text=True))
    expected = shlex.split(shipped.splitlines()[0])[-3:]
    assert [allowed[kind] for kind in ("configure", "write", "read")] == expected
    for daemon in (*gsaas.ENGINES, *gsaas.MONITORS, *gsaas.ENDPOINTS):
        assert "not believed" not in daemon.log.read_text()


def test_a_tenants_guest_boots_and_runs_its_user_data(
    servers: Servers, eventually: Callable[[Callable[[], Any]], Any]
):
    server = servers.boot("guest-1", flavor=settings.FLAVOR, user_data=USER_DATA)
    assert servers.host(server) == settings.REAL_HOST
    tap = servers.tap(server)
    assert links()[tap]["master"] == f"qbr{tap.removeprefix('tap')}"
    said = "user data ran on guest-1, six times seven is 42"
    eventually(lambda: said in servers.console(server))


def test_a_server_on_a_fake_hypervisor_is_active_without_a_tap(servers: Servers):
    server = servers.boot("fake-1", flavor=settings.FAKE_FLAVOR)
    assert servers.host(server) in settings.FAKE_HOSTS
    assert servers.tap(server) not in links()


def test_tenants_do_not_see_each_other(servers: Servers, connect: Callable[[str], Connection]):
    server = servers.boot("private-1", flavor=settings.FAKE_FLAVOR)
    other = connect(settings.TENANTS[1])
    assert server.id not in {each.id for each in other.compute.servers()}
    assert len(list(other.network.networks(name=settings.NETWORK))) == 1


def test_a_service_may_choose_the_host_of_a_tenants_server(
    servers: Servers, tenant: Connection, monkeypatch: pytest.MonkeyPatch
):
    """What GSaaS needs for `-locality=local`: the tenant's token, vouched for by a service's."""
    wanted = {"flavor": settings.FAKE_FLAVOR, "host": settings.FAKE_HOSTS[1]}
    with pytest.raises(ForbiddenException):
        servers.boot("pinned-1", **wanted)
    service = rest.cloud("nova", project="service").token()
    monkeypatch.setitem(tenant.session.additional_headers, "X-Service-Token", service)
    assert servers.host(servers.boot("pinned-2", **wanted)) == settings.FAKE_HOSTS[1]


def test_nova_tells_listeners_of_a_new_server(
    servers: Servers, eventually: Callable[[Callable[[], Any]], Any]
):
    heard: set[tuple[str, str]] = set()

    class Listener:
        def info(self, context: Any, publisher: str, event: str, payload: Any, meta: Any) -> None:
            heard.add((event, payload["nova_object.data"].get("uuid")))

    listener = oslo_messaging.get_notification_listener(
        oslo_messaging.get_notification_transport(cfg.ConfigOpts(), url=messages.url()),
        # A pool has a queue of its own; with it the exchange has to be named.
        [oslo_messaging.Target(exchange="nova", topic="versioned_notifications")],
        [Listener()],
        executor="threading",
        pool="test-bed",
    )
    listener.start()
    try:
        server = servers.boot("told-1", flavor=settings.FAKE_FLAVOR)
        eventually(lambda: ("instance.create.end", server.id) in heard)
    finally:
        listener.stop()
        listener.wait()


def _status() -> dict[str, Any]:
    return json.loads(cli.bed("status", "--json"))


def _pids(status: dict[str, Any]) -> list[int | None]:
    return [daemon["pid"] for daemon in status["daemons"]]
