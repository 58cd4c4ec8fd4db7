# SPDX-License-Identifier: Apache-2.0
"""Options of both agents, gsaas-rodvr and gsaas-monitor: the name of their host."""

from __future__ import annotations

from oslo_config import cfg

GROUP = cfg.OptGroup("DEFAULT", title="Agents")

OPTS = [
    cfg.StrOpt(
        "host",
        help="Name under which this host's agents report; unset, the machine's host name. On a compute "
        "host it is the name that Nova knows (`openstack compute service list`): under any other, the "
        "VMs of this host never get their GPUs. A host with both agents, which can offer local GPUs, "
        "has one name for both. Full names and capitals are fine: letters, digits, dots, hyphens and underscores.",
    ),
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    """Register the options with *conf*."""
    conf.register_cli_opts(OPTS)


def list_opts() -> dict[cfg.OptGroup, list[cfg.Opt]]:
    """Return the options, for the sample configuration file."""
    return {GROUP: list(OPTS)}


def silence_timeout(conf: cfg.ConfigOpts) -> float:
    """Return the seconds after which a host that neither agent has reported for counts as gone."""
    timeout: float = max(conf.gpgpums.heartbeat_timeout, 2 * conf.rodvr.audit_interval)
    return timeout
