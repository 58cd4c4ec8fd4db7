"""Options of gsaas-engine, which drives leases to their wanted state."""

from __future__ import annotations

from oslo_config import cfg

GROUP = cfg.OptGroup(
    "engine", title="Life cycle", help="How leases are driven to their wanted state."
)

OPTS = [
    cfg.StrOpt(
        "cloud",
        default="standalone",
        help="What boots the VMs: an entry point of gsaas.cloud. standalone makes network namespaces "
        "on this machine.",
    ),
    cfg.FloatOpt(
        "audit_interval",
        default=5.0,
        min=0.1,
        max=3600.0,
        help="Seconds between two passes over every lease that is not at rest. Each pass finishes what"
        " a crash or a lost message left half done. At 0.1 the database is read all day for "
        "nothing; at an hour, a lease whose message was lost waits an hour for its next step.",
    ),
    cfg.FloatOpt(
        "poll_interval",
        default=1.0,
        min=0.1,
        max=60.0,
        help="Seconds between two looks at a server that is booting or being deleted. At 0.1 the "
        "cloud's API answers ten questions a second for every such server; at a minute, a VM that"
        " boots in five seconds is announced after sixty.",
    ),
    cfg.FloatOpt(
        "endpoint_timeout",
        default=10.0,
        min=0.1,
        max=600.0,
        help="Seconds a RODVR endpoint may take to confirm a binding or its removal. It is asked again"
        " later, so a short time costs repeated questions; with a long one a dead compute host "
        "keeps a worker waiting.",
    ),
    cfg.IntOpt(
        "workers",
        default=4,
        min=1,
        max=256,
        help="Leases driven at once by one engine. At 1, a slow cloud makes every launch wait for the "
        "one before; many workers ask the cloud many things at once. One lease is never driven by"
        " two of them.",
    ),
    cfg.FloatOpt(
        "step_timeout",
        default=180.0,
        min=1.0,
        max=3600.0,
        help="Seconds that one step of a lease may take: longer than endpoint_timeout, and than the cloud takes "
        "to answer with all retries. An engine that takes a step keeps the others off the lease for at least "
        "as long, and at most for twice as long. At a second, two engines may make two servers for one "
        "lease; at an hour, the leases of a machine that died wait up to two hours for another engine.",
    ),
    cfg.FloatOpt(
        "caller_grace",
        default=60.0,
        min=1.0,
        max=3600.0,
        help="Seconds from the claim after which a lease without a server fails, if the engine that was told of "
        "the caller's token has died: tokens are kept in memory only, so nobody else can make the server. At a "
        "second, launches fail while an engine is merely busy; at an hour, GPUs are held that long for nothing.",
    ),
    cfg.IntOpt(
        "boot_timeout",
        default=600,
        min=5,
        help="Seconds from the claim until a VM must be active and wired; then the lease goes to ERROR"
        " and everything it held is given back. Too short and slow images never boot; too long "
        "and GPUs are held by VMs that never come.",
    ),
    cfg.StrOpt(
        "metrics_listen",
        regex=r"^([^:\s]+|\[[0-9a-fA-F:]+\]):[0-9]{1,5}$",
        help="Address and port (`192.0.2.1:9872`) where this engine tells Prometheus how long launches took, to"
        " whoever asks. Unset, it does not. Two engines on one machine need a port each.",
    ),
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    conf.register_group(GROUP)
    conf.register_opts(OPTS, group=GROUP.name)


def list_opts() -> dict[cfg.OptGroup, list[cfg.Opt]]:
    return {GROUP: OPTS}
