# SPDX-License-Identifier: Apache-2.0
"""Options of gsaas-standalone, the whole service in one process; its command line sets the same values."""

from __future__ import annotations

from oslo_config import cfg

GROUP = cfg.OptGroup(
    "standalone",
    title="One machine",
    help="The whole service in one process, with network namespaces for hosts and VMs.",
)

OPTS: list[cfg.Opt] = [
    cfg.StrOpt(
        "state_dir",
        default="/run/gsaas",
        help="Folder for the database, the tokens and the records of everything that was made. Under /run "
        "it is gone after a reboot, as the namespaces are; a folder on disk keeps the history of "
        "leases. Only one process can use a folder at a time.",
    ),
    cfg.StrOpt(
        "inventory",
        help="TOML file that declares the hosts and their GPUs (etc/gsaas/inventory.toml explains "
        "it). If unset: two GPU hosts with four GPUs each, and a compute host without GPUs.",
    ),
    cfg.StrOpt(
        "prefix",
        default="gsaas-",
        regex=r"^[a-z0-9][a-z0-9-]{0,31}$",
        help="Beginning of the name of every network namespace that is made. Change it to run several instances "
        "side by side, or if another program already has a namespace of such a name: a namespace that "
        "gsaas-standalone did not make is never touched.",
    ),
    cfg.StrOpt(
        "listen",
        default="127.0.0.1:9870",
        help="Address and port of the API. A loopback address can be reached from this machine only. At any other "
        "address requests still need a token, but tokens travel unencrypted: put a proxy with TLS in front.",
    ),
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    """Register the options of this module."""
    conf.register_group(GROUP)
    conf.register_opts(OPTS, group=GROUP.name)


def list_opts() -> dict[cfg.OptGroup, list[cfg.Opt]]:
    """Return the options by group."""
    return {GROUP: OPTS}
