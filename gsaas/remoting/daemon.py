"""How the daemons of a middleware are started and asked, as templates: values in, values out.

A driver brings a `Recipe`; the options of `gsaas.conf.daemons` go before what it says. Everything is tried once with
made-up values when it is read, so that what cannot be filled in is found at the start and not at the first lease.
"""

from __future__ import annotations

import shlex
import string
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from oslo_config import cfg

from gsaas.objects.daemon import Daemon
from gsaas.objects.ports import PortRange

PER_GPU, PER_LEASE, OPERATOR = "per-gpu", "per-lease", "operator"
TCP, HTTP2, SIMULATED = "tcp", "http2", "simulated"

_MPS = {
    "CUDA_MPS_PIPE_DIRECTORY": "{mps_pipe_directory}",
    # Device 0 of those that the daemon sees, and it sees one.
    "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0={memory_mb}M",
}
_LIBRARY = {
    "CUDA_DEVICE_MEMORY_LIMIT": "{memory_mb}m",
    # HAMi-core shares what is used among all who name the same file: one daemon and its children, and nobody else.
    "CUDA_DEVICE_MEMORY_SHARED_CACHE": "{state_dir}/{key}.limit",
}


@dataclass(frozen=True)
class Recipe:
    """What a driver says of its daemons. Texts are templates for `str.format`."""

    command: str
    environment: Mapping[str, str] = field(default_factory=dict)
    folder: str = "/"
    health: str = TCP
    life: str = PER_GPU
    computes: bool = True
    """It uses a GPU: it needs device nodes, and its memory can be limited."""


@dataclass(frozen=True)
class Command:
    """One daemon, ready to be started."""

    words: tuple[str, ...]
    environment: Mapping[str, str]
    folder: str
    needs: tuple[str, ...] = ()
    """Files without which it must not be started: the limit would not hold."""


class Daemons:
    """The daemons of one middleware, as *conf* has them; `ValueError` if its options do not make sense."""

    def __init__(self, conf: cfg.ConfigOpts, recipe: Recipe, default_port: int) -> None:
        options = conf.daemons
        self.life = options.life or recipe.life
        self.lease_ports = PortRange.parse(options.lease_ports)
        if default_port in self.lease_ports:
            raise ValueError(
                f"[daemons]lease_ports {self.lease_ports} contain {default_port}, where the daemons of "
                "whole GPUs begin; choose other ports"
            )
        self._recipe = replace(
            recipe,
            command=options.command or recipe.command,
            environment={**recipe.environment, **options.environment},
            folder=options.folder or recipe.folder,
            health=options.health or recipe.health,
        )
        self.health = self._recipe.health
        self.inside = not recipe.computes and not options.command
        """They are threads of the monitor itself: nothing of them outlives it."""
        self.own_devices = options.own_devices and recipe.computes
        self.user = options.user
        self._limit = self._limit_variables(options) if recipe.computes else {}
        self._needs = self._limit_needs(options) if recipe.computes else ()
        self._values = {
            "folder": self._recipe.folder,
            "state_dir": options.state_dir,
            "max_clients": str(options.max_clients),
            "python": sys.executable,
        }
        self._mps_pipe_directory = options.mps_pipe_directory
        sample = Daemon("GPU-0", default_port, 1024, "lease", 0)
        self.command(sample, "host", "192.0.2.1")

    @property
    def serves_leases(self) -> bool:
        """Each cGPU has a daemon of its own."""
        return self.life == PER_LEASE

    def command(self, daemon: Daemon, host: str, address: str) -> Command:
        """How *daemon* of *host* is started, which listens at *address*."""
        values = {
            **self._values,
            "host": host,
            "address": address,
            "port": str(daemon.port),
            "gpu_uuid": daemon.gpu_uuid,
            "memory_mb": "" if daemon.memory_mb is None else str(daemon.memory_mb),
            "lease_id": daemon.lease_id or "",
            "position": str(daemon.position),
            "key": daemon.key,
        }
        values["mps_pipe_directory"] = _fill("mps_pipe_directory", self._mps_pipe_directory, values)
        limited = daemon.memory_mb is not None
        variables = {**self._recipe.environment, **(self._limit if limited else {})}
        words = _words(self._recipe.command)
        return Command(
            words=tuple(_fill("command", word, values) for word in words),
            environment={
                name: _fill(f"environment variable {name}", value, values)
                for name, value in variables.items()
            },
            folder=self._recipe.folder,
            needs=tuple(_fill("memory_limit", need, values) for need in self._needs)
            if limited
            else (),
        )

    def _limit_variables(self, options: cfg.GroupAttr) -> dict[str, str]:
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
                told = _LIBRARY if options.limit_environment is None else options.limit_environment
                return {"LD_PRELOAD": options.limit_library, **told}
            case _:
                return {}

    def _limit_needs(self, options: cfg.GroupAttr) -> tuple[str, ...]:
        match options.memory_limit:
            case "mps":
                return ("{mps_pipe_directory}/control",)
            case "library":
                return (options.limit_library,)
            case _:
                return ()


def _words(command: str) -> list[str]:
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
