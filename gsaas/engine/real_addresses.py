# SPDX-License-Identifier: Apache-2.0
"""Which addresses on the GPU network the engine believes and sends.

A host names its own address in its reports; masked addresses lead there, and fences admit it. So an address that a
report names has to be in the GPU network, and no other host has it: the one that the operator names, or else the
first one that reported it keeps it until an operator forgets that host.
"""

from __future__ import annotations

from sqlalchemy.orm import Session

from gsaas.db import hosts
from gsaas.objects.binding import Binding, LocalBinding
from gsaas.objects.gpu_network import GpuNetwork


def report_refusal(session: Session, network: GpuNetwork, host: str, address: str) -> str | None:
    """Return why *address* is not believed to be that of *host*, as a sentence for operators; None if it is."""
    if refusal := network.refusal(address) or network.host_refusal(host, address):
        return (
            f"{host} reports the address {address} on the GPU network, which is refused: {refusal}"
        )
    owners = hosts.with_gpu_address(session, address)
    if owners and host not in owners:
        return (
            f"{host} reports the address {address} on the GPU network, which is refused: {owners[0]} has it; correct "
            f"one of the two, or gsaas hosts -forget={owners[0]} if that is gone for good"
        )
    return None


def binding_refusal(network: GpuNetwork, binding: Binding | LocalBinding) -> str | None:
    """Return why *binding* must not be sent to an endpoint, as a sentence; None if it may be."""
    for masked, real in sorted(binding.mappings.items()):
        if refusal := network.refusal(real.ip):
            return f"{masked} of lease {binding.lease_id} leads to {real}, and {refusal}"
    return None
