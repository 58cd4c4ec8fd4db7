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
        help="Scheduling policy for requests that name none: an entry point of gsaas.gpgpums.policies; `gsaas "
        "policies` tells each. least-load-fit spreads leases over the emptiest GPUs, which is best for speed; "
        "first-fit packs them in pool order, which keeps whole GPUs free for exclusive requests but lets tenants "
        "share busy GPUs. An admin may set another while the service runs (`gsaas policy -default=NAME`), which "
        "goes before this.",
    ),
    cfg.ListOpt(
        "allowed_policies",
        default=["*"],
        help="Scheduling policies that a request may name; * stands for all that are installed. The default policy is "
        "allowed in any case, so an empty list leaves only that. With all of them, a tenant may spread where you "
        "would pack (or the other way round) and so cost you idle GPUs.",
    ),
    cfg.StrOpt(
        "fewer_jobs_node_inside",
        default="worst-fit",
        help="How fewer-jobs-node chooses among the GPUs of the host that it has chosen: any other policy. worst-fit "
        "gives the GPU with most free memory; best-fit or energy keep GPUs of the host whole.",
    ),
    cfg.IntOpt(
        "request_mix",
        default=500,
        min=1,
        max=100000,
        help="Requests that fragmentation-gradient takes for typical: the last so many that a process has seen. At 1 "
        "it knows only the request at hand; with very many it clings to what was asked for long ago.",
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
