"""Where a monitor's knowledge of its GPUs comes from; `[monitor]source` chooses."""

from __future__ import annotations

import ipaddress
import os

from oslo_config import cfg

from gsaas.cloud import inventory
from gsaas.monitor.sources.base import Source, Unavailable
from gsaas.monitor.sources.declared import Declared
from gsaas.monitor.sources.simulated import Simulated

INVENTED = {"declared": Declared, "simulated": Simulated}
"""Sources that are told which GPUs there are."""


def load(conf: cfg.ConfigOpts, host: str, first_port: int) -> tuple[str, Source]:
    """Return the address on the GPU network of the host named *host*, and the source that sees its GPUs.

    The daemon of its first GPU listens on *first_port*. Raises `Unavailable`.
    """
    options = conf.monitor
    if options.source == "nvml":
        return _gpu_address(options.gpu_address), _nvml(conf, first_port)
    try:
        declared = inventory.load(options.inventory).host(host)
    except inventory.InventoryError as error:
        raise Unavailable(str(error)) from None
    source = INVENTED[options.source](declared.gpu_infos(first_port))
    return _gpu_address(options.gpu_address or declared.gpu_address), source


def _nvml(conf: cfg.ConfigOpts, first_port: int) -> Source:
    from gsaas.monitor.sources.nvml import Nvml  # large, and of use to few

    return Nvml(
        first_port,
        fatal_xids=conf.monitor.fatal_xids,
        visible_devices=os.environ.get("CUDA_VISIBLE_DEVICES"),
    )


def _gpu_address(text: str | None) -> str:
    if text is None:
        raise Unavailable(
            "the address of this host on the GPU network is not known: set gpu_address in the section [monitor]"
        )
    try:
        return str(ipaddress.IPv4Address(text))
    except ValueError as error:
        raise Unavailable(f"[monitor]gpu_address: {error}") from None
