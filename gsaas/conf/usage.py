# SPDX-License-Identifier: Apache-2.0
"""Options of usage: what GPUs cost."""

from __future__ import annotations

from oslo_config import cfg

GROUP = cfg.OptGroup("usage", title="Usage", help="What the usage of GPUs costs.")

OPTS: list[cfg.Opt] = [
    cfg.DictOpt(
        "prices",
        default={},
        help="What a whole GPU of each model costs for an hour, such as `NVIDIA A100-SXM4-40GB:2.50,cpu:0.05`; cpu is "
        "the price of every CPU device, and `gsaas models` lists the models. A share costs its part of the GPU's "
        "memory, and a lease counts from its claim until its release. With any price, usage says what it costs, at "
        "these prices, whenever the leases were; models without a price cost nothing, and their GPU-hours are shown "
        "beside. Without prices, nothing is said of costs. The API does not start with a price that is no number.",
    ),
    cfg.StrOpt(
        "currency",
        default="",
        max_length=16,
        help="The currency of the prices, such as EUR or credits, as users see it beside a cost.",
    ),
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    """Register the options of this module."""
    conf.register_opts(OPTS, group=GROUP.name)


def list_opts() -> dict[cfg.OptGroup, list[cfg.Opt]]:
    """Return the options by group."""
    return {GROUP: OPTS}
