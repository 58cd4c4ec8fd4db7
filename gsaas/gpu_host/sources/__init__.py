"""Where a monitor's knowledge of its GPUs comes from; `[monitor]source` chooses."""

from __future__ import annotations

import ipaddress
import os

from oslo_config import cfg

from gsaas.gpu_host import inventory
from gsaas.gpu_host.sources.base import Source, Unavailable
from gsaas.gpu_host.sources.declared import Declared
from gsaas.gpu_host.sources.simulated import Simulated

INVENTED = {"declared": Declared, "simulated": Simulated}
"""Sources that are told which GPUs there are."""


def gpu_address(conf: cfg.ConfigOpts, host: str) -> str:
    """Return the address on the GPU network of the host named *host*; `Unavailable` if it is not known."""
    options = conf.monitor
    address = options.gpu_address
    if address is None and options.source in INVENTED:
        address = _declared(conf, host).gpu_address
    if address is None:
        raise Unavailable(
            "the address of this host on the GPU network is not known: set gpu_address in the section [monitor]"
        )
    try:
        return str(ipaddress.IPv4Address(address))
    except ValueError as error:
        raise Unavailable(f"[monitor]gpu_address: {error}") from None


def load(conf: cfg.ConfigOpts, host: str, first_port: int) -> Source:
    """Return the source that sees the GPUs of the host named *host*, the first one's daemon on *first_port*.

    Raises `Unavailable`.
    """
    if conf.monitor.source == "nvml":
        return _nvml(conf, first_port)
    return INVENTED[conf.monitor.source](_declared(conf, host).gpu_infos(first_port))


def _declared(conf: cfg.ConfigOpts, host: str) -> inventory.HostSpec:
    try:
        return inventory.load(conf.monitor.inventory).host(host)
    except inventory.InventoryError as error:
        raise Unavailable(str(error)) from None


def _nvml(conf: cfg.ConfigOpts, first_port: int) -> Source:
    from gsaas.gpu_host.sources.nvml import Nvml  # large, and of use to few

    return Nvml(
        first_port,
        fatal_xids=conf.monitor.fatal_xids,
        visible_devices=os.environ.get("CUDA_VISIBLE_DEVICES"),
    )
