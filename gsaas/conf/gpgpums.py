# SPDX-License-Identifier: Apache-2.0
"""Options of GPGPUMS, the scheduler: how GPUs are selected and claimed."""

from __future__ import annotations

from oslo_config import cfg

GROUP = cfg.OptGroup(
    "gpgpums", title="GPU management system", help="How GPUs are selected and claimed."
)

OPTS: list[cfg.Opt] = [
    cfg.StrOpt(
        "policy",
        default="least-load-fit",
        help="Scheduling policy for requests that name none: an entry point of gsaas.gpgpums.policies; `gsaas "
        "policies` describes each. least-load-fit spreads leases over the emptiest GPUs, which is best for speed; "
        "first-fit packs them in pool order, which keeps whole GPUs free for exclusive requests but makes tenants "
        "share busy GPUs. An administrator may set another while the service runs (`gsaas policy -default=NAME`), "
        "which overrides this option.",
    ),
    cfg.ListOpt(
        "allowed_policies",
        default=["*"],
        help="Scheduling policies that a request may name; * means all that are installed. The default policy is "
        "always allowed, so an empty list allows only that. If all are allowed, a tenant may choose one that spreads "
        "leases although your default packs them, which leaves fewer whole GPUs free.",
    ),
    cfg.StrOpt(
        "fewer_jobs_node_inside",
        default="worst-fit",
        help="The policy by which fewer-jobs-node selects among the GPUs of the host that it has selected: any other "
        "one. worst-fit selects the GPU with most free memory; best-fit and energy keep whole GPUs of the host "
        "free.",
    ),
    cfg.IntOpt(
        "request_mix",
        default=500,
        min=1,
        max=100000,
        help="Number of recent requests, as seen by one process, from which fragmentation-gradient and local-gradient "
        "derive the typical request. At 1, they consider only the current request; a very large number gives old "
        "requests too much weight.",
    ),
    cfg.FloatOpt(
        "remote_price",
        default=1.0,
        min=0.0,
        max=10000.0,
        help="What local-gradient adds for a GPU on another host than the consumer's, in percent of the cGPU's memory: "
        "a remote GPU is selected if it leaves that much less memory fragmented than any local one. At 0, local GPUs "
        "only win ties, which are frequent where requests have usual sizes; with the largest value, a remote GPU is "
        "hardly ever selected if a local one fits. Lower it where the network is fast, and raise it where it is slow.",
    ),
    cfg.IntOpt(
        "gpu_subset_size",
        default=1024,
        min=1,
        max=10000,
        help="Where a policy finds several GPUs equal, each process begins to look at a random one of the first ones "
        "in pool order, at most this number of them, and goes on in pool order. It begins there again with each claim, "
        "until another transaction has changed the GPU that it chose: then at another random one. At 1, all processes "
        "begin at the first one: those that claim at the same moment choose the same GPU, and all but one of them have "
        "to choose again. At a small number that happens often, too; a large one costs nothing. Policies that find no "
        "two GPUs equal, such as round-robin and first-fit, are not affected. On SQLite, where claims are made one "
        "after the other, the first is always chosen.",
    ),
    cfg.IntOpt(
        "min_share_mb",
        default=64,
        min=1,
        max=1048576,
        help="Smallest memory of a cGPU in shared mode, MiB; a request for less is refused, as it never fits. At 1, "
        "who means 2 GiB and writes 2 gets a lease of 2 MiB, on which no program runs; a large value refuses small "
        "shares that programs could use. CUDA needs some hundred MiB for a program itself.",
    ),
    cfg.IntOpt(
        "claim_attempts",
        default=20,
        min=1,
        max=1000,
        help="Number of attempts at a claim when concurrent claims change the selected GPUs. At 1, of two users who "
        "launch at the same moment one may have to launch again; with a very high value, a request may take long "
        "while there are many claims. Raise it with the number of API workers.",
    ),
    cfg.IntOpt(
        "reservation_notice",
        default=3600,
        min=0,
        max=8640000,
        help="Seconds before its beginning from which a reservation keeps what is free of its GPUs: no other lease "
        "gets it any more. At 0, a reservation begins with what happens to be free; with a large value, GPUs are "
        "unused for that long, and it is the surer that leases have returned them by the beginning.",
    ),
    cfg.IntOpt(
        "heartbeat_timeout",
        default=35,
        min=2,
        help="Seconds without a report from a GPU host's monitor after which its GPUs are no longer offered. Just "
        "above [monitor]monitor_interval, a single late report withdraws a host; at an hour, tenants still get "
        "GPUs of a host that failed an hour ago. Three and a half times monitor_interval is a good start.",
    ),
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    """Register the options of this module."""
    conf.register_group(GROUP)
    conf.register_opts(OPTS, group=GROUP.name)


def list_opts() -> dict[cfg.OptGroup, list[cfg.Opt]]:
    """Return the options by group."""
    return {GROUP: OPTS}
