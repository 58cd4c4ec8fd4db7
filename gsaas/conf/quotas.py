# SPDX-License-Identifier: Apache-2.0
"""Options of quotas: how much a project may have at once, and where its limits come from."""

from __future__ import annotations

from oslo_config import cfg

GROUP = cfg.OptGroup(
    "quotas", title="Quotas", help="How much of the GPUs one project may have at once."
)

OPTS: list[cfg.Opt] = [
    cfg.StrOpt(
        "driver",
        default="config",
        choices=[
            ("config", "every project has the limits of this section"),
            ("oslo_limit", "Keystone's unified limits, read as the section [oslo_limit] says"),
            ("none", "no limits, whatever else is set here"),
        ],
        help="Where a project's limits come from. With oslo_limit, `gsaas-manage limits register` registers the values "
        "below in Keystone as the defaults of all projects; until it has run, no project gets anything.",
    ),
    cfg.IntOpt(
        "cgpus",
        default=16,
        min=-1,
        help="Most cGPUs of a project, over all its leases. -1 means no limit: one project may then have every GPU; "
        "at 0, no launch is granted. The default of gsaas-standalone is -1.",
    ),
    cfg.IntOpt(
        "gpu_memory_mb",
        default=-1,
        min=-1,
        help="Most MiB of GPU memory of a project. An exclusive cGPU counts with all the memory of "
        "its GPU. -1 means no limit. It is the fairest of the three limits if the sizes of shares differ much.",
    ),
    cfg.IntOpt(
        "leases",
        default=-1,
        min=-1,
        help="Most leases of a project that have cGPUs. -1 means no limit; a low number prevents a project "
        "from launching many small VMs.",
    ),
    cfg.IntOpt(
        "reservations",
        default=5,
        min=-1,
        help="Most reservations of a project that have not ended, whatever the driver. -1 means no limit; at 0, no "
        "project can reserve anything.",
    ),
    cfg.IntOpt(
        "reservation_days",
        default=30,
        min=0,
        help="Most days from the beginning of a reservation to its end, whatever the driver. 0 means no limit: what a "
        "project reserves, and does not use, may then stay unused for years. Reservations that exist stay as they are.",
    ),
    cfg.IntOpt(
        "reservation_days_ahead",
        default=90,
        min=0,
        help="Most days from the request for a reservation to its beginning, whatever the driver. 0 means no limit: "
        "whoever comes first may then have the GPUs of all years to come. Reservations that exist stay as they are.",
    ),
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    """Register the options of this module."""
    conf.register_opts(OPTS, group=GROUP.name)


def list_opts() -> dict[cfg.OptGroup, list[cfg.Opt]]:
    """Return the options by group."""
    return {GROUP: OPTS}
