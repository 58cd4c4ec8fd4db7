# SPDX-License-Identifier: Apache-2.0
"""Sources of GPUs: what reads the GPUs of a host. They are entry points of `gsaas.gpu_host.sources`.

`[monitor]source` names one. Each entry point is a function of the configuration, the host's name and the TCP port of
the first daemon, and returns a `gsaas.gpu_host.sources.base.GpuSource`.

base      the interface of a source         nvml                  GPUs of NVIDIA's driver
declared  GPUs that a file declares         xids                  the driver's errors, for nvml
cpu       parts of the host's processors    nvml_answers          asks NVML about one device
                                            cuda_visible_devices  which GPUs a variable selects: pure
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Sequence
from typing import cast

from oslo_config import cfg
from stevedore import driver as stevedore_driver

from gsaas.gpu_host.sources import declared
from gsaas.gpu_host.sources.base import GpuSource, SourceUnavailable
from gsaas.objects.device_kinds import CPU, CUDA

NAMESPACE = "gsaas.gpu_host.sources"
FROM_INVENTORY = ("declared", "simulated")
"""Sources that read the inventory file, which declares the host's address as well."""


def gpu_address(conf: cfg.ConfigOpts, host: str) -> str:
    """Return the IPv4 address of *host* on the GPU network; raises `SourceUnavailable` if it is not configured."""
    options = conf.monitor
    address = options.gpu_address
    if address is None and options.source in FROM_INVENTORY:
        address = declared.host(conf, host).gpu_address
    if address is None:
        raise SourceUnavailable(
            "the address of this host on the GPU network is not known: set gpu_address in the section [monitor]"
        )
    try:
        return str(ipaddress.IPv4Address(address))
    except ValueError as error:
        raise SourceUnavailable(f"[monitor]gpu_address: {error}") from None


def kind(conf: cfg.ConfigOpts, host: str) -> str:
    """Return the kind of the devices of *host*, of `gsaas.objects.device_kinds`; raises `SourceUnavailable`."""
    if conf.monitor.source in FROM_INVENTORY:
        return declared.host(conf, host).kind
    return CPU if conf.monitor.source == "cpu" else CUDA


def load(conf: cfg.ConfigOpts, host: str, ports: Sequence[int]) -> GpuSource:
    """Return the configured source for *host*; *ports* are those of its GPUs' daemons, by the numbers of the GPUs.

    Raises `SourceUnavailable`.
    """
    manager: stevedore_driver.DriverManager[GpuSource] = stevedore_driver.DriverManager(
        NAMESPACE, conf.monitor.source
    )
    # stevedore's type allows an instance here, which exists only with the argument invoke_on_load.
    load_source = cast("Callable[..., GpuSource]", manager.driver)
    return load_source(conf, host, ports)
