# SPDX-License-Identifier: Apache-2.0
"""The masked addresses that consumers are given instead of the real addresses of their GPUs."""

from __future__ import annotations

import ipaddress
import random
from collections.abc import Collection
from dataclasses import dataclass

from gsaas import exceptions
from gsaas.objects.address import Address

RANDOM = random.SystemRandom()


@dataclass(frozen=True)
class MaskedAddresses:
    """The masked addresses of VMs, or of the programs of a host: those of *prefix* (`169.254.71.0/24`), with *port*."""

    prefix: str
    port: int

    def first(self, count: int) -> list[Address]:
        """Return the addresses of the *count* cGPUs of a VM; raises `BadRequest` if the prefix has fewer."""
        network = ipaddress.IPv4Network(self.prefix)
        usable = network.num_addresses - 2
        if count > usable:
            raise exceptions.BadRequest(
                reason=f"{count} cGPUs were requested; a VM can have {usable}, one for each masked address"
            )
        return [Address(str(network[1 + position]), self.port) for position in range(count)]

    def choose(self, taken: Collection[str], count: int, host: str) -> list[Address]:
        """Return *count* random addresses that are not *taken* on *host*; raises `NoMaskedAddress` if there are fewer.

        Random ones, so that an address that was returned is seldom used again soon.
        """
        network = ipaddress.IPv4Network(self.prefix)
        first, last = int(network.network_address) + 1, int(network.broadcast_address)
        used = {int(ipaddress.IPv4Address(ip)) for ip in taken}
        free = [number for number in range(first, last) if number not in used]
        if count > len(free):
            raise exceptions.NoMaskedAddress(host=host, count=count, free=len(free))
        return [
            Address(str(ipaddress.IPv4Address(number)), self.port)
            for number in RANDOM.sample(free, count)
        ]
