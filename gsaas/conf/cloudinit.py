# SPDX-License-Identifier: Apache-2.0
"""Options of the user data by which GSaaS configures servers through cloud-init."""

from __future__ import annotations

from oslo_config import cfg

GROUP = cfg.OptGroup(
    "cloudinit",
    title="User data",
    help="How cloud-init configures a server for its cGPUs.",
)

OPTS = [
    cfg.IntOpt(
        "interface_wait",
        default=60,
        min=0,
        max=600,
        help="""
Seconds for which a booting server waits for its first network interface before it gives up setting
the route to its cGPUs. Nothing waits longer than the interface takes to come up. At 0 the route is
tried once, and a server whose interface comes up late has no cGPUs until `gsaas-route` is run by
hand or it boots again; large values delay, in a server whose interface never comes up, what is
ordered after `network-online.target`. Raise it where interfaces are slow, as with bonds.
""",
    ),
    cfg.BoolOpt(
        "system_services",
        default=True,
        help="""
Give the environment to the server's system services too, through systemd's `DefaultEnvironment=`.
False leaves them alone: login sessions, user services and cron still get it, and a system service
that needs GPUs has to name `EnvironmentFile=/etc/environment` itself. Turn it off if your images
carry services that must not see the middleware's libraries first in `LD_LIBRARY_PATH`.
""",
    ),
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    """Register the options with *conf*."""
    # By name: an OptGroup object, and the values set in it, would be shared by every ConfigOpts.
    conf.register_opts(OPTS, group=GROUP.name)


def list_opts() -> dict[cfg.OptGroup, list[cfg.Opt]]:
    """Return the options, for the sample configuration file."""
    return {GROUP: OPTS}
