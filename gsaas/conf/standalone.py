"""Options of gsaas-standalone, the whole service in one process; its command line sets the same values."""

from __future__ import annotations

from oslo_config import cfg

GROUP = cfg.OptGroup(
    "standalone",
    title="One machine",
    help="The whole service in one process, with network namespaces for hosts and VMs.",
)

OPTS = [
    cfg.StrOpt(
        "state_dir",
        default="/run/gsaas",
        help="Folder for the database, the tokens and the list of everything that was made. Under /run"
        " it is gone after a reboot, as the namespaces are; a folder on disk keeps the history of"
        " leases. Two processes on one folder are refused.",
    ),
    cfg.StrOpt(
        "inventory",
        help="TOML file that declares the hosts and their GPUs (etc/gsaas/inventory.toml shows all it "
        "can say). Without one: two GPU hosts with four GPUs each, and a compute host without.",
    ),
    cfg.StrOpt(
        "prefix",
        default="gsaas-",
        regex=r"^[a-z0-9][a-z0-9-]{0,31}$",
        help="Beginning of the name of every network namespace that is made. Change it to run several "
        "side by side, or when a namespace of another program has such a name already: one that "
        "we did not make is never touched.",
    ),
    cfg.StrOpt(
        "listen",
        default="127.0.0.1:9870",
        help="Address and port of the API. Loopback keeps it on this machine. On any other address "
        "tokens still guard it, but they travel unencrypted: put TLS in front.",
    ),
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    conf.register_group(GROUP)
    conf.register_opts(OPTS, group=GROUP.name)


def list_opts() -> dict[cfg.OptGroup, list[cfg.Opt]]:
    return {GROUP: OPTS}
