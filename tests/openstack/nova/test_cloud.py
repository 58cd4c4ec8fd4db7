# SPDX-License-Identifier: Apache-2.0
"""The test bed is a real cloud: it answers, pretends where it says so, and keeps tenants apart.

That guests boot shows `test_end_to_end`: Nova asks the bed's GSaaS for the vendor data of each.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import oslo_messaging
import pytest
from openstack.connection import Connection
from openstack.exceptions import ForbiddenException
from oslo_config import cfg

from tests.openstack.bed import messages, rest, settings
from tests.openstack.servers import Servers, links

pytestmark = [
    pytest.mark.openstack,
    pytest.mark.timeout(1800),
]

HOSTS = {settings.REAL_HOST, *settings.FAKE_HOSTS}


def test_every_hypervisor_is_up(admin: Connection):
    services = admin.compute.services(binary="nova-compute")
    assert {service.host for service in services if service.state == "up"} == HOSTS
    hypervisors = admin.compute.hypervisors()
    assert {hypervisor.name for hypervisor in hypervisors} == HOSTS


def test_keystone_has_the_roles_of_its_bootstrap(admin: Connection):
    names = {role.name for role in admin.identity.roles()}
    assert names >= {"reader", "member", "manager", "admin", "service"}, "Heat adds one of its own"


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
