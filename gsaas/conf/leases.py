# SPDX-License-Identifier: Apache-2.0
"""Options of leases: how long they may last."""

from __future__ import annotations

from oslo_config import cfg

GROUP = cfg.OptGroup("leases", title="Leases", help="How long leases may last.")

_YEARS = 315360000
"""Ten years, in seconds."""

OPTS: list[cfg.Opt] = [
    cfg.IntOpt(
        "longest_duration",
        default=0,
        min=0,
        max=_YEARS,
        help="Most seconds for which a lease may have its GPUs, however often its end is postponed. Above 0, each "
        "lease has to have an end: a request without one gets default_duration or, if that is 0, is refused. At 0, "
        "leases may last until somebody ends them, and GPUs that nobody remembers stay taken; a small value ends "
        "work that is not finished. Leases that exist stay as they are.",
    ),
    cfg.IntOpt(
        "default_duration",
        default=0,
        min=0,
        max=_YEARS,
        help="Seconds after which a lease ends whose request names no end, from when it has its GPUs. At 0, it has no "
        "end, or is refused if longest_duration is set. The leases of plain servers, whose owners cannot name an end, "
        "then have longest_duration.",
    ),
    cfg.IntOpt(
        "warn_before",
        default=600,
        min=0,
        max=8640000,
        help="Seconds before the end of a lease at which its owner is warned, by an event of the lease and a "
        "notification. With a small value nobody can save what he computes; with a large one each lease is warned at "
        "its beginning. At 0, it is warned when it ends.",
    ),
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    """Register the options of this module."""
    conf.register_opts(OPTS, group=GROUP.name)


def list_opts() -> dict[cfg.OptGroup, list[cfg.Opt]]:
    """Return the options by group."""
    return {GROUP: OPTS}
