# SPDX-License-Identifier: Apache-2.0
"""Which addresses on the GPU network the engine believes and sends.

A host names its own address in its reports; masked addresses lead there, and fences admit it. So an address that a
report names has to be in the GPU network, and no other host has it: the one that the operator names, also if
another one reported it before, or else the first one that reported it keeps it until an operator forgets that host.
"""

from __future__ import annotations

from sqlalchemy.orm import Session

from gsaas.db import hosts
from gsaas.objects.binding import Binding, LocalBinding
from gsaas.objects.gpu_network import GpuNetwork
from gsaas.objects.lease import Lease


def report_refusal(
    session: Session, network: GpuNetwork, host: str, address: str | None
) -> str | None:
    """Return why *address* is not believed to be that of *host*, as a sentence for operators; None if it is."""
    if address is None:
        return f"{host} reports no IPv4 address of its own on the GPU network: correct [monitor]gpu_address there"
    if refusal := network.refusal(address) or network.host_refusal(host, address):
        return (
            f"{host} reports the address {address} on the GPU network, which is refused: {refusal}"
        )
    if network.hosts.get(host) == address:
        return None  # whoever reported it first
    owners = hosts.with_gpu_address(session, address)
    if owners and host not in owners:
        return (
            f"{host} reports the address {address} on the GPU network, which is refused: {owners[0]} has it; correct "
            f"one of the two, or gsaas hosts -forget={owners[0]} if that is gone for good"
        )
    return None


def forget_refused(session: Session, network: GpuNetwork, host: str) -> None:
    """Forget what *host* reported before the operator gave that address, or the host, to another.

    A host whose GPUs leases use keeps its own until they are over; `binding_refusal` leads nobody there.
    """
    refused = [
        address
        for address in hosts.gpu_addresses_of(session, host)
        if network.host_refusal(host, address)
    ]
    if refused:
        hosts.forget_addresses(session, host, refused)


def binding_refusal(
    network: GpuNetwork, lease: Lease, binding: Binding | LocalBinding
) -> str | None:
    """Return why *binding*, that of *lease*, must not be sent to an endpoint, as a sentence; None if it may be."""
    for claim in lease.claims:
        host, real = claim.gpu.host_name, claim.real_address
        if refusal := network.host_refusal(host, real.ip):
            return f"lease {lease.id} has a GPU of {host}, which reported {real.ip}, and {refusal}"
    for masked, real in sorted(binding.mappings.items()):
        if refusal := network.refusal(real.ip):
            return f"{masked} of lease {binding.lease_id} leads to {real}, and {refusal}"
    return None
