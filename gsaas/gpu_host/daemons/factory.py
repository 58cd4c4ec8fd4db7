# SPDX-License-Identifier: Apache-2.0
"""The daemons of a GPU host as its configuration describes them, and the fence around them."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from oslo_config import cfg

from gsaas import rpc
from gsaas.gpu_host.daemons.service import DaemonService, DaemonSupervisor
from gsaas.gpu_host.fence import control_group
from gsaas.gpu_host.fence.fence import Fence
from gsaas.gpu_host.fence.layout import ControlGroup
from gsaas.objects.daemon import Daemon, DaemonStatus
from gsaas.remoting.base import RemotingDriver
from gsaas.remoting.daemon import OPERATOR
from gsaas.rpc.engine import EngineClient


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

    *in_process* makes the supervisor of a middleware whose daemons run in this process. The fence and the daemons are
    in the network namespace *netns*; None: in this process's own. Raises `ValueError` for options that cannot be used
    and `gsaas.gpu_host.daemons.lock.LockUnusable` for the folder of records.
    """
    settings = driver.daemon_settings
    if settings is None:
        return None
    options = conf.daemons
    fence = None
    if options.fence:
        # Only where this process checks the health of daemons over the network, it has to pass.
        checks = settings.life != OPERATOR and not settings.in_process
        fence = Fence(
            gpu_address,
            connections=options.connections_per_source,
            monitor=control_group.own() if checks else None,
            netns=netns,
        )

    def make_supervisor(service: DaemonService) -> DaemonSupervisor:
        if settings.life == OPERATOR:
            return _NoSupervisor()
        if settings.in_process:
            return in_process(service)
        # Imported here: with simulated daemons, nothing talks to systemd.
        from gsaas.gpu_host.daemons import supervision

        return supervision.supervisor(
            conf,
            settings,
            host,
            gpu_address,
            service.parent_uuid,
            service.daemons_changed,
            netns,
        )

    return DaemonService(host, EngineClient(bus), settings, make_supervisor, fence)


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

    def version(self) -> str | None:
        """Return nothing: it is not known."""
        return None

    def problems(self) -> list[str]:
        """Return nothing."""
        return []
