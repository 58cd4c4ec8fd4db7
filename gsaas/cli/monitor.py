"""`gsaas-monitor`: the agent of a GPU host."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import ExitStack

from oslo_config import cfg

from gsaas import service
from gsaas.cloud import inventory
from gsaas.gpgpums.monitor import Monitor
from gsaas.remoting import base as remoting
from gsaas.remoting.simulated_daemon import SimulatedDaemons
from gsaas.rpc.engine import EngineClient

DESCRIPTION = """\
Report the GPUs of this host to GSaaS. While it reports, and for a little longer, they are given to tenants.
"""
SIMULATED = "simulated"
"""The remoting driver whose daemons the monitor runs; those of any other are the operator's."""


def main(argv: Sequence[str] | None = None) -> int:
    return service.run("gsaas-monitor", DESCRIPTION, start, argv)


def start(conf: cfg.ConfigOpts, parts: ExitStack) -> None:
    """Start a monitor; raises `service.Unstartable`."""
    try:
        driver = remoting.load(conf.remoting.driver, conf)
        host = inventory.load(conf.monitor.inventory).host(service.host_name(conf))
    except (ValueError, inventory.InventoryError) as error:
        raise service.Unstartable(str(error)) from error
    bus = service.bus(conf)
    parts.callback(bus.cleanup)
    daemons = SimulatedDaemons() if driver.name == SIMULATED else None
    monitor = Monitor(
        host.name,
        host.gpu_address,
        host.gpu_infos(driver.default_port),
        engine=EngineClient(bus),
        daemons=daemons,
        netns=None,
        interval=conf.monitor.monitor_interval,
    )
    if daemons:
        parts.callback(daemons.stop_all)
    try:
        monitor.start()
    except OSError as error:
        raise service.Unstartable(
            f"the simulated daemons of {host.name} cannot listen at {host.gpu_address}: {error.strerror}"
        ) from error
    parts.callback(monitor.stop)


if __name__ == "__main__":
    sys.exit(main())
