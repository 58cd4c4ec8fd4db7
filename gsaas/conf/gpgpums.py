"""Options of GPGPUMS, the GPU management system: how GPUs are chosen and claimed."""

from __future__ import annotations

from oslo_config import cfg

GROUP = cfg.OptGroup(
    "gpgpums", title="GPU management system", help="How GPUs are chosen and claimed."
)

OPTS = [
    cfg.StrOpt(
        "policy",
        default="least-load-fit",
        help="Scheduling policy for requests that name none: an entry point of gsaas.gpgpums.policies. least-load-fit "
        "spreads leases over the emptiest GPUs, which is best for speed; first-fit packs them in pool order, "
        "which keeps whole GPUs free for exclusive requests but lets tenants share busy GPUs.",
    ),
    cfg.IntOpt(
        "claim_attempts",
        default=20,
        min=1,
        max=1000,
        help="How often a claim is tried again after others changed the chosen GPUs meanwhile. At 1, two users who "
        "ask at the same moment may both choose one GPU, and one of them is told to try again; a very high value "
        "lets a request wait long in a storm of claims. Raise it with the number of API workers.",
    ),
    cfg.IntOpt(
        "heartbeat_timeout",
        default=35,
        min=2,
        help="Seconds without a word from a GPU host's monitor before its GPUs are no longer offered. Just above "
        "[monitor]monitor_interval, a single late report withdraws a host; at an hour, tenants are given GPUs "
        "of a host that burnt down an hour ago. Three and a half intervals is a good start.",
    ),
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    conf.register_group(GROUP)
    conf.register_opts(OPTS, group=GROUP.name)


def list_opts() -> dict[cfg.OptGroup, list[cfg.Opt]]:
    return {GROUP: OPTS}
