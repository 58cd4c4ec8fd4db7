"""The masked addresses that consumers are told."""

from __future__ import annotations

import ipaddress
import random
from collections.abc import Collection
from dataclasses import dataclass

from gsaas import exceptions
from gsaas.objects.address import Address

CHANCE = random.SystemRandom()


@dataclass(frozen=True)
class MaskedAddresses:
    """What VMs, or a host's programs, are told: the addresses of *prefix* (`169.254.71.0/24`), each with *port*."""

    prefix: str
    port: int

    def first(self, count: int) -> list[Address]:
        """The addresses of *count* cGPUs; raises `BadRequest` if the prefix has not that many."""
        network = ipaddress.IPv4Network(self.prefix)
        usable = network.num_addresses - 2
        if count > usable:
            raise exceptions.BadRequest(
                reason=f"{count} cGPUs were asked for; a VM can be told of {usable}"
            )
        return [Address(str(network[1 + position]), self.port) for position in range(count)]

    def any_of(self, taken: Collection[str], count: int, host: str) -> list[Address]:
        """*count* addresses that are not *taken* on *host*; raises `NoMaskedAddress` if there are too few.

        Any of them, so that one that was given back is used again as late as may be.
        """
        network = ipaddress.IPv4Network(self.prefix)
        first, last = int(network.network_address) + 1, int(network.broadcast_address)
        held = {int(ipaddress.IPv4Address(ip)) for ip in taken}
        free = [number for number in range(first, last) if number not in held]
        if count > len(free):
            raise exceptions.NoMaskedAddress(host=host, count=count, free=len(free))
        return [
            Address(str(ipaddress.IPv4Address(number)), self.port)
            for number in CHANCE.sample(free, count)
        ]
