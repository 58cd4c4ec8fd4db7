# SPDX-License-Identifier: Apache-2.0
"""Options of plain servers: those that their owners make with Nova, and whose properties ask for cGPUs."""

from __future__ import annotations

from oslo_config import cfg

GROUP = cfg.OptGroup(
    "plain_servers",
    title="Plain servers",
    help="Servers that are made with Nova alone, and get cGPUs because of properties such as gsaas:ncgpus.",
)

OPTS: list[cfg.Opt] = [
    cfg.StrOpt(
        "properties",
        default="none",
        choices=[
            ("none", "no server that GSaaS has not made gets cGPUs"),
            ("flavors", "extra specs of flavors ask for cGPUs; properties in metadata are refused"),
            ("all", "extra specs of flavors, and metadata of servers"),
        ],
        help="Which properties of a server ask for cGPUs. Nova has to fetch vendor data from GSaaS, or servers have "
        "cGPUs and no environment: the operator's guide has its options. The same on all controllers.",
    ),
    cfg.StrOpt(
        "no_gpu",
        default="error",
        choices=[
            (
                "error",
                "the server gets none; if Nova's vendordata_dynamic_failure_fatal is set, its boot fails",
            ),
            ("wait", "the server boots with its environment, and waits for its cGPUs in the queue"),
        ],
        help="What happens to a server that asks for cGPUs while no GPUs are free for it, or its project's quota is "
        "used up. A request that could never be served gets none in either case. The same on all controllers.",
    ),
    cfg.FloatOpt(
        "vendordata_timeout",
        default=4.0,
        min=0.1,
        max=600.0,
        help="Seconds within which GSaaS answers Nova's request for vendor data; after that it answers with an error "
        "that says so, and goes on claiming. Set it below Nova's vendordata_dynamic_read_timeout (5 by default): with "
        "a longer time, Nova logs a timeout without a reason; with a very short one, servers boot without their "
        "environment while Nova or the database is slow.",
    ),
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    """Register the options of this module."""
    conf.register_group(GROUP)
    conf.register_opts(OPTS, group=GROUP.name)


def list_opts() -> dict[cfg.OptGroup, list[cfg.Opt]]:
    """Return the options by group."""
    return {GROUP: OPTS}
