# SPDX-License-Identifier: Apache-2.0
"""The daemons of a GPU host as its configuration describes them, and the fence around them."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from oslo_config import cfg

from gsaas import rpc
from gsaas.gpu_host.daemons.plan import DaemonTimeouts
from gsaas.gpu_host.daemons.service import DaemonService, DaemonSupervisor
from gsaas.gpu_host.fence import control_group
from gsaas.gpu_host.fence.fence import Fence
from gsaas.gpu_host.fence.layout import ControlGroup
from gsaas.objects.daemon import Daemon, DaemonStatus, DaemonUsage
from gsaas.remoting.base import RemotingDriver
from gsaas.remoting.daemon import LISTENS, OPERATOR
from gsaas.rpc.engine import EngineClient


def service(
    conf: cfg.ConfigOpts,
    bus: rpc.Bus,
    driver: RemotingDriver,
    host: str,
    gpu_address: str,
    *,
    supervise: Callable[[DaemonService], DaemonSupervisor],
    netns: str | None = None,
) -> DaemonService | None:
    """Return the service for the daemons of *host*, not started; None if the middleware has no daemons.

    *supervise* makes the supervisor of the daemons, unless operators start these themselves. The fence is in the
    network namespace *netns*; None: in this process's own. Raises `ValueError` for options that cannot be used, and
    what *supervise* raises.
    """
    settings = driver.daemon_settings
    if settings is None:
        return None
    options = conf.daemons
    fence = None
    if options.fence:
        # Only where this process checks the health of daemons by connecting to them, it has to pass.
        checks = (
            settings.life != OPERATOR and not settings.in_process and settings.health != LISTENS
        )
        fence = Fence(
            gpu_address,
            connections=options.connections_per_source,
            monitor=control_group.own() if checks else None,
            netns=netns,
        )

    def make_supervisor(service: DaemonService) -> DaemonSupervisor:
        return _NoSupervisor() if settings.life == OPERATOR else supervise(service)

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


class _NoSupervisor:
    """A `DaemonSupervisor` where operators run the daemons themselves: it does nothing."""

    def adopt(self) -> None:
        """Do nothing: the operator knows the daemons."""

    def start(self) -> None:
        """Do nothing: the operator starts the daemons."""

    def stop(self) -> None:
        """Do nothing: the daemons continue to run."""

    def set_desired(self, daemons: Iterable[Daemon]) -> None:
        """Do nothing: the operator decides which daemons there are."""

    def statuses(self) -> list[DaemonStatus]:
        """Return nothing: the status of these daemons is not known."""
        return []

    def listeners(self) -> dict[int, ControlGroup]:
        """Return nothing: a daemon may be any program."""
        return {}

    def usages(self) -> dict[Daemon, DaemonUsage]:
        """Return nothing: it is not known what a daemon is."""
        return {}

    def version(self) -> str | None:
        """Return nothing: it is not known."""
        return None

    def problems(self) -> list[str]:
        """Return nothing."""
        return []
