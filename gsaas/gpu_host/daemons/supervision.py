# SPDX-License-Identifier: Apache-2.0
"""The supervisor of a GPU host whose daemons are units of systemd, as its configuration describes it."""

from __future__ import annotations

import posixpath
from collections.abc import Callable
from pathlib import Path

from oslo_config import cfg

from gsaas.gpu_host.daemons import factory, lock, unit
from gsaas.gpu_host.daemons.devices import HostDevices
from gsaas.gpu_host.daemons.supervisor import Supervisor
from gsaas.gpu_host.daemons.systemd import Systemd, UnitChanges
from gsaas.gpu_host.daemons.unit import Confinement
from gsaas.gpu_host.daemons.unit_runner import UnitRunner
from gsaas.gpu_host.fence.fence import Fence
from gsaas.gpu_host.sources import cpu
from gsaas.remoting.base import RemotingDriver
from gsaas.remoting.daemon import OPERATOR, DaemonSettings

_CONFIGURATION = "/etc/gsaas"
_CLEAN_MARGIN = 10.0
"""Seconds for what `clean` does besides waiting for `stop_timeout`."""


def supervisor(
    conf: cfg.ConfigOpts,
    settings: DaemonSettings,
    host: str,
    gpu_address: str,
    parents: Callable[[str], str | None],
    on_change: Callable[[], None] = lambda: None,
) -> Supervisor:
    """Return the supervisor of *host*, not started; it has the lock of this host's monitor until the process ends.

    *parents* returns the UUID of the GPU that a MIG instance is part of. Raises
    `gsaas.gpu_host.daemons.lock.LockUnusable` while another monitor runs,
    `gsaas.gpu_host.daemons.systemd.SystemdUnavailable` without systemd, and
    `gsaas.gpu_host.sources.base.SourceUnavailable` if the host has fewer cores than its CPU devices.
    """
    lock.acquire(Path(conf.daemons.state_dir))
    systemd = Systemd()
    runner = UnitRunner(
        settings,
        host,
        gpu_address,
        systemd,
        confinement(conf, systemd.version()),
        devices(conf, settings, host, parents).of,
    )
    return Supervisor(runner, factory.timeouts(conf), lambda: UnitChanges(unit.PREFIX), on_change)


def devices(
    conf: cfg.ConfigOpts,
    settings: DaemonSettings,
    host: str,
    parents: Callable[[str], str | None],
) -> HostDevices:
    """Return what the daemons of *host* may use of its devices; the arguments are those of `supervisor`.

    Raises `gsaas.gpu_host.sources.base.SourceUnavailable` if the host has fewer cores than its CPU devices.
    """
    return HostDevices(
        own=settings.own_devices,
        more_nodes=conf.daemons.device_nodes,
        parents=parents,
        cores=cpu.cores_of(conf, host) if conf.monitor.source == "cpu" else {},
    )


def confinement(conf: cfg.ConfigOpts, systemd: int) -> Confinement:
    """Return what all daemons of this host have in common; *systemd* is the major version of its systemd."""
    options = conf.daemons
    files = [*(conf.config_file or ()), *(conf.config_dir or ())]
    return Confinement(
        hidden=(_CONFIGURATION, options.state_dir, *(str(Path(file).absolute()) for file in files)),
        host_memory_mb=options.host_memory_mb,
        tasks=options.tasks,
        stop_timeout=options.stop_timeout,
        tmp_mb=options.tmp_mb,
        systemd=systemd,
        mps_folders=_mps_folders(options.mps_pipe_directory)
        if options.memory_limit == "mps"
        else None,
    )


def _mps_folders(template: str) -> str | None:
    """Return the folder in which each GPU has one for its MPS control daemon; None if others need that folder, too."""
    parent, found, _ = f"{posixpath.normpath(template)}/".partition("/{gpu_uuid}/")
    if not found or "{" in parent or parent in ("", "/run", "/var/run"):
        return None
    # Daemons have folders of their own for these.
    return None if f"{parent}/".startswith(("/tmp/", "/var/tmp/")) else parent  # noqa: S108


def clean(conf: cfg.ConfigOpts, driver: RemotingDriver, host: str, gpu_address: str) -> None:
    """End every daemon that a monitor of this host ever started, and remove its fence.

    Raises `ValueError` for options that cannot be used, `gsaas.gpu_host.daemons.lock.LockUnusable` while a monitor
    runs, `gsaas.gpu_host.daemons.systemd.SystemdUnavailable` without systemd, and `OSError` if a daemon does not end or
    the kernel refuses.
    """
    settings = driver.daemon_settings
    if settings is not None and settings.life != OPERATOR and not settings.in_process:
        supervising = supervisor(conf, settings, host, gpu_address, lambda _uuid: None)
        supervising.adopt()
        supervising.start()
        supervising.set_desired(())
        gone = supervising.wait_until_gone(conf.daemons.stop_timeout + _CLEAN_MARGIN)
        supervising.stop()
        if not gone:
            raise OSError("a daemon does not end, or another process listens on its port")
    if conf.daemons.fence:
        Fence(gpu_address).teardown()
