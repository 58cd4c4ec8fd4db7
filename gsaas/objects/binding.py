# SPDX-License-Identifier: Apache-2.0
"""Bindings: which masked addresses a consumer may use, and which real addresses they lead to.

A consumer is a VM, identified by its port, or programs of the host itself. `gsaas.rodvr.plan` decides how a binding is
represented in the kernel, and `gsaas.rodvr.kernel` installs it.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping as MappingABC
from dataclasses import dataclass
from typing import Any

from gsaas.objects.address import Address
from gsaas.objects.lease import Lease


@dataclass(frozen=True)
class Binding:
    """One VM port and the daemons it reaches: masked address -> real address.

    The tap is a name, not an interface index: it need not exist yet. `mappings` has one entry for each port
    of a daemon; an empty one keeps the port known but lets it reach nothing.
    """

    port_id: str
    """Neutron's port id (any unique text in standalone)."""
    lease_id: str
    tap: str
    """Name of the VM's interface on the compute host, at most 15 bytes."""
    mac: str
    ip: str
    """The port's first fixed IPv4 address."""
    mappings: MappingABC[Address, Address]
    other_ips: tuple[str, ...] = ()
    """Its further fixed IPv4 addresses. RODVR accepts no source address from the tap but these and `ip`."""

    def to_dict(self) -> dict[str, Any]:
        """Return the binding in JSON's types, such as `{"mappings": {"169.254.71.1:8308": "192.0.2.7:8308"}}`.

        It has `other_ips` only if there are any: endpoints of releases that knew one address refuse it.
        """
        others = {OTHER_IPS: list(self.other_ips)} if self.other_ips else {}
        return {
            **others,
            "port_id": self.port_id,
            "lease_id": self.lease_id,
            "tap": self.tap,
            "mac": self.mac,
            "ip": self.ip,
            "mappings": {str(masked): str(real) for masked, real in self.mappings.items()},
        }

    @classmethod
    def from_dict(cls, data: MappingABC[str, Any]) -> Binding:
        """Undo `to_dict`; `ValueError` or `KeyError` if *data* is not such a dictionary."""
        parsed = {
            "mappings": _parse_mappings(data["mappings"]),
            OTHER_IPS: tuple(str(ipaddress.IPv4Address(ip)) for ip in data.get(OTHER_IPS, ())),
        }
        return cls(**{**data, **parsed})


@dataclass(frozen=True)
class LocalBinding:
    """Programs of the host and the daemons they reach: masked address -> real address.

    The masked addresses are in the host's local prefix, and no other binding of the host has any of them: programs
    have no port by which RODVR could distinguish two consumers.
    """

    port_id: str
    """The id of this binding, among those of VM ports: the lease's id."""
    lease_id: str
    uid: int | None
    """The id of the user whose programs may use the masked addresses; None for all users."""
    mappings: MappingABC[Address, Address]

    def to_dict(self) -> dict[str, Any]:
        """Return the binding in JSON's types, for RPC; its `kind` distinguishes it from a `Binding`."""
        return {
            "kind": LOCAL,
            "port_id": self.port_id,
            "lease_id": self.lease_id,
            "uid": self.uid,
            "mappings": {str(masked): str(real) for masked, real in self.mappings.items()},
        }

    @classmethod
    def from_dict(cls, data: MappingABC[str, Any]) -> LocalBinding:
        """Undo `to_dict`; `ValueError` or `KeyError` if *data* is not such a dictionary."""
        if data["uid"] is not None and not 0 <= data["uid"] < INVALID_UID:
            raise ValueError(f"{data['uid']} is not a user id")
        fields = {key: value for key, value in data.items() if key != "kind"}
        return cls(**{**fields, "mappings": _parse_mappings(data["mappings"])})


OTHER_IPS = "other_ips"
LOCAL = "local"
INVALID_UID = 2**32 - 1
"""The number that is no user's id: (uid_t)-1 in the kernel's interfaces."""


def binding_of(lease: Lease) -> Binding | LocalBinding:
    """Return the binding of a lease, whose claims were read with their GPUs.

    Raises `ValueError` for a lease whose port is not recorded, or that has a claim without a masked address.
    """
    mappings: dict[Address, Address] = {}
    for claim in lease.claims:
        if claim.masked_address is None:
            raise ValueError(f"claim {claim.position} of lease {lease.id} has no masked address")
        masked = claim.masked_address.and_after(lease.ports_per_daemon)
        real = claim.real_address.and_after(lease.ports_per_daemon)
        # A host may report any port for its GPU, also one that is followed by too few.
        mappings.update(zip(masked, real, strict=False))
    if lease.port_id is None:
        raise ValueError(f"the port of lease {lease.id} is not recorded")
    if not lease.has_server:
        return LocalBinding(lease.port_id, lease.id, lease.consumer_uid, mappings)
    if lease.port_tap is None or lease.port_mac is None or lease.port_ip is None:
        raise ValueError(f"the port of lease {lease.id} is not recorded")
    return Binding(
        port_id=lease.port_id,
        lease_id=lease.id,
        tap=lease.port_tap,
        mac=lease.port_mac,
        ip=lease.port_ip,
        mappings=mappings,
        other_ips=tuple(lease.port_other_ips or ()),
    )


def binding_from_dict(data: MappingABC[str, Any]) -> Binding | LocalBinding:
    """Undo `to_dict` of either class; `ValueError` or `KeyError` if *data* is not such a dictionary."""
    return LocalBinding.from_dict(data) if data.get("kind") == LOCAL else Binding.from_dict(data)


def _parse_mappings(mappings: MappingABC[str, str]) -> dict[Address, Address]:
    return {Address.parse(masked): Address.parse(real) for masked, real in mappings.items()}
