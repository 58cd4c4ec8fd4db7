# SPDX-License-Identifier: Apache-2.0
"""Options of notifications: what this service tells other programs of operators, over the message bus."""

from __future__ import annotations

from oslo_config import cfg

GROUP = cfg.OptGroup(
    "notifications",
    title="Notifications",
    help="What gsaas-api and gsaas-engine tell other programs of operators. Nothing is sent unless "
    "[oslo_messaging_notifications]driver is set, usually to messagingv2.",
)

OPTS: list[cfg.Opt] = [
    cfg.ListOpt(
        "topics",
        default=["versioned_notifications"],
        help="Topics of the versioned notifications of leases, GPUs and quotas. The queue of each is TOPIC.info, "
        "TOPIC.warn or TOPIC.error. Of several programs that read one queue, each gets a part of the notifications: "
        "give each a topic of its own. Queues that no program reads grow in the broker.",
    ),
    cfg.BoolOpt(
        "audit",
        default=False,
        help="Whether security events are sent as well, in the form of CADF: refused grants, refused access, failed "
        "authentication, and changes by administrators.",
    ),
    cfg.ListOpt(
        "audit_topics",
        default=["notifications"],
        help="Topics of security events; by default the one of Keystone's own, and of keystonemiddleware's audit.",
    ),
    cfg.IntOpt(
        "audit_per_source",
        default=10,
        min=1,
        max=100000,
        help="Refusals that one address may cause in a minute before its further ones are dropped, and counted in a "
        "metric. At 1, a second attempt is not seen; at 100000, one attacker fills the bus.",
    ),
    cfg.IntOpt(
        "audit_total",
        default=300,
        min=1,
        max=1000000,
        help="Refusals that all addresses together may cause in a minute, in each process. At 1, one attacker hides "
        "all others; at 1000000, an attacker with many addresses fills the bus.",
    ),
    cfg.IntOpt(
        "buffer",
        default=1000,
        min=1,
        max=1000000,
        help="Notifications that wait in the memory of a process while the bus is slow or away; further ones are "
        "dropped, and counted in a metric. At 1, a burst loses notifications; a million take some hundred MiB.",
    ),
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    """Register the options of this module."""
    conf.register_group(GROUP)
    conf.register_opts(OPTS, group=GROUP.name)


def list_opts() -> dict[cfg.OptGroup, list[cfg.Opt]]:
    """Return the options by group."""
    return {GROUP: OPTS}
