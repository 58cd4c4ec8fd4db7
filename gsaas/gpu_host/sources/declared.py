"""GPUs that are there because somebody says so. Nothing is read of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from oslo_config import cfg

from gsaas.gpu_host import inventory
from gsaas.gpu_host.sources.base import Unavailable
from gsaas.objects.gpu_report import GpuInfo, Sight


def host(conf: cfg.ConfigOpts, name: str) -> inventory.HostSpec:
    """Return what the inventory file declares of the GPU host *name*; raises `Unavailable`."""
    try:
        return inventory.load(conf.monitor.inventory).host(name)
    except inventory.InventoryError as error:
        raise Unavailable(str(error)) from None


def load(conf: cfg.ConfigOpts, host_name: str, first_port: int) -> Declared:
    """Return a source of the GPUs that are declared for *host_name*; raises `Unavailable`."""
    return Declared(host(conf, host_name).gpu_infos(first_port))


class Declared:
    """Always sees *gpus*."""

    def __init__(self, gpus: Sequence[GpuInfo]) -> None:
        self._gpus = gpus

    def look(self) -> Sight:
        return Sight(self._gpus)

    def notify(self, news: Callable[[], None]) -> None:
        """There never are any."""

    def close(self) -> None:
        """There is nothing to let go of."""
