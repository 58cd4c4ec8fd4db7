"""What GSaaS has to know of a remote-CUDA middleware: what its clients read, its limits, and its daemons.

A driver is an entry point of `gsaas.remoting`. It says; it does not act: values in, values out. Its
module docstring tells the operator what the middleware does that cannot be arranged away.
"""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from oslo_config import cfg
from stevedore import driver as stevedore_driver
from stevedore.exception import NoMatches
from stevedore.extension import ExtensionManager

from gsaas.cloudinit.environment import SEARCH_PATH, check
from gsaas.exceptions import RemotingLimit
from gsaas.objects.address import Address
from gsaas.objects.ports import PortRange
from gsaas.remoting.daemon import Daemons, Recipe

NAMESPACE = "gsaas.remoting"


@dataclass(frozen=True)
class Device:
    """One cGPU as its consumer sees it."""

    address: Address
    """Where its daemon is found: the masked address, or for want of one the real."""
    memory_mb: int | None
    """MiB of its share; None: the whole GPU."""
    gpu_uuid: str | None = None
    """NVML's; told to those only who use the GPU without a middleware."""


class Driver(abc.ABC):
    """One middleware. Sub-classes give the attributes and `variables`."""

    name: ClassVar[str]
    default_port: ClassVar[int]
    """TCP port its daemons listen on unless told otherwise."""
    max_devices: ClassVar[int | None] = None
    """Most cGPUs one program can see; None: no limit of the middleware's own."""
    limit_reason: ClassVar[str] = ""
    """Why there is a `max_devices`, as the end of a sentence."""
    library_path: ClassVar[str] = ""
    """Usual folder of the client libraries inside a server; empty: none is needed."""
    own_variables: ClassVar[tuple[str, ...]] = ()
    """Beginnings of the names that say where the GPUs are, and that operators may not set."""
    recipe: ClassVar[Recipe | None] = None
    """How its daemons are started; None: it has none."""

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        """`ValueError` if the options of `gsaas.conf.remoting` or `gsaas.conf.daemons` do not suit this middleware."""
        extra = dict(conf.remoting.extra_environment)
        taken = [name for name in extra if name.startswith((*self.own_variables, SEARCH_PATH))]
        if taken:
            raise ValueError(f"[remoting]extra_environment may not set {', '.join(taken)}")
        libraries = conf.remoting.library_path
        if libraries is None:
            libraries = self.library_path
        self._settings = {**({SEARCH_PATH: libraries} if libraries else {}), **extra}
        check(self._settings)
        self.daemons = Daemons(conf, self.recipe, self.default_port) if self.recipe else None

    @property
    def daemon_ports(self) -> dict[str, PortRange]:
        """This driver's name -> the ports for daemons that serve one cGPU each; empty if none do."""
        if self.daemons is None or not self.daemons.serves_leases:
            return {}
        return {self.name: self.daemons.lease_ports}

    def check(self, count: int) -> None:
        """`RemotingLimit` if a program cannot see *count* cGPUs through this middleware."""
        if self.max_devices is not None and count > self.max_devices:
            raise RemotingLimit(
                driver=self.name, limit=self.max_devices, count=count, why=self.limit_reason
            )

    def environment(self, lease_id: str, devices: Sequence[Device]) -> dict[str, str]:
        """The client environment of a lease, in the order in which people read it.

        The order of *devices* is the order in which programs number them. `RemotingLimit` as
        `check`; `ValueError` if there is no device.
        """
        self.check(len(devices))
        if not devices:
            raise ValueError(f"lease {lease_id} needs at least one device")
        return {**self.variables(lease_id, devices), **self._settings}

    @abc.abstractmethod
    def variables(self, lease_id: str, devices: Sequence[Device]) -> Mapping[str, str]:
        """The middleware's own variables for at least one device. Real addresses may be equal: one GPU twice."""


def load(name: str, conf: cfg.ConfigOpts) -> Driver:
    """The driver *name*; `ValueError` if it is not installed or its options cannot be used."""
    try:
        found = stevedore_driver.DriverManager(
            NAMESPACE, name, invoke_on_load=True, invoke_args=(conf,)
        )
    except NoMatches as exc:
        known = ", ".join(sorted(ExtensionManager(NAMESPACE).entry_points_names()))
        raise ValueError(f"there is no remoting driver {name!r}; those here are {known}") from exc
    return found.driver
