"""Does Nova answer us, does it tell us what happens to servers, and are its compute hosts ours?

That tenants may not, but we may choose a server's host cannot be seen without launching a VM: a launch with
`-locality=local` tells.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING

from keystoneauth1 import exceptions as keystone
from oslo_config import cfg

from gsaas import exceptions, rpc
from gsaas.checkup import agents, identity
from gsaas.checkup.findings import Finding, fail, ok, reason, warn

if TYPE_CHECKING:
    from gsaas.cloud.nova.clients import Clients

PART = "Nova"
NOTIFICATIONS = "notifications"
HOSTS = "compute hosts"
BACKLOG = 10_000
"""Notifications that may wait: RabbitMQ keeps some kilobytes of each in memory."""


def look(conf: cfg.ConfigOpts, endpoints: Collection[str] | None) -> Iterator[Finding]:
    """Ask Nova and its companions in our own name.

    *endpoints* are the hosts that have a RODVR endpoint; None if that is not known.
    """
    from gsaas.cloud.nova import clients  # only where there is a Nova: it takes long to import
    from gsaas.cloud.nova.hosts import compute_hosts

    try:
        service = clients.ClientFactory(conf).service()
    except ValueError as error:
        yield fail(PART, str(error), "say in [service_user] as whom GSaaS asks Nova")
        return
    try:
        yield from identity.service_user(identity.roles_of(service.sdk.session))
    except keystone.ClientException as error:
        yield identity.refused("service_user", error)
        return
    found = list(_answers(service))
    yield from found
    if endpoints is None or any(finding.part == PART and finding.todo for finding in found):
        return
    try:
        yield from computes(compute_hosts(service), endpoints)
    except (clients.Refused, exceptions.CloudUnavailable) as error:
        yield _refused(PART, error)


def computes(known: Collection[str], endpoints: Collection[str]) -> Iterator[Finding]:
    """Compare the compute hosts that Nova uses with those that have an endpoint."""
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
            f"{len(unknown)} with an endpoint are none that Nova uses: {agents.names(unknown)}",
            "set [DEFAULT]host there to the name in openstack compute service list, if it is another; "
            "gsaas hosts -forget=NAME, if it is gone",
        )
    if not (without or unknown):
        yield ok(HOSTS, f"Nova uses {len(known)}, and each has an endpoint")


def notifications(conf: cfg.ConfigOpts) -> Iterator[Finding]:
    """Look at the queues of the bus that Nova's notifications go to."""
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
            name: rpc.inspect_queue(bus, name)
            for name in (conf.nova.notification_pool, *(f"{topic}.info" for topic in topics))
        }
    except rpc.NotObservable:
        return
    except rpc.BusError as error:
        yield fail(
            NOTIFICATIONS,
            f"the bus that they come over does not answer: {reason(error)}",
            "correct [nova]notification_url, or mend that bus",
        )
        return
    finally:
        bus.cleanup()
    yield from told(conf.nova.notification_pool, queues)


def told(ours: str, queues: Mapping[str, rpc.QueueState | None]) -> Iterator[Finding]:
    """What the queues of notifications say: ours, called *ours*, and those that Nova makes for itself."""
    theirs = {name: queue for name, queue in queues.items() if name != ours}
    if not any(theirs.values()):
        yield warn(
            NOTIFICATIONS,
            "Nova has sent none yet, so what happens to servers is noticed only every [nova]audit_interval",
            "in nova.conf: [notifications]notification_format = versioned and "
            "[oslo_messaging_notifications]driver = messagingv2; then restart Nova's services",
        )
    full = {name: queue for name, queue in queues.items() if queue and queue.messages > BACKLOG}
    for name, queue in sorted(full.items()):
        if name == ours:
            todo = "look at what gsaas-engine logs: it empties this queue"
        else:
            todo = (
                "let RabbitMQ forget what is old: rabbitmqctl set_policy --apply-to queues nova-notifications "
                f"'^({name.partition('.')[0]}\\..*|{ours})$' '{{\"message-ttl\": 3600000}}'"
            )
        yield warn(NOTIFICATIONS, f"{queue.messages} wait in the queue {name}", todo)
    if any(theirs.values()) and not full:
        yield ok(NOTIFICATIONS, "Nova sends them, and they do not pile up")


def _answers(service: Clients) -> Iterator[Finding]:
    """One question to each service, of the kind that launches ask."""
    from gsaas.cloud.nova import clients

    questions = {
        PART: lambda: service.nova.servers.list(search_opts={"all_tenants": 1}, limit=1),
        "Neutron": lambda: list(service.sdk.network.ports(limit=1, paginated=False)),
        "Glance": lambda: list(service.sdk.image.images(limit=1, paginated=False)),
        "Placement": lambda: list(service.sdk.placement.resource_providers()),
    }
    for name, ask in questions.items():
        try:
            with clients.asking(name):
                ask()
        except (clients.Refused, exceptions.CloudUnavailable) as error:
            yield _refused(name, error)
        else:
            yield ok(name, "it answers")


def _refused(name: str, error: Exception) -> Finding:
    return fail(
        name,
        f"it does not answer as it should: {reason(error.__cause__ or error)}",
        f"mend it; [{name.lower()}] and [service_user] say where it is and as whom it is asked",
    )
