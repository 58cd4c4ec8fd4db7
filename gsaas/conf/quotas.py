"""Options of quotas: how much a project may hold at once, and who says so."""

from __future__ import annotations

from oslo_config import cfg

GROUP = cfg.OptGroup(
    "quotas", title="Quotas", help="How much of the GPUs one project may hold at once."
)

OPTS = [
    cfg.StrOpt(
        "driver",
        default="config",
        choices=[
            ("config", "every project has the limits of this section"),
            ("oslo_limit", "Keystone's unified limits, as the section [oslo_limit] finds them"),
            ("none", "no limits, whatever else is set here"),
        ],
        help="Where a project's limits come from. With oslo_limit, the values below are what "
        "`gsaas-manage limits register` makes the cloud's defaults; until it has run, nobody may "
        "hold anything.",
    ),
    cfg.IntOpt(
        "cgpus",
        default=-1,
        min=-1,
        help="Most cGPUs of a project, over all its leases. -1 is no limit; at 0 nobody launches.",
    ),
    cfg.IntOpt(
        "gpu_memory_mb",
        default=-1,
        min=-1,
        help="Most MiB of GPU memory of a project. An exclusive cGPU counts with all the memory of "
        "its GPU. -1 is no limit. It is the fairest of the three where shares differ much in size.",
    ),
    cfg.IntOpt(
        "leases",
        default=-1,
        min=-1,
        help="Most leases of a project that hold cGPUs. -1 is no limit; a low number keeps a project "
        "from making many small VMs.",
    ),
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    conf.register_opts(OPTS, group=GROUP.name)


def list_opts() -> dict[cfg.OptGroup, list[cfg.Opt]]:
    return {GROUP: OPTS}
