"""Options of gsaas-monitor, the agent of a GPU host."""

from __future__ import annotations

from oslo_config import cfg

GROUP = cfg.OptGroup("monitor", title="GPU host agent", help="How a GPU host reports its GPUs.")

OPTS = [
    cfg.StrOpt(
        "source",
        default="inventory",
        choices=[("inventory", "the file that `inventory` names says which GPUs this host has")],
        help="How the monitor knows its GPUs.",
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
        help="Seconds between two reports of a GPU host. At 1, a dead host is noticed at once and a "
        "large cloud spends its message bus on reports; at an hour, so does the notice. Keep "
        "[gpgpums]heartbeat_timeout above three times this.",
    ),
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    conf.register_group(GROUP)
    conf.register_opts(OPTS, group=GROUP.name)


def list_opts() -> dict[cfg.OptGroup, list[cfg.Opt]]:
    return {GROUP: OPTS}
