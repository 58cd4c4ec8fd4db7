"""Options of grants: how consumers without masked addresses prove that real ones are meant for them."""

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
        "a server that cannot have masked addresses get none: whoever reaches the GPU network then reaches their GPUs.",
    ),
    cfg.IntOpt(
        "lifetime",
        default=300,
        min=5,
        max=86400,
        help="Seconds from when a grant is given out until it can no longer be redeemed; a redeemed one lasts as long "
        "as its lease, and whoever was too late asks for the environment again. Too short, and programs that start "
        "slowly come too late; very long, and a grant found in an old log is worth something.",
    ),
    cfg.PortOpt(
        "gate_port",
        help="TCP port of every GPU host, at its address on the GPU network, where its gsaas-monitor takes grants; the "
        "same on controllers and GPU hosts. Unset, there is no such gate, and only who may ask the API redeems grants. "
        "Consumers must be able to reach it, and nobody else needs to.",
    ),
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    conf.register_group(GROUP)
    conf.register_opts(OPTS, group=GROUP.name)


def list_opts() -> dict[cfg.OptGroup, list[cfg.Opt]]:
    return {GROUP: OPTS}
