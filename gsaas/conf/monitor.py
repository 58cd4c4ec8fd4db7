"""Options of gsaas-monitor, the agent of a GPU host."""

from __future__ import annotations

from oslo_config import cfg, types

GROUP = cfg.OptGroup("monitor", title="GPU host agent", help="How a GPU host reports its GPUs.")

OPTS = [
    cfg.StrOpt(
        "source",
        default="nvml",
        choices=[
            ("nvml", "what NVIDIA's driver says of this host"),
            (
                "declared",
                "what the file that `inventory` names says of this host; nothing is read of the GPUs",
            ),
            ("simulated", "the same, with readings that are made up: for trying things out"),
        ],
        help="How the monitor knows its GPUs. With nvml, CUDA_VISIBLE_DEVICES in its environment narrows what it "
        "reports.",
    ),
    cfg.StrOpt(
        "gpu_address",
        help="IPv4 address of this host on the GPU network, at which the daemons of its GPUs listen. Needed with "
        "source = nvml; with the others the inventory says it, unless this does.",
    ),
    cfg.ListOpt(
        "fatal_xids",
        item_type=types.Integer(min=1),
        default=[48, 63, 64, 74, 79, 92, 94, 95, 119],
        help="XID errors (NVIDIA's numbers of what the driver reports) after which a GPU is withdrawn until an "
        "operator enables it again. The default names those that speak of broken memory, links or processors. Without "
        "any, a GPU is withdrawn only while it does not answer; with those that a tenant's own program can cause, "
        "such as 13 or 31, any tenant can take GPUs out of service.",
    ),
    cfg.IntOpt(
        "utilisation_window",
        default=300,
        min=1,
        max=86400,
        help="Seconds over which the mean utilisation of a GPU is told, which policies that look at it choose by. A "
        "few seconds make them follow every pause of a program; an hour hides that a GPU has been idle for long.",
    ),
    cfg.StrOpt(
        "inventory",
        default="/etc/gsaas/inventory.toml",
        help="TOML file that declares GPU hosts (etc/gsaas/gpu-host.toml shows all it can say). The monitor "
        "reports the host that has its own name, so one file may serve all hosts. What it says is "
        "offered as it is: a GPU that is not there, or memory that is, is given to tenants who then "
        "find nothing.",
    ),
    cfg.IntOpt(
        "monitor_interval",
        default=10,
        min=1,
        max=3600,
        help="Seconds between two reports of a GPU host, unless an operator said otherwise to the service (`gsaas "
        "settings -interval=SECONDS`), which goes for all hosts. At 1, a failing GPU is noticed at once and a large "
        "cloud spends its message bus on reports; at an hour, so long may the notice take. A host is taken for silent "
        "after [gpgpums]heartbeat_timeout, but not before it has missed three of its reports.",
    ),
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    conf.register_group(GROUP)
    conf.register_opts(OPTS, group=GROUP.name)


def list_opts() -> dict[cfg.OptGroup, list[cfg.Opt]]:
    return {GROUP: OPTS}
