"""The agent of a GPU host: says which GPUs there are, again and again, and runs their daemons.

Its report is the host's heartbeat: when it stops, the host's GPUs are no longer offered. Here the GPUs are the
declared ones of an inventory; their daemons are simulated ones, or the operator's.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence

from gsaas import rpc
from gsaas.db.gpus import GpuInfo
from gsaas.remoting.simulated_daemon import SimulatedDaemons
from gsaas.rodvr.bindings import Address
from gsaas.rpc.engine import EngineClient

LOG = logging.getLogger(__name__)


class Monitor:
    """Reports *gpus* of *host* every *interval* seconds.

    *daemons* makes theirs listen at *gpu_address* inside *netns*; with None the operator has started them.
    """

    def __init__(
        self,
        host: str,
        gpu_address: str,
        gpus: Sequence[GpuInfo],
        *,
        engine: EngineClient,
        daemons: SimulatedDaemons | None,
        netns: str | None,
        interval: float,
    ) -> None:
        self.host = host
        self._gpu_address = gpu_address
        self._gpus = gpus
        self._served = () if daemons is None else gpus
        self._engine = engine
        self._daemons = daemons
        self._netns = netns
        self._interval = interval
        self._stopping = threading.Event()
        self._reporter = threading.Thread(target=self._report, name=f"monitor-{host}", daemon=True)

    def start(self) -> None:
        """Start the daemons, then report. Raises `OSError` when a daemon cannot listen."""
        for gpu in self._served:
            address = Address(self._gpu_address, gpu.daemon_port)
            self._daemons.start(gpu.uuid, self.host, address, self._netns)
        self._reporter.start()

    def stop(self) -> None:
        """Report no more, and stop the daemons."""
        self._stopping.set()
        self._reporter.join()
        for gpu in self._served:
            self._daemons.stop(gpu.uuid)

    def _report(self) -> None:
        while not self._stopping.is_set():
            try:
                self._engine.gpus_report(self.host, self._gpu_address, self._gpus)
            except rpc.BusError as error:
                LOG.warning("the monitor of %s could not report: %s", self.host, error)
            self._stopping.wait(self._interval)
