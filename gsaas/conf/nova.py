"""Options of a cloud run by Nova (`[engine]cloud = nova`): what it tells us, and how it is reached.

How to reach each service ([nova], [neutron], [glance], [placement]) and as whom ([service_user]) is said with
keystoneauth's own options, as in the configuration of Nova. They are registered by `register_clients`, because
importing keystoneauth takes longer than gsaas-standalone, which never needs it, takes to start.
"""

from __future__ import annotations

from oslo_config import cfg

GROUP = cfg.OptGroup(
    "nova", title="Nova", help="How servers are made and followed where Nova boots the VMs."
)
SERVICES = ("nova", "neutron", "glance", "placement")
SERVICE_USER = "service_user"
TIMEOUT = 30
"""Seconds; keystoneauth itself would wait for ever."""
RETRIES = 1
"""For questions that a service did not answer. A server is never requested twice."""

OPTS = [
    cfg.StrOpt(
        "notification_url",
        secret=True,
        help="Transport URL of the message bus that Nova sends its notifications to. Unset, it is the one that"
        " transport_url names.",
    ),
    cfg.StrOpt(
        "notification_exchange",
        default="nova",
        help="The exchange that Nova's notifications go to: control_exchange in its own configuration.",
    ),
    cfg.ListOpt(
        "notification_topics",
        default=["versioned_notifications"],
        help="Nova's [notifications]versioned_notifications_topics. Nova has to be told to send them, with "
        "[notifications]notification_format = versioned and [oslo_messaging_notifications]driver = "
        "messagingv2. If it does not, GSaaS learns of changes only every audit_interval.",
    ),
    cfg.StrOpt(
        "notification_pool",
        default="gsaas",
        help="Name of the queue that all engines of one GSaaS share, so that each notification is taken once, and"
        " that nobody else uses.",
    ),
    cfg.FloatOpt(
        "poll_interval",
        default=3.0,
        min=0.1,
        max=60.0,
        help="Seconds between two looks at a server that is booting or being deleted, when no notification comes "
        "first. It takes the place of [engine]poll_interval. At 0.1, Nova answers ten questions a second for every "
        "such server; at a minute, a launch waits a minute for what a lost notification would have told.",
    ),
    cfg.FloatOpt(
        "audit_interval",
        default=60.0,
        min=1.0,
        max=86400.0,
        help="Seconds between two questions to Nova which servers have changed, for what notifications missed. At"
        " a second, Nova answers all day; after a day without notifications, the GPUs of a VM that was "
        "deleted in the morning are free in the evening.",
    ),
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    conf.register_group(GROUP)
    conf.register_opts(OPTS, group=GROUP.name)


def register_clients(conf: cfg.ConfigOpts) -> None:
    """Register keystoneauth's options as well."""
    for group, options in _client_opts().items():
        conf.register_opts(options, group=group)


def list_opts() -> dict[cfg.OptGroup, list[cfg.Opt]]:
    return {GROUP: OPTS}


def list_client_opts() -> dict[str, list[cfg.Opt]]:
    """For oslo-config-generator: keystoneauth's options, with those of a user with a password."""
    from keystoneauth1 import loading

    found = _client_opts()
    found[SERVICE_USER] += loading.get_auth_plugin_conf_options("password")
    return found


def _client_opts() -> dict[str, list[cfg.Opt]]:
    from keystoneauth1 import loading

    user = [*loading.get_session_conf_options(), *loading.get_auth_common_conf_options()]
    cfg.set_defaults(user, timeout=TIMEOUT)
    kinds = {"nova": "compute", "neutron": "network", "glance": "image", "placement": "placement"}
    services = {}
    for name in SERVICES:
        services[name] = loading.get_adapter_conf_options(include_deprecated=False)
        cfg.set_defaults(services[name], service_type=kinds[name], connect_retries=RETRIES)
    return {SERVICE_USER: user, **services}
