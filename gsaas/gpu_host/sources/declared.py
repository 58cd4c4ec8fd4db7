"""GPUs that are there because somebody says so. Nothing is read of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gsaas.objects.gpu_report import GpuInfo, Sight


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
