# SPDX-License-Identifier: Apache-2.0
"""How the daemons of a middleware are started and checked, as templates. Pure: no I/O.

A driver brings a `DaemonTemplate`; the options of `gsaas.conf.daemons` override it. All templates are filled in once
with sample values when a process starts, so that one that cannot be filled in is found then and not at the first
lease.
"""

from __future__ import annotations

import shlex
import string
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from oslo_config import cfg

from gsaas.objects.daemon import Daemon
from gsaas.objects.device_kinds import CPU, kind_of
from gsaas.objects.ports import PortRange

PER_GPU, PER_LEASE, OPERATOR = "per-gpu", "per-lease", "operator"
"""Values of `[daemons]life`."""
OWN_USER, SHARED_USER = "own-user", "shared-user"
"""Values of `[daemons]isolation`."""
TCP, HTTP2, LISTENS, SIMULATED = "tcp", "http2", "listens", "simulated"
"""Values of `[daemons]health`."""

_MPS = {
    "CUDA_MPS_PIPE_DIRECTORY": "{mps_pipe_directory}",
    # By the numbers of the devices that the daemon sees.
    "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "{memory_mb_by_device}",
}
_LIBRARY = {
    "CUDA_DEVICE_MEMORY_LIMIT": "{memory_mb}m",
    # HAMi-core adds up the memory of all processes that name the same file: here, one daemon and its children, which
    # have a /tmp of their own.
    "CUDA_DEVICE_MEMORY_SHARED_CACHE": "/tmp/{key}.limit",  # noqa: S108
}


@dataclass(frozen=True)
class DaemonTemplate:
    """A driver's daemons. Command, environment and folder are templates for `str.format`."""

    command: str
    environment: Mapping[str, str] = field(default_factory=dict)
    folder: str = "/"
    """The working directory."""
    health: str = TCP
    """The kind of health check."""
    life: str = PER_GPU
    """Whether a daemon serves a GPU or a cGPU, and who starts it, unless `[daemons]life` says otherwise."""
    uses_gpu: bool = True
    """Daemons need device nodes, and their memory can be limited; False for a simulated middleware."""
    own_memory_mb: int = 64
    """MiB of the host's memory that a daemon needs for itself; on a CPU device, its share comes on top."""
    ports: int = 1
    """TCP ports of a daemon: its port and those after it. Leases keep the number that they began with, so a release of
    the driver that needs fewer may only be installed after they are over."""


@dataclass(frozen=True)
class DaemonCommand:
    """How one daemon is started, all templates filled in."""

    argv: tuple[str, ...]
    environment: Mapping[str, str]
    folder: str
    required_files: tuple[str, ...] = ()
    """Files that have to exist before it is started: without them its memory limit would not take effect."""
    mps_pipe_directory: str | None = None
    """The folder where the MPS control daemon listens that limits its memory; None: another limit, or none."""
    host_memory_mb: int | None = None
    """MiB of the host's memory that the daemon of a CPU device may have, so that it is kept to its share; None: this
    limits nothing."""


class DaemonSettings:
    """How the daemons of one middleware are run, by *conf* and the driver's *daemon_template*.

    Raises `ValueError` if the options of `[daemons]` cannot be used. *default_port* is that of the first GPU's daemon.
    """

    def __init__(
        self, conf: cfg.ConfigOpts, daemon_template: DaemonTemplate, default_port: int
    ) -> None:
        options = conf.daemons
        self.life = options.life or daemon_template.life
        self.lease_ports = PortRange.parse(options.lease_ports)
        self.ports = daemon_template.ports
        sample = Daemon("GPU-0", default_port, 1024, "lease", 0, ports=self.ports)
        if any(port in self.lease_ports for port in sample.all_ports):
            raise ValueError(
                f"[daemons]lease_ports {self.lease_ports} contain {default_port}, where the daemons of "
                "whole GPUs begin; choose other ports"
            )
        self._template = replace(
            daemon_template,
            command=options.command or daemon_template.command,
            environment={**daemon_template.environment, **options.environment},
            folder=options.folder or daemon_template.folder,
            health=options.health or daemon_template.health,
        )
        self.health = self._template.health
        self.in_process = not daemon_template.uses_gpu and not options.command
        """Daemons are threads of the monitor, and end with it."""
        self.own_devices = options.own_devices and daemon_template.uses_gpu
        self.own_user = options.isolation == OWN_USER
        """No two daemons may run as the same user."""
        self._mps = daemon_template.uses_gpu and options.memory_limit == "mps"
        self._limit = self._limit_variables(options) if daemon_template.uses_gpu else {}
        self._required_files = self._limit_files(options) if daemon_template.uses_gpu else ()
        self._values = {
            "folder": self._template.folder,
            "state_dir": options.state_dir,
            "max_clients": str(options.max_clients),
            "python": sys.executable,
        }
        self._mps_pipe_directory = options.mps_pipe_directory
        # Fill in everything once: this raises `ValueError` for templates that cannot be filled in.
        self.command(sample, "host", "192.0.2.1")

    @property
    def per_lease(self) -> bool:
        """Whether each cGPU has a daemon of its own."""
        return self.life == PER_LEASE

    def command(self, daemon: Daemon, host: str, address: str) -> DaemonCommand:
        """Return how to start *daemon* of *host*, which listens at the IPv4 address *address*.

        Raises `ValueError` if its memory cannot be limited.
        """
        values = {
            **self._values,
            "host": host,
            "address": address,
            "port": str(daemon.port),
            "gpu_uuid": daemon.gpu_uuid,
            "gpu_uuids": ",".join(daemon.gpus),
            "memory_mb": "" if daemon.memory_mb is None else str(daemon.memory_mb),
            "memory_mb_by_device": ""
            if daemon.memory_mb is None
            else ",".join(f"{number}={daemon.memory_mb}M" for number in range(len(daemon.gpus))),
            "lease_id": daemon.lease_id or "",
            "position": str(daemon.position),
            "key": daemon.key,
        }
        values["mps_pipe_directory"] = _fill("mps_pipe_directory", self._mps_pipe_directory, values)
        is_cpu = kind_of(daemon.gpu_uuid) == CPU
        limited = daemon.memory_mb is not None and not is_cpu
        variables = {**self._template.environment, **(self._limit if limited else {})}
        if limited and self._mps and daemon.other_gpus and "{gpu_uuid}" in self._mps_pipe_directory:
            raise ValueError(
                f"its limit of {daemon.memory_mb} MiB on each of {len(daemon.gpus)} GPUs takes one MPS control daemon "
                "for all of them, and [daemons]mps_pipe_directory has one for each GPU"
            )
        words = _split(self._template.command)
        return DaemonCommand(
            argv=tuple(_fill("command", word, values) for word in words),
            environment={
                name: _fill(f"environment variable {name}", value, values)
                for name, value in variables.items()
            },
            folder=self._template.folder,
            required_files=tuple(
                _fill("memory_limit", file, values) for file in self._required_files
            )
            if limited
            else (),
            mps_pipe_directory=values["mps_pipe_directory"] if limited and self._mps else None,
            host_memory_mb=daemon.memory_mb * len(daemon.gpus) + self._template.own_memory_mb
            if is_cpu and daemon.memory_mb is not None
            else None,
        )

    def _limit_variables(self, options: cfg.ConfigOpts.GroupAttr) -> dict[str, str]:
        match options.memory_limit:
            case "mps":
                return dict(
                    _MPS if options.limit_environment is None else options.limit_environment
                )
            case "library":
                if not options.limit_library:
                    raise ValueError(
                        "[daemons]memory_limit is library, and limit_library does not say which"
                    )
                variables = (
                    _LIBRARY if options.limit_environment is None else options.limit_environment
                )
                return {"LD_PRELOAD": options.limit_library, **variables}
            case _:
                return {}

    def _limit_files(self, options: cfg.ConfigOpts.GroupAttr) -> tuple[str, ...]:
        match options.memory_limit:
            case "mps":
                return ("{mps_pipe_directory}/control",)
            case "library":
                return (options.limit_library,)
            case _:
                return ()


def _split(command: str) -> list[str]:
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise ValueError(f"[daemons]command cannot be split into words: {error}") from None
    if not words:
        raise ValueError("[daemons]command is empty")
    return words


def _fill(what: str, template: str, values: Mapping[str, str]) -> str:
    try:
        for _, name, spec, conversion in string.Formatter().parse(template):
            if name is not None and (name not in values or spec or conversion):
                known = ", ".join(f"{{{each}}}" for each in sorted(values))
                raise ValueError(f"{{{name}}} is not known; known are {known}")
        return template.format_map(values)
    except ValueError as error:
        raise ValueError(f"[daemons]{what} cannot be filled in: {error}") from None
