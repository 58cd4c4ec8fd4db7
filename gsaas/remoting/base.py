# SPDX-License-Identifier: Apache-2.0
"""The interface of drivers for remote-CUDA middlewares: what their clients read, their limits, and their daemons.

A driver is an entry point of `gsaas.remoting`. It only describes the middleware and does no I/O. The docstring of its
module describes, for operators, what the middleware does that GSaaS cannot prevent.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from typing import ClassVar, cast

from oslo_config import cfg
from stevedore import driver as stevedore_driver
from stevedore.exception import NoMatches
from stevedore.extension import ExtensionManager
from stevedore.named import NamedExtensionManager

from gsaas.cloudinit.environment import SEARCH_PATH, validate
from gsaas.exceptions import RemotingLimit
from gsaas.objects.address import Address
from gsaas.objects.device_kinds import CUDA
from gsaas.objects.ports import PortRange
from gsaas.objects.request import SPREAD, Request
from gsaas.remoting.daemon import DaemonSettings, DaemonTemplate

NAMESPACE = "gsaas.remoting"
SERVER_VERSION = "GSAAS_MIDDLEWARE_VERSION"
"""The variable that tells a consumer the version of its daemons, which its client libraries need, too."""


@dataclass(frozen=True)
class ClientDevice:
    """One cGPU as its consumer sees it."""

    address: Address
    """Where the consumer reaches its daemon: the masked address if it has one, else the real one."""
    memory_mb: int | None
    """MiB of its share; None: the whole GPU."""
    gpu_uuid: str | None = None
    """NVML's; None unless the consumer uses the GPU without a middleware."""
    middleware: str | None = None
    """The version of the middleware that its daemons told; None if it is not known."""
    number: int = 0
    """Its number among the devices of its daemon, which have one address or several that lead to it."""


class RemotingDriver(abc.ABC):
    """One middleware. Sub-classes define the attributes and `variables`."""

    name: ClassVar[str]
    """The name of its entry point."""
    kinds: ClassVar[tuple[str, ...]] = (CUDA,)
    """The kinds of devices (`gsaas.objects.device_kinds`) that its daemons compute on."""
    default_port: ClassVar[int]
    """TCP port of the daemon of GPU 0 of a host; those of the other GPUs follow."""
    max_devices: ClassVar[int | None] = None
    """Upper bound of the cGPUs that one program can see; None: the middleware has none."""
    one_daemon: bool = False
    """One daemon serves all cGPUs of a lease, as `{gpu_uuids}`, because programs cannot use several daemons or confuse
    their devices. So they are on one GPU host, each on a GPU of its own. Only where each lease has its own daemons."""
    limit_reason: ClassVar[str] = ""
    """Why there is a `max_devices`, as the end of a sentence."""
    library_path: ClassVar[str] = ""
    """Usual folder of the client libraries inside a server; empty: none is needed."""
    own_variables: ClassVar[tuple[str, ...]] = ()
    """Prefixes of the variables that say where the GPUs are; operators may not set these."""
    daemon_template: ClassVar[DaemonTemplate | None] = None
    """How its daemons are started; None: it has none."""

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        """Raises `ValueError` if the options of `[remoting]` or `[daemons]` do not suit this middleware."""
        extra = dict(conf.remoting.extra_environment)
        taken = [name for name in extra if name.startswith((*self.own_variables, SEARCH_PATH))]
        if taken:
            raise ValueError(f"[remoting]extra_environment may not set {', '.join(taken)}")
        libraries = conf.remoting.library_path
        if self.name == conf.remoting.cpu_driver and self.name != conf.remoting.driver:
            libraries = conf.remoting.cpu_library_path
        if libraries is None:
            libraries = self.library_path
        self._settings = {**({SEARCH_PATH: libraries} if libraries else {}), **extra}
        validate(self._settings)
        self.daemon_settings = (
            DaemonSettings(conf, self.daemon_template, self.default_port)
            if self.daemon_template
            else None
        )

    @property
    def daemon_ports(self) -> dict[str, PortRange]:
        """This driver's name -> the ports for daemons that serve one lease each; empty if there are no such daemons."""
        if self.daemon_settings is None or not self.daemon_settings.per_lease:
            return {}
        return {self.name: self.daemon_settings.lease_ports}

    @property
    def gpu_ports(self) -> Sequence[int]:
        """The ports of the daemons of a host's GPUs, by the numbers of the GPUs."""
        return range(self.default_port, 65537 - self._ports, self._ports)

    @property
    def _ports(self) -> int:
        return self.daemon_template.ports if self.daemon_template else 1

    def adapt(self, request: Request) -> Request:
        """Return *request* as it has to be placed to be served through this middleware.

        Raises `RemotingLimit` if it cannot be.
        """
        self._check_visible(request.count)
        request = request.with_(ports_per_daemon=self._ports)
        if request.count == 1 or not (self.one_daemon and self.daemon_ports):
            return request
        if request.hosts == SPREAD:
            raise RemotingLimit(
                driver=self.name,
                limit=1,
                count=request.count,
                why="on different hosts they would need several daemons, and one serves all cGPUs of a lease",
            )
        return request.with_(one_daemon=True)

    def _check_visible(self, count: int) -> None:
        """Raise `RemotingLimit` if a program cannot see *count* cGPUs through this middleware."""
        if self.max_devices is not None and count > self.max_devices:
            raise RemotingLimit(
                driver=self.name, limit=self.max_devices, count=count, why=self.limit_reason
            )

    def environment(self, lease_id: str, devices: Sequence[ClientDevice]) -> dict[str, str]:
        """Return the client environment of a lease, in an order that is easy to read.

        Programs number the *devices* in the given order. Raises `RemotingLimit` if a program cannot see so many, and
        `ValueError` if there is no device.
        """
        self._check_visible(len(devices))
        if not devices:
            raise ValueError(f"lease {lease_id} needs at least one device")
        versions = sorted({device.middleware for device in devices if device.middleware})
        told = {SERVER_VERSION: ",".join(versions)} if versions else {}
        return {**self.variables(lease_id, devices), **self._settings, **told}

    @abc.abstractmethod
    def variables(self, lease_id: str, devices: Sequence[ClientDevice]) -> Mapping[str, str]:
        """Return the middleware's own variables for at least one device.

        Two devices may have the same real address: two cGPUs of one GPU.
        """


def load(name: str, conf: cfg.ConfigOpts) -> RemotingDriver:
    """Return the driver *name*; raises `ValueError` if it is not installed or its options cannot be used."""
    try:
        found: stevedore_driver.DriverManager[Callable[..., RemotingDriver]] = (
            stevedore_driver.DriverManager(
                NAMESPACE, name, invoke_on_load=True, invoke_args=(conf,)
            )
        )
    except NoMatches as exc:
        known = ", ".join(sorted(ExtensionManager(NAMESPACE).entry_points_names()))
        raise ValueError(f"there is no remoting driver {name!r}; those here are {known}") from exc
    # invoke_on_load: what the manager calls its driver is the instance, and not the class that its type names.
    return cast("RemotingDriver", found.driver)


def most_ports() -> int:
    """Return how many ports a daemon has at most, of whichever driver is installed.

    Those of GSaaS itself are not imported for that: their daemons have one.
    """
    others = [
        point.name
        for point in metadata.entry_points(group=NAMESPACE)
        if not point.module.startswith("gsaas.")
    ]
    found: NamedExtensionManager[RemotingDriver] = NamedExtensionManager(NAMESPACE, others)
    templates = [getattr(each.plugin, "daemon_template", None) for each in found]
    return max((template.ports for template in templates if template is not None), default=1)
