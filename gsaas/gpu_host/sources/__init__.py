"""Where a monitor's knowledge of its GPUs comes from: entry points of `gsaas.gpu_host.sources`.

`[monitor]source` names one. Each is a function of the configuration, the host's name and the TCP port of its first
daemon, and returns a `gsaas.gpu_host.sources.base.Source`.
"""

from __future__ import annotations

import ipaddress

from oslo_config import cfg
from stevedore import driver as stevedore_driver

from gsaas.gpu_host.sources import declared
from gsaas.gpu_host.sources.base import Source, Unavailable

NAMESPACE = "gsaas.gpu_host.sources"
FROM_INVENTORY = ("declared", "simulated")
"""Sources that know their GPUs from the inventory file, which declares the host's address as well."""


def gpu_address(conf: cfg.ConfigOpts, host: str) -> str:
    """Return the address on the GPU network of the host named *host*; `Unavailable` if it is not known."""
    options = conf.monitor
    address = options.gpu_address
    if address is None and options.source in FROM_INVENTORY:
        address = declared.host(conf, host).gpu_address
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
    source = stevedore_driver.DriverManager(NAMESPACE, conf.monitor.source)
    return source.driver(conf, host, first_port)
