# SPDX-License-Identifier: Apache-2.0
"""Options of gsaas-engine, which moves leases to their wanted state."""

from __future__ import annotations

from oslo_config import cfg

GROUP = cfg.OptGroup(
    "engine", title="Life cycle", help="How leases are moved to their wanted state."
)

OPTS: list[cfg.Opt] = [
    cfg.StrOpt(
        "cloud",
        default="nova",
        help="The cloud that boots VMs: the name of an entry point of gsaas.cloud. gsaas-standalone does not read it.",
    ),
    cfg.FloatOpt(
        "audit_interval",
        default=5.0,
        min=0.1,
        max=3600.0,
        help="Seconds between two audits, in which an engine looks at every lease that is not in its desired state, "
        "and completes what a crash or a lost message has interrupted. At 0.1, the database is read all the time "
        "for nothing; at an hour, a lease whose message was lost waits an hour for its next step.",
    ),
    cfg.FloatOpt(
        "poll_interval",
        default=1.0,
        min=0.1,
        max=60.0,
        help="Seconds between two requests for the state of a server that is booting or being deleted. At 0.1, the "
        "cloud's API answers ten requests a second for every such server; at a minute, a lease whose VM "
        "boots in five seconds becomes ACTIVE after sixty.",
    ),
    cfg.FloatOpt(
        "endpoint_timeout",
        default=10.0,
        min=0.1,
        max=600.0,
        help="Seconds that a RODVR endpoint may take to confirm a binding or its removal. After that the request is "
        "sent again: a short timeout causes repeated requests; with a long one, a dead compute host keeps a "
        "worker waiting.",
    ),
    cfg.IntOpt(
        "workers",
        default=4,
        min=1,
        max=256,
        help="Number of leases that one engine reconciles at the same time. At 1, each launch waits for the one before "
        "it if the cloud is slow; many workers send the cloud many requests at once. Two workers never reconcile the "
        "same lease.",
    ),
    cfg.FloatOpt(
        "step_timeout",
        default=180.0,
        min=1.0,
        max=3600.0,
        help="Seconds that one step of a lease may take: set it longer than endpoint_timeout, and than the cloud takes "
        "to answer with all retries. An engine that takes a step owns the lease for at least that long, and at "
        "most for twice as long; other engines leave it alone meanwhile. At a second, two engines may make two "
        "servers for one lease; at an hour, the leases of an engine whose machine failed wait up to two hours for "
        "another engine.",
    ),
    cfg.FloatOpt(
        "caller_grace",
        default=60.0,
        min=1.0,
        max=3600.0,
        help="Seconds from the claim after which a lease without a server fails, if the engine that received "
        "the caller's token has ended: tokens are kept in memory only, so no other engine can make the server. At a "
        "second, launches fail while an engine is merely busy; at an hour, such a lease blocks its GPUs for an hour.",
    ),
    cfg.IntOpt(
        "boot_timeout",
        default=600,
        min=5,
        help="Seconds from the claim within which a VM must be active and its binding installed; otherwise the lease "
        "goes to ERROR and everything that it claimed is released. If too short, VMs with slow images never "
        "become usable; if too long, VMs that never boot block GPUs.",
    ),
    cfg.IntOpt(
        "keep_released",
        default=90,
        min=1,
        max=36500,
        help="Days for which the rows of released leases are kept: `gsaas-manage db purge`, which a timer of systemd "
        "runs, deletes older ones. `gsaas usage` knows only what is kept. At 1, nobody can say today what a project "
        "used the day before yesterday; at ten years, the database grows by about two kilobytes with each launch, for "
        "ten years.",
    ),
    cfg.StrOpt(
        "idle_action",
        default="none",
        choices=[
            ("none", "idle leases stay as they are"),
            (
                "shelve",
                "their VMs are shelved, and keep their disks; a lease without a VM is released",
            ),
            ("release", "they are released, and their VMs deleted, as if their owners did it"),
        ],
        help="What happens to a lease that nothing uses: after idle_warn_after its owner is warned, and after "
        "idle_reclaim_after more its GPUs are returned in this way, unless it was used meanwhile. Only leases whose "
        "hosts report what their cGPUs do can be idle. With shelve, Nova needs shelved_offload_time = 0, its default: "
        "a server that is shelved and stays on its host keeps its cGPUs. The VMs of gsaas-standalone have no disks, "
        "and are released.",
    ),
    cfg.IntOpt(
        "idle_warn_after",
        default=7200,
        min=300,
        max=8640000,
        help="Seconds for which nothing has used a lease when its owner is warned, if idle_action is not none. With a "
        "small value, owners are warned in each pause of their work; with a large one, GPUs are kept for nothing "
        "for that long.",
    ),
    cfg.IntOpt(
        "idle_reclaim_after",
        default=3600,
        min=60,
        max=8640000,
        help="Seconds from the warning until the GPUs of a lease that is still idle are returned. At a minute, nobody "
        "can react; with a large value, GPUs are kept for nothing for that much longer.",
    ),
    cfg.ListOpt(
        "idle_exempt_projects",
        default=[],
        help="Ids of projects whose leases are never warned or reclaimed, however long they are idle.",
    ),
    cfg.StrOpt(
        "on_gpu_loss",
        default="wait",
        choices=[
            ("wait", "the lease keeps its GPU, and can be used again when that is back"),
            (
                "remake",
                "its cGPU is made anew on another GPU; what programs had on the lost one is gone",
            ),
        ],
        help="What happens to an ACTIVE lease whose GPU was withdrawn, or its host silent, for gpu_loss_after. "
        "With remake, connections of programs are cut, and they have to start again. Only leases that can be moved "
        "(gsaas move) are made anew; the lost GPU counts as used until its host has confirmed that nothing of the "
        "lease is left there.",
    ),
    cfg.IntOpt(
        "gpu_loss_after",
        default=300,
        min=10,
        max=8640000,
        help="Seconds for which an engine has to see that a GPU is lost until on_gpu_loss applies. With a small value, "
        "programs that only had to wait for the restart of a host or a monitor lose what they had; with a large one, "
        "their owners wait that long.",
    ),
    cfg.StrOpt(
        "metrics_listen",
        regex=r"^([^:\s]+|\[[0-9a-fA-F:]+\]):[0-9]{1,5}$",
        help="Address and port (`192.0.2.1:9872`) at which this engine serves its metrics to Prometheus, without "
        "authentication. If unset, it does not serve them. Two engines on one machine need different ports.",
    ),
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    """Register the options of this module."""
    conf.register_group(GROUP)
    conf.register_opts(OPTS, group=GROUP.name)


def list_opts() -> dict[cfg.OptGroup, list[cfg.Opt]]:
    """Return the options by group."""
    return {GROUP: OPTS}
