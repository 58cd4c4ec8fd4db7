"""What GSaaS has to know of a remote-CUDA middleware: what its clients read, and its limits.

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
from gsaas.rodvr.bindings import Address

NAMESPACE = "gsaas.remoting"


@dataclass(frozen=True)
class Device:
    """One cGPU as a server sees it."""

    masked: Address
    memory_mb: int | None
    """MiB of its share; None: the whole GPU."""


class Driver(abc.ABC):
    """The client side of one middleware. Sub-classes give the attributes and `variables`."""

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

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        """`ValueError` if the options of `gsaas.conf.remoting` do not suit this middleware."""
        extra = dict(conf.remoting.extra_environment)
        taken = [name for name in extra if name.startswith((*self.own_variables, SEARCH_PATH))]
        if taken:
            raise ValueError(f"[remoting]extra_environment may not set {', '.join(taken)}")
        libraries = conf.remoting.library_path
        if libraries is None:
            libraries = self.library_path
        self._settings = {**({SEARCH_PATH: libraries} if libraries else {}), **extra}
        check(self._settings)

    def check(self, count: int) -> None:
        """`RemotingLimit` if a program cannot see *count* cGPUs through this middleware."""
        if self.max_devices is not None and count > self.max_devices:
            raise RemotingLimit(
                driver=self.name, limit=self.max_devices, count=count, why=self.limit_reason
            )

    def environment(self, lease_id: str, devices: Sequence[Device]) -> dict[str, str]:
        """The client environment of a lease, in the order in which people read it.

        The order of *devices* is the order in which programs number them. `RemotingLimit` as
        `check`; `ValueError` if there is no device or two share an address.
        """
        self.check(len(devices))
        if not devices or len({device.masked for device in devices}) != len(devices):
            raise ValueError(f"lease {lease_id} needs devices at distinct addresses: {devices}")
        return {**self.variables(lease_id, devices), **self._settings}

    @abc.abstractmethod
    def variables(self, lease_id: str, devices: Sequence[Device]) -> Mapping[str, str]:
        """The middleware's own variables for at least one device, all at distinct addresses."""


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
