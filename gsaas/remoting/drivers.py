# SPDX-License-Identifier: Apache-2.0
"""The remoting drivers of a cloud: one for each kind of device, as `[remoting]` names them."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import replace

from oslo_config import cfg

from gsaas.exceptions import KindNotServed
from gsaas.objects.device_kinds import CPU, CUDA
from gsaas.objects.ports import PortRange
from gsaas.remoting.base import RemotingDriver, load, most_ports


class Drivers:
    """The drivers of new leases, by the kind of their devices. A lease keeps its driver, which is found by its name.

    Iterating over it yields each driver of new leases once. Threads may share it.
    """

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        """Raises `ValueError` for a driver that is not installed, or does not serve the kind that it is named for.

        Also for options of `[remoting]` or `[daemons]` that do not suit one of the drivers.
        """
        options = conf.remoting
        self.default_kind: str = options.default_kind
        """Of what kind the devices of a request are that names none."""
        self._load = functools.cache(functools.partial(load, conf=conf))
        self._of_kind = {}
        for kind, option in (CUDA, "driver"), (CPU, "cpu_driver"):
            named = options[option]
            driver = self._load(named or options.driver)
            if kind in driver.kinds:
                self._of_kind[kind] = driver
            elif named is not None:
                raise ValueError(
                    f"[remoting]{option} is {named}, which serves no devices of kind {kind}"
                )
        if self.default_kind not in self._of_kind:
            raise ValueError(
                f"[remoting]default_kind is {self.default_kind}, and no driver serves devices of this kind: "
                "set cpu_driver"
            )

    def __iter__(self) -> Iterator[RemotingDriver]:
        return iter({driver.name: driver for driver in self._of_kind.values()}.values())

    def of(self, kind: str) -> RemotingDriver:
        """Return the driver of new leases with devices of *kind*; raises `KindNotServed` if there is none."""
        if kind not in self._of_kind:
            raise KindNotServed(kind=kind)
        return self._of_kind[kind]

    def named(self, name: str) -> RemotingDriver:
        """Return the driver of a lease; raises `ValueError` if it is not installed."""
        return self._load(name)

    @property
    def masked_ports(self) -> Mapping[str, int]:
        """Return, by driver, the TCP port of the masked addresses of its leases."""
        return {driver.name: driver.default_port for driver in self}

    @property
    def daemon_ports(self) -> Mapping[str, PortRange]:
        """Return, by driver, the ports for daemons that serve one lease each; only of those that have such daemons.

        A host may have leases of any driver that is installed, so each daemon gets as many ports as any of them needs.
        """
        each = most_ports()
        return {
            name: replace(ports, each=each)
            for driver in self
            for name, ports in driver.daemon_ports.items()
        }
