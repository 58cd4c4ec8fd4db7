"""The daemons of a GPU host as its configuration describes them, and the fence around them."""

from __future__ import annotations

import pwd
from collections.abc import Callable, Sequence
from pathlib import Path

from oslo_config import cfg

from gsaas import rpc
from gsaas.gpu_host.daemons import processes
from gsaas.gpu_host.daemons.launcher import Launcher
from gsaas.gpu_host.daemons.logs import Logs
from gsaas.gpu_host.daemons.plan import Times
from gsaas.gpu_host.daemons.records import Records
from gsaas.gpu_host.daemons.service import DaemonService, Supervises
from gsaas.gpu_host.daemons.supervisor import Supervisor
from gsaas.gpu_host.fence.fence import Fence
from gsaas.remoting.base import Driver
from gsaas.remoting.daemon import OPERATOR
from gsaas.rpc.engine import EngineClient

_MIB = 1 << 20
_MORE_PATIENCE = 10.0
"""Seconds for what follows a daemon's end."""


def service(
    conf: cfg.ConfigOpts,
    bus: rpc.Bus,
    driver: Driver,
    host: str,
    gpu_address: str,
    *,
    in_process: Callable[[DaemonService], Supervises],
    netns: str | None = None,
) -> DaemonService | None:
    """Return what looks after the daemons of *host*, not started; None if it has none.

    *in_process* makes the supervisor of a middleware whose daemons run in this process; the fence stands in the
    network namespace *netns*, None for this process's own. `ValueError` for options that cannot be used,
    `gsaas.gpu_host.daemons.records.Unusable` for a folder that cannot.
    """
    kind = driver.daemons
    if kind is None:
        return None
    options = conf.daemons
    fence = None
    if options.fence:
        fence = Fence(gpu_address, connections=options.connections_per_source, netns=netns)

    def make(made: DaemonService) -> Supervises:
        if kind.life == OPERATOR:
            return _Nothing()
        if kind.inside:
            return in_process(made)
        launcher = _launcher(conf, driver, host, gpu_address, made.parent)
        return Supervisor(launcher, times(conf), made.changed)

    return DaemonService(host, EngineClient(bus), kind, make, fence)


def times(conf: cfg.ConfigOpts) -> Times:
    """How long things take, as configured."""
    options = conf.daemons
    return Times(
        start=options.start_timeout,
        stop=options.stop_timeout,
        first_pause=options.first_pause,
        longest_pause=options.longest_pause,
    )


def clean(conf: cfg.ConfigOpts, driver: Driver, host: str, gpu_address: str) -> None:
    """End every daemon that a monitor of this host ever started, and take its fence away.

    `ValueError`, `gsaas.gpu_host.daemons.records.Unusable` (a monitor that runs) and `OSError` say what is in the way.
    """
    kind = driver.daemons
    if kind is not None and kind.life != OPERATOR and not kind.inside:
        launcher = _launcher(conf, driver, host, gpu_address, lambda _uuid: None)
        supervisor = Supervisor(launcher, times(conf))
        supervisor.start()
        supervisor.want(())
        gone = supervisor.wait_until_gone(conf.daemons.stop_timeout + _MORE_PATIENCE)
        supervisor.stop()
        launcher.close()
        if not gone:
            raise OSError("some daemon would not end, or somebody else listens on its port")
    if conf.daemons.fence:
        Fence(gpu_address).teardown()


def _launcher(
    conf: cfg.ConfigOpts,
    driver: Driver,
    host: str,
    gpu_address: str,
    parents: Callable[[str], str | None],
) -> Launcher:
    options = conf.daemons
    if options.user is not None:
        _check_user(options.user)
    records = Records(Path(options.state_dir))
    records.hold()
    return Launcher(
        driver.daemons,
        host,
        gpu_address,
        records=records,
        groups=processes.groups(records.folder),
        logs=Logs(Path(options.log_dir), options.log_mb * _MIB, options.log_days),
        more_nodes=options.device_nodes,
        parents=parents,
    )


def _check_user(name: str) -> None:
    try:
        pwd.getpwnam(name)
    except KeyError:
        raise ValueError(f"[daemons]user names {name}, whom this machine does not know") from None


class _Nothing:
    """The operator's daemons, which we leave alone."""

    def start(self) -> None:
        """They run already."""

    def stop(self) -> None:
        """They run on."""

    def want(self, daemons: object) -> None:
        """They are what they are."""

    def conditions(self) -> Sequence[object]:
        """Nothing is known of them."""
        return []
