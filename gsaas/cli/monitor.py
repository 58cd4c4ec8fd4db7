# SPDX-License-Identifier: Apache-2.0
"""`gsaas-monitor`: the agent of a GPU host."""

from __future__ import annotations

import functools
import socket
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack

from oslo_config import cfg

from gsaas import reports, rpc, service
from gsaas.exceptions import KindNotServed
from gsaas.gpu_host import sources
from gsaas.gpu_host.agent import Monitor
from gsaas.gpu_host.daemons import factory, supervision
from gsaas.gpu_host.daemons.lock import LockUnusable
from gsaas.gpu_host.daemons.service import DaemonService, DaemonSupervisor
from gsaas.gpu_host.daemons.systemd import SystemdUnavailable
from gsaas.gpu_host.fence.control_group import NoControlGroup
from gsaas.gpu_host.gate import Gate
from gsaas.gpu_host.sources.base import SourceUnavailable
from gsaas.objects.device_kinds import CPU
from gsaas.remoting.base import RemotingDriver
from gsaas.remoting.drivers import Drivers
from gsaas.rpc.engine import EngineClient

DESCRIPTION = """\
Report the GPUs of this host to GSaaS, run their daemons, and guard these with a fence. While it reports, and for a
little longer, they are given to tenants. Stopping or updating it interrupts no program: daemons and fence stay.
"""
CLEAN = cfg.BoolOpt(
    "clean",
    default=False,
    help="End every daemon that was ever started here, remove the fence, and exit. Stop gsaas-monitor first. "
    "Programs that use this host's GPUs lose them.",
)


STOP_TIMEOUT = 0.7
"""Seconds until the monitor ends without waiting for a bus, a daemon's health check or systemd: daemons and fence stay
anyway, and an update of the host waits for it."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a monitor until it is stopped; return the exit status."""
    return service.run("gsaas-monitor", DESCRIPTION, start, argv, [CLEAN], STOP_TIMEOUT)


def start(conf: cfg.ConfigOpts, parts: ExitStack) -> None:
    """Start a monitor and register what ends it with *parts*; raises `service.Unstartable`."""
    name = service.host_name(conf)
    try:
        driver = Drivers(conf).of(sources.kind(conf, name))
        gpu_address = sources.gpu_address(conf, name)
        if conf.clean:  # before the source is loaded: the GPUs or their driver may be gone already
            _clean(conf, driver, name, gpu_address)
            sys.exit(0)
        source = sources.load(conf, name, driver.gpu_ports)
    except (ValueError, SourceUnavailable) as error:
        raise service.Unstartable(str(error)) from error
    except KindNotServed as error:
        raise service.Unstartable(
            f"{name} has devices of kind {CPU}, which [remoting]driver does not serve: set cpu_driver"
        ) from error
    bus = service.bus(conf, rpc.MONITOR)
    parts.callback(bus.cleanup)

    def supervise(owner: DaemonService) -> DaemonSupervisor:
        settings = driver.daemon_settings
        if settings is not None and not settings.in_process:
            return supervision.supervisor(
                conf, settings, name, gpu_address, owner.parent_uuid, owner.daemons_changed
            )
        # Imported here: no real GPU host needs them.
        from gsaas.standalone.simulated_daemon import SimulatedDaemons
        from gsaas.standalone.simulated_supervisor import SimulatedSupervisor

        daemons = SimulatedDaemons()
        parts.callback(daemons.stop_all)
        return SimulatedSupervisor(daemons, name, gpu_address, on_change=owner.daemons_changed)

    try:
        daemon_service = factory.service(conf, bus, driver, name, gpu_address, supervise=supervise)
    except (ValueError, LockUnusable, SourceUnavailable) as error:
        raise service.Unstartable(str(error)) from error
    except SystemdUnavailable as error:
        raise _without_systemd(error) from error
    except NoControlGroup as error:
        raise service.Unstartable(f"the fence of {name} cannot be set up: {error}") from error
    monitor = Monitor(
        bus,
        name,
        gpu_address,
        source,
        daemons=daemon_service,
        interval=conf.monitor.monitor_interval,
        window=conf.monitor.utilisation_window,
    )
    try:
        monitor.start()
    except SystemdUnavailable as error:
        raise _without_systemd(error) from error
    except OSError as error:
        raise service.Unstartable(
            f"the fence of {name} cannot be set up ({error}): give the monitor CAP_NET_ADMIN, or "
            "set [daemons]fence to false"
        ) from error
    parts.callback(monitor.stop)
    reports.add_section("Monitor", monitor.describe)
    if conf.grants.gate_port:
        parts.callback(_open_gate(bus, name, gpu_address, conf.grants.gate_port))


def _clean(conf: cfg.ConfigOpts, driver: RemotingDriver, name: str, gpu_address: str) -> None:
    try:
        supervision.clean(conf, driver, name, gpu_address)
    except (ValueError, LockUnusable, SystemdUnavailable, OSError) as error:
        raise service.Unstartable(f"not everything could be removed: {error}") from error


def _without_systemd(error: SystemdUnavailable) -> service.Unstartable:
    return service.Unstartable(
        f"daemons are units of this host's systemd, and {error}. In a container, mount /run/dbus of the host"
    )


def _open_gate(bus: rpc.Bus, host: str, address: str, port: int) -> Callable[[], None]:
    """Open the gate of *host* at *address*; return the function that closes it. Raises `service.Unstartable`."""
    try:
        listener = socket.create_server((address, port))
    except OSError as error:
        raise service.Unstartable(
            f"grants cannot be taken at {address}:{port}: {error.strerror}; see [grants]gate_port"
        ) from error
    gate = Gate(listener, functools.partial(EngineClient(bus).grant_shown, host))
    gate.start()
    return gate.stop


if __name__ == "__main__":
    sys.exit(main())
