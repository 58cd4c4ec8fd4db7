# SPDX-License-Identifier: Apache-2.0
"""GPUs that the inventory file declares. Nothing is read from them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from oslo_config import cfg

from gsaas.gpu_host import inventory
from gsaas.gpu_host.sources.base import SourceUnavailable
from gsaas.objects.gpu_report import GpuInfo, GpuSnapshot


def host(conf: cfg.ConfigOpts, name: str) -> inventory.HostSpec:
    """Return what the inventory file declares of the GPU host *name*; raises `SourceUnavailable`."""
    try:
        return inventory.load(conf.monitor.inventory).host(name)
    except inventory.InventoryError as error:
        raise SourceUnavailable(str(error)) from None


def load(conf: cfg.ConfigOpts, host_name: str, ports: Sequence[int]) -> DeclaredGpus:
    """Return a source of the GPUs that are declared for *host_name*; raises `SourceUnavailable`."""
    return DeclaredGpus(host(conf, host_name).gpu_infos(ports))


class DeclaredGpus:
    """A source that always returns *gpus*."""

    def __init__(self, gpus: Sequence[GpuInfo]) -> None:
        self._gpus = gpus

    def snapshot(self) -> GpuSnapshot:
        return GpuSnapshot(self._gpus)

    def subscribe(self, on_change: Callable[[], None]) -> None:
        """There are no events."""

    def close(self) -> None:
        """There is nothing to release."""
