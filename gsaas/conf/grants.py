# SPDX-License-Identifier: Apache-2.0
"""Options of grants, by which consumers without masked addresses prove that they may use real ones."""

from __future__ import annotations

from oslo_config import cfg

GROUP = cfg.OptGroup(
    "grants",
    title="Grants",
    help="Single-use keys for consumers that are told the real addresses of daemons.",
)

OPTS = [
    cfg.MultiStrOpt(
        "key",
        default=[],
        secret=True,
        help="A key that grants are signed with, as NAME:KEY; `gsaas-manage grant-key` makes one. The same on all "
        "controllers, and on no other host. May be given several times: the first signs, all verify. To change it, "
        "add a new one behind it everywhere, then put that in front everywhere, and remove the old one when `lifetime` "
        "has passed. Without any, leases without "
        "a server that cannot have masked addresses get no grants: every machine on the GPU network can then reach "
        "their GPUs. Keys made of these tell repeated launches apart; without any, launches that differ only in "
        "passwords or user data count as repeated.",
    ),
    cfg.IntOpt(
        "lifetime",
        default=300,
        min=5,
        max=86400,
        help="Seconds from when a grant is given out until it can no longer be redeemed; a redeemed one lasts as long "
        "as its lease. A consumer whose grant has expired requests the environment again. Too short, and programs that "
        "start slowly come too late; very long, and a grant that is found in an old log can still be redeemed.",
    ),
    cfg.StrOpt(
        "direct",
        default="with-key",
        choices=[
            ("never", "no lease's owner is told a real address"),
            ("with-key", "only if a key is set: then the fences admit only who redeems a grant"),
            ("always", "also without a key: every machine on the GPU network reaches the GPUs"),
        ],
        help="Whether the owner of a lease without a server is told the real addresses of its daemons, and the gate, "
        "if its consumer can have neither masked addresses nor the GPUs of its own host. With never, masking holds for "
        "all tenants, and such launches are refused. Who may launch without a server at all, the access rule "
        "gsaas:leases:create-without-server says.",
    ),
    cfg.PortOpt(
        "gate_port",
        help="TCP port of every GPU host, at its address on the GPU network, where its gsaas-monitor accepts grants; "
        "the same on controllers and GPU hosts. Unset, there is no gate, and grants can only be redeemed through the "
        "API. Consumers have to reach this port, and no other machine has to.",
    ),
]


def allows_direct(conf: cfg.ConfigOpts) -> bool:
    """Return whether owners of leases may be told real addresses."""
    direct: str = conf.grants.direct
    return direct == "always" or (direct == "with-key" and bool(conf.grants.key))


def register_opts(conf: cfg.ConfigOpts) -> None:
    """Register the options with *conf*."""
    conf.register_group(GROUP)
    conf.register_opts(OPTS, group=GROUP.name)


def list_opts() -> dict[cfg.OptGroup, list[cfg.Opt]]:
    """Return the options, for the sample configuration file."""
    return {GROUP: OPTS}
