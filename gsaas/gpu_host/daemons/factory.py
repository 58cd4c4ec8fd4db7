# SPDX-License-Identifier: Apache-2.0
"""The daemons of a GPU host as its configuration describes them, and the fence around them."""

from __future__ import annotations

import pwd
from collections.abc import Callable, Iterable
from pathlib import Path

from oslo_config import cfg

from gsaas import rpc
from gsaas.gpu_host.daemons import processes
from gsaas.gpu_host.daemons.launcher import Launcher
from gsaas.gpu_host.daemons.logs import Logs
from gsaas.gpu_host.daemons.plan import DaemonTimeouts
from gsaas.gpu_host.daemons.records import DaemonRecords
from gsaas.gpu_host.daemons.service import DaemonService, DaemonSupervisor
from gsaas.gpu_host.daemons.supervisor import Supervisor
from gsaas.gpu_host.fence.fence import Fence
from gsaas.objects.daemon import Daemon, DaemonStatus
from gsaas.remoting.base import RemotingDriver
from gsaas.remoting.daemon import OPERATOR, DaemonSettings
from gsaas.rpc.engine import EngineClient

_MIB = 1 << 20
_CLEAN_MARGIN = 10.0
"""Seconds for what `clean` does besides waiting for `stop_timeout`."""


def service(
    conf: cfg.ConfigOpts,
    bus: rpc.Bus,
    driver: RemotingDriver,
    host: str,
    gpu_address: str,
    *,
    in_process: Callable[[DaemonService], DaemonSupervisor],
    netns: str | None = None,
) -> DaemonService | None:
    """Return the service for the daemons of *host*, not started; None if the middleware has no daemons.

    *in_process* makes the supervisor of a middleware whose daemons run in this process. The fence is in the network
    namespace *netns*; None: in this process's own. Raises `ValueError` for options that cannot be used and
    `gsaas.gpu_host.daemons.records.RecordsUnusable` for the folder of records.
    """
    settings = driver.daemon_settings
    if settings is None:
        return None
    options = conf.daemons
    fence = None
    if options.fence:
        fence = Fence(gpu_address, connections=options.connections_per_source, netns=netns)

    def make_supervisor(service: DaemonService) -> DaemonSupervisor:
        if settings.life == OPERATOR:
            return _NoSupervisor()
        if settings.in_process:
            return in_process(service)
        launcher = _launcher(conf, settings, host, gpu_address, service.parent_uuid)
        return Supervisor(launcher, timeouts(conf), service.daemons_changed)

    return DaemonService(host, EngineClient(bus), settings, make_supervisor, fence)


def timeouts(conf: cfg.ConfigOpts) -> DaemonTimeouts:
    """Return the timeouts of `[daemons]`."""
    options = conf.daemons
    return DaemonTimeouts(
        start=options.start_timeout,
        stop=options.stop_timeout,
        first_pause=options.first_pause,
        longest_pause=options.longest_pause,
    )


def clean(conf: cfg.ConfigOpts, driver: RemotingDriver, host: str, gpu_address: str) -> None:
    """End every daemon that a monitor of this host ever started, and remove its fence.

    Raises `ValueError` for options that cannot be used, `gsaas.gpu_host.daemons.records.RecordsUnusable` while a
    monitor runs, and `OSError` if a daemon does not end or the kernel refuses.
    """
    settings = driver.daemon_settings
    if settings is not None and settings.life != OPERATOR and not settings.in_process:
        launcher = _launcher(conf, settings, host, gpu_address, lambda _uuid: None)
        supervisor = Supervisor(launcher, timeouts(conf))
        supervisor.start()
        supervisor.set_desired(())
        gone = supervisor.wait_until_gone(conf.daemons.stop_timeout + _CLEAN_MARGIN)
        supervisor.stop()
        launcher.close()
        if not gone:
            raise OSError("a daemon does not end, or another process listens on its port")
    if conf.daemons.fence:
        Fence(gpu_address).teardown()


def _launcher(
    conf: cfg.ConfigOpts,
    settings: DaemonSettings,
    host: str,
    gpu_address: str,
    parents: Callable[[str], str | None],
) -> Launcher:
    options = conf.daemons
    if options.user is not None:
        _check_user(options.user)
    records = DaemonRecords(Path(options.state_dir))
    records.lock()
    return Launcher(
        settings,
        host,
        gpu_address,
        records=records,
        tracker=processes.process_tracker(records.folder),
        logs=Logs(Path(options.log_dir), options.log_mb * _MIB, options.log_days),
        more_nodes=options.device_nodes,
        parents=parents,
    )


def _check_user(name: str) -> None:
    try:
        pwd.getpwnam(name)
    except KeyError:
        raise ValueError(f"[daemons]user is {name}, and this machine has no such user") from None


class _NoSupervisor:
    """A `DaemonSupervisor` where operators run the daemons themselves: it does nothing."""

    def start(self) -> None:
        """Do nothing: the operator starts the daemons."""

    def stop(self) -> None:
        """Do nothing: the daemons continue to run."""

    def set_desired(self, daemons: Iterable[Daemon]) -> None:
        """Do nothing: the operator decides which daemons there are."""

    def statuses(self) -> list[DaemonStatus]:
        """Return nothing: the status of these daemons is not known."""
        return []
