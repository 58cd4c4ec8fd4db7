# SPDX-License-Identifier: Apache-2.0
"""Options of a cloud run by Nova (`[engine]cloud = nova`): its notifications, and how to reach OpenStack's services.

The addresses of the services ([nova], [neutron], [glance], [placement]) and the service user ([service_user]) are set
with keystoneauth's own options, as in the configuration of Nova. `register_clients` registers them, and not
`register_opts`: importing keystoneauth takes longer than gsaas-standalone, which never needs it, takes to start.
"""

from __future__ import annotations

from oslo_config import cfg

GROUP = cfg.OptGroup(
    "nova", title="Nova", help="How servers are made and observed where Nova boots the VMs."
)
SERVICES = ("nova", "neutron", "glance", "placement")
SERVICE_USER = "service_user"
TIMEOUT = 30
"""Seconds that a service may take to answer; keystoneauth's default is to wait for ever."""
RETRIES = 1
"""Retries of a request whose connection failed. The request that makes a server is never repeated."""

OPTS: list[cfg.Opt] = [
    cfg.StrOpt(
        "notification_url",
        secret=True,
        help="Transport URL of the message bus that Nova sends its notifications to. If unset, it is the one that "
        "transport_url names.",
    ),
    cfg.StrOpt(
        "notification_exchange",
        default="nova",
        help="The exchange that Nova's notifications go to: control_exchange in its own configuration.",
    ),
    cfg.ListOpt(
        "notification_topics",
        default=["versioned_notifications"],
        help="Nova's [notifications]versioned_notifications_topics. Nova sends them only if its "
        "configuration has [notifications]notification_format = versioned and [oslo_messaging_notifications]driver = "
        "messagingv2. Without them, GSaaS learns of changes only every audit_interval.",
    ),
    cfg.StrOpt(
        "notification_pool",
        default="gsaas",
        help="Name of the queue that all engines of one GSaaS share, so that each notification is received once. No "
        "other program may use it.",
    ),
    cfg.FloatOpt(
        "poll_interval",
        default=3.0,
        min=0.1,
        max=60.0,
        help="Seconds between two requests for the state of a server that is booting or being deleted, if no "
        "notification arrives earlier. It replaces [engine]poll_interval. At 0.1, Nova answers ten requests a "
        "second for every such server; at a minute, a launch whose notification was lost takes up to a minute "
        "longer.",
    ),
    cfg.FloatOpt(
        "audit_interval",
        default=60.0,
        min=1.0,
        max=86400.0,
        help="Seconds between two requests for the servers that have changed, which find what lost notifications did "
        "not report. At a second, Nova is busy answering them; at a day, the GPUs of a VM whose owner deleted it, "
        "and whose notification was lost, are released up to a day later.",
    ),
    cfg.StrOpt(
        "default_image",
        help="The image of VMs whose owners name none: its name, its id, or property:KEY=VALUE for the newest image "
        "with this property. Of several images, a project's own one comes before one that is shared with it, and that "
        "before a public one: so a project may have a default of its own. If unset, tenants have to name an image.",
    ),
    cfg.StrOpt(
        "default_flavor",
        help="The flavor of VMs whose owners name none: its name, its id, or property:KEY=VALUE for the smallest "
        "flavor with this extra spec that the project may use. If unset, tenants have to name a flavor.",
    ),
    cfg.StrOpt(
        "default_network",
        default="auto",
        help="The network of VMs whose owners name none: the name of a network of their project, tag:TAG for the "
        "one with this tag, the id of one that projects share, or auto. With auto it is the only network that the "
        "project can use; if there is none, Neutron makes one, where it has an external network and a subnet pool for "
        "that (its extension auto-allocated-topology). Any project may share a network with another under any name, so "
        "a shared one counts by its id only.",
    ),
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    """Register the options of this module."""
    conf.register_group(GROUP)
    conf.register_opts(OPTS, group=GROUP.name)


def register_clients(conf: cfg.ConfigOpts) -> None:
    """Register keystoneauth's options for all services and the service user."""
    for group, options in _client_opts().items():
        conf.register_opts(options, group=group)


def list_opts() -> dict[cfg.OptGroup, list[cfg.Opt]]:
    """Return the options by group."""
    return {GROUP: OPTS}


def list_client_opts() -> dict[str, list[cfg.Opt]]:
    """Return keystoneauth's options, those of a user with a password included, for oslo-config-generator."""
    from keystoneauth1 import loading

    found = _client_opts()
    found[SERVICE_USER] += loading.get_auth_plugin_conf_options("password")
    return found


def _client_opts() -> dict[str, list[cfg.Opt]]:
    from keystoneauth1 import loading

    user = [*loading.get_session_conf_options(), *loading.get_auth_common_conf_options()]
    cfg.set_defaults(user, timeout=TIMEOUT)
    service_types = {
        "nova": "compute",
        "neutron": "network",
        "glance": "image",
        "placement": "placement",
    }
    services = {}
    for name in SERVICES:
        services[name] = loading.get_adapter_conf_options(include_deprecated=False)
        cfg.set_defaults(services[name], service_type=service_types[name], connect_retries=RETRIES)
    return {SERVICE_USER: user, **services}
