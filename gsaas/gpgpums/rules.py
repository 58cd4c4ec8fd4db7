# SPDX-License-Identifier: Apache-2.0
"""The rules by which one process changes the books: policies, quotas, the queue, and how consumers reach their GPUs."""

from __future__ import annotations

import ipaddress
import logging
import random
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from oslo_config import cfg

from gsaas import exceptions
from gsaas import limits as quota_drivers
from gsaas.conf.grants import allows_direct
from gsaas.gpgpums import policies
from gsaas.gpgpums.policies.base import Policy
from gsaas.limits.base import UNLIMITED, Limits
from gsaas.limits.configured import NoLimits
from gsaas.objects.address import Address
from gsaas.objects.ports import PortRange
from gsaas.remoting.drivers import Drivers

LOG = logging.getLogger(__name__)

RANDOM = random.SystemRandom()

ALL = "*"
"""Stands for every installed policy."""


class PolicySelection:
    """The policies that requests may name, and the default policy for requests that name none.

    The configuration sets both. An administrator may set another default while the service runs: it is stored in the
    database, in a row that every claim reads in any case.

    *default* is the name of the configured default; *allowed* are the names that requests may ask for, besides the
    default. *known* are all policies that work here, by name; None: all installed ones.
    """

    def __init__(
        self,
        default: str = "least-load-fit",
        allowed: Collection[str] = (ALL,),
        known: Mapping[str, Policy] | None = None,
    ) -> None:
        self.configured = default
        self._allowed = frozenset(allowed)
        self._known = known

    @classmethod
    def from_conf(cls, conf: cfg.ConfigOpts) -> PolicySelection:
        """Return the selection that *conf* describes, with every policy configured.

        A policy that cannot be configured is logged and left out. Raises `ValueError` if the default or an allowed
        policy does not work here.
        """
        known = _configured(conf)
        options = conf.gpgpums
        for option, names in {
            "policy": [options.policy],
            "allowed_policies": [name for name in options.allowed_policies if name != ALL],
        }.items():
            for name in names:
                if name not in known:
                    raise ValueError(
                        f"[gpgpums]{option} names the policy {name!r}, which does not work here; "
                        f"those that do are {', '.join(sorted(known))}"
                    )
        return cls(options.policy, options.allowed_policies, known)

    @property
    def known(self) -> Mapping[str, Policy]:
        """Return every policy that works here, by name."""
        return policies.installed() if self._known is None else self._known

    def default(self, setting: Any) -> Policy:
        """Return the default policy: the one that an administrator set, *setting*, if it works here."""
        if setting is not None:
            if setting in self.known:
                return self.known[setting]
            LOG.error(
                "the default policy was set to %r, which does not work here: %s serves instead",
                setting,
                self.configured,
            )
        return policies.find(self.configured, self.known)

    def allows(self, name: str, setting: Any) -> bool:
        """Return whether a request may name the policy *name*."""
        return ALL in self._allowed or name in self._allowed or name == self.default(setting).name

    def named(self, name: str, setting: Any) -> Policy:
        """Return the policy that a request names; raises `UnknownPolicy`, `PolicyNotAllowed`."""
        policy = policies.find(name, self.known)
        if not self.allows(name, setting):
            allowed = sorted(other for other in self.known if self.allows(other, setting))
            raise exceptions.PolicyNotAllowed(name=name, allowed=", ".join(allowed))
        return policy

    def of(self, name: str | None, setting: Any) -> Policy:
        """Return the policy of a request, the default if *name* is None; raises what `named` raises."""
        return self.default(setting) if name is None else self.named(name, setting)


@dataclass(frozen=True)
class MaskedAddresses:
    """The masked addresses of VMs, or of the programs of a host: those of *prefix* (`169.254.71.0/24`)."""

    prefix: str
    port: int
    """The TCP port of leases whose driver is not in `ports`."""
    ports: Mapping[str, int] = field(default_factory=dict)
    """Remoting driver -> the TCP port of its leases."""

    def check(self, count: int) -> None:
        """Raise `BadRequest` if a VM cannot have *count* cGPUs, as the prefix has fewer addresses."""
        usable = ipaddress.IPv4Network(self.prefix).num_addresses - 2
        if count > usable:
            raise exceptions.BadRequest(
                reason=f"{count} cGPUs were requested; a VM can have {usable}, one for each masked address"
            )

    def first(self, count: int, driver: str) -> list[Address]:
        """Return the addresses of the *count* cGPUs of a VM, reached through *driver*; raises what `check` raises."""
        self.check(count)
        network, port = ipaddress.IPv4Network(self.prefix), self.ports.get(driver, self.port)
        return [Address(str(network[1 + position]), port) for position in range(count)]

    def choose(self, taken: Collection[str], count: int, host: str, driver: str) -> list[Address]:
        """Return *count* random addresses that are not *taken* on *host*; raises `NoMaskedAddress` if there are fewer.

        Random ones, so that an address that was returned is seldom used again soon.
        """
        network = ipaddress.IPv4Network(self.prefix)
        first, last = int(network.network_address) + 1, int(network.broadcast_address)
        used = {int(ipaddress.IPv4Address(ip)) for ip in taken}
        free = [number for number in range(first, last) if number not in used]
        if count > len(free):
            raise exceptions.NoMaskedAddress(host=host, count=count, free=len(free))
        port = self.ports.get(driver, self.port)
        return [
            Address(str(ipaddress.IPv4Address(number)), port)
            for number in RANDOM.sample(free, count)
        ]


@dataclass(frozen=True)
class AccessRules:
    """How consumers may reach their GPUs."""

    daemon_ports: Mapping[str, PortRange] = field(default_factory=dict)
    """By remoting driver, the ports for daemons of leases; without any, GPUs' own daemons serve them."""
    native: bool = False
    """Consumers on a GPU host use its GPUs without a middleware. CPU devices nobody uses so."""
    local_per_project: int = UNLIMITED
    """How many masked addresses one project may have on one host."""
    direct: bool = True
    """Consumers may be told real addresses."""


@dataclass(frozen=True)
class QueueRules:
    """How the queue is served."""

    backfill: bool = False
    """Some leases may be served before others."""
    reserve_for: float = UNLIMITED
    """For how many seconds a lease keeps later ones from the GPUs that it waits for, -1 for ever."""
    client_timeout: float = 60.0
    """How long a client that announced to poll may be silent, in seconds."""


@dataclass(frozen=True)
class Rules:
    """The rules by which one process changes the books."""

    masked: MaskedAddresses
    """The addresses that a VM sees."""
    local: MaskedAddresses | None = None
    """The masked addresses for programs of a host with an endpoint; None if these are told the real ones."""
    access: AccessRules = field(default_factory=AccessRules)
    policies: PolicySelection = field(default_factory=PolicySelection)
    quotas: Limits = field(default_factory=NoLimits)
    """The quotas of leases in the queue."""
    queue: QueueRules = QueueRules()

    @classmethod
    def from_conf(cls, conf: cfg.ConfigOpts, drivers: Drivers) -> Rules:
        """Return the rules as *conf* has them; *drivers* are the remoting drivers of new leases.

        Raises `ValueError` for policies or quotas that cannot be used as configured.
        """
        port, ports = drivers.of(drivers.default_kind).default_port, drivers.masked_ports
        return cls(
            masked=MaskedAddresses(conf.rodvr.masked_prefix, port, ports),
            local=MaskedAddresses(conf.rodvr.local_prefix, port, ports),
            access=AccessRules(
                daemon_ports=drivers.daemon_ports,
                native=conf.remoting.native,
                local_per_project=conf.rodvr.local_per_project,
                direct=allows_direct(conf),
            ),
            policies=PolicySelection.from_conf(conf),
            quotas=quota_drivers.load(conf),
            queue=QueueRules(
                backfill=conf.queue.backfill,
                reserve_for=conf.queue.reserve_for,
                client_timeout=conf.queue.client_timeout,
            ),
        )


def _configured(conf: cfg.ConfigOpts) -> dict[str, Policy]:
    """Return new instances of all policies that *conf* could configure."""
    known = policies.instances()
    for name, policy in list(known.items()):
        try:
            policy.configure(conf, known)
        except Exception as error:  # noqa: BLE001 - policies may come from other packages
            LOG.error("Scheduling policy %s is left out: %s", name, error)
            del known[name]
    return known
