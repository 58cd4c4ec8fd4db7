# SPDX-License-Identifier: Apache-2.0
"""Check that OpenStack's services answer, that Nova sends notifications, and that its compute hosts have endpoints.

Not checked: whether Nova lets GSaaS, but not tenants, choose a server's host. Only launching a VM can show that (with
`-locality=local`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from keystoneauth1 import exceptions as keystone
from oslo_config import cfg

from gsaas import exceptions, rpc
from gsaas.checkup import agents, identity, server_defaults
from gsaas.checkup.findings import Finding, fail, ok, reason, warn
from gsaas.rpc.queues import NotObservable, QueueState, inspect_queue

if TYPE_CHECKING:
    from gsaas.cloud.nova.clients import Clients

PART = "Nova"
NOTIFICATIONS = "notifications"
HOSTS = "compute hosts"
BACKLOG = 10_000
"""Notifications that may wait in a queue: RabbitMQ keeps each of them, some kilobytes, in memory."""


def check(conf: cfg.ConfigOpts, endpoints: Collection[str] | None) -> Iterator[Finding]:
    """Send a request to Nova, Neutron, Glance and Placement as the service user, and yield what was found.

    *endpoints* are the hosts that have a RODVR endpoint; None if they are not known.
    """
    # Imported here: it takes long to import, and is needed only with Nova.
    from gsaas.cloud.nova import clients
    from gsaas.cloud.nova.hosts import compute_hosts

    try:
        openstack = clients.ClientFactory(conf).for_service()
    except ValueError as error:
        yield fail(PART, str(error), "set the user as which GSaaS asks Nova in [service_user]")
        return
    try:
        yield from identity.check_service_user_roles(identity.roles_of(openstack.sdk.session))
    except keystone.ClientException as error:
        yield identity.no_token("service_user", error)
        return
    found = list(_check_services(openstack))
    yield from found
    if not any(finding.todo for finding in found):
        yield from server_defaults.check(conf.nova, openstack)
    if endpoints is None or any(finding.part == PART and finding.todo for finding in found):
        return
    try:
        yield from compare_compute_hosts(compute_hosts(openstack), endpoints)
    except (clients.RequestRejected, exceptions.CloudUnavailable) as error:
        yield _failed(PART, error)


def compare_compute_hosts(known: Collection[str], endpoints: Collection[str]) -> Iterator[Finding]:
    """Compare the compute hosts that Nova uses, *known*, with those that have an endpoint."""
    without = sorted(set(known) - set(endpoints))
    unknown = sorted(set(endpoints) - set(known))
    if without:
        yield warn(
            HOSTS,
            f"{len(without)} of Nova's have no endpoint, so no VM gets GPUs there: {agents.names(without)}",
            "start gsaas-rodvr there; or keep VMs with cGPUs off them with an aggregate",
        )
    if unknown:
        yield warn(
            HOSTS,
            f"{len(unknown)} with an endpoint are not used by Nova: {agents.names(unknown)}",
            "if Nova calls the host by another name, set [DEFAULT]host there to the name in openstack compute service "
            "list; if the host is gone: gsaas hosts -forget=NAME",
        )
    if not (without or unknown):
        yield ok(HOSTS, f"Nova uses {len(known)}, and each has an endpoint")


def notifications(conf: cfg.ConfigOpts) -> Iterator[Finding]:
    """Look at the queues that Nova's notifications go to, on the message bus that carries them."""
    try:
        bus = rpc.connect(conf, conf.nova.notification_url)
    except rpc.BusError as error:
        yield fail(
            NOTIFICATIONS,
            f"[nova]notification_url cannot be used: {reason(error)}",
            "correct [nova]notification_url",
        )
        return
    topics = conf.nova.notification_topics
    try:
        queues = {
            name: inspect_queue(bus, name)
            for name in (conf.nova.notification_pool, *(f"{topic}.info" for topic in topics))
        }
    except NotObservable:
        return
    except rpc.BusError as error:
        yield fail(
            NOTIFICATIONS,
            f"the message bus that carries them does not answer: {reason(error)}",
            "correct [nova]notification_url, or repair that message bus",
        )
        return
    finally:
        bus.cleanup()
    yield from check_queues(conf.nova.notification_pool, queues)


def check_queues(own_queue: str, queues: Mapping[str, QueueState | None]) -> Iterator[Finding]:
    """Check the queues of notifications, by name: *own_queue*, that of GSaaS, and those that Nova declares.

    A queue is None if it does not exist.
    """
    novas_queues = {name: queue for name, queue in queues.items() if name != own_queue}
    if not any(novas_queues.values()):
        yield warn(
            NOTIFICATIONS,
            "Nova has sent none yet, so GSaaS notices changes of servers only every [nova]audit_interval",
            "in nova.conf: [notifications]notification_format = versioned and "
            "[oslo_messaging_notifications]driver = messagingv2; then restart Nova's services",
        )
    full = {name: queue for name, queue in queues.items() if queue and queue.messages > BACKLOG}
    for name, queue in sorted(full.items()):
        if name == own_queue:
            todo = "read the log of gsaas-engine, which empties this queue"
        else:
            todo = (
                "have RabbitMQ delete old ones: rabbitmqctl set_policy --apply-to queues nova-notifications "
                f"'^({name.partition('.')[0]}\\..*|{own_queue})$' '{{\"message-ttl\": 3600000}}'"
            )
        yield warn(NOTIFICATIONS, f"{queue.messages} wait in the queue {name}", todo)
    if any(novas_queues.values()) and not full:
        yield ok(NOTIFICATIONS, "Nova sends them, and they do not pile up")


def _check_services(openstack: Clients) -> Iterator[Finding]:
    """Send each service one small request of a kind that launches need."""
    from gsaas.cloud.nova import clients

    requests: dict[str, Callable[[], Any]] = {
        PART: lambda: openstack.nova.servers.list(search_opts={"all_tenants": 1}, limit=1),
        "Neutron": lambda: list(openstack.sdk.network.ports(limit=1, paginated=False)),
        "Glance": lambda: list(openstack.sdk.image.images(limit=1, paginated=False)),
        "Placement": lambda: list(openstack.sdk.placement.resource_providers()),
    }
    for name, send in requests.items():
        try:
            with clients.translated_errors(name):
                send()
        except (clients.RequestRejected, exceptions.CloudUnavailable) as error:
            yield _failed(name, error)
        else:
            yield ok(name, "it answers")


def _failed(name: str, error: Exception) -> Finding:
    return fail(
        name,
        f"it does not answer as it should: {reason(error.__cause__ or error)}",
        f"repair it, or correct its address in [{name.lower()}] and the user in [service_user]",
    )
