# SPDX-License-Identifier: Apache-2.0
"""A TCP address: masked, or the real one of a daemon."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass


@dataclass(frozen=True, order=True)
class Address:
    """A TCP address: IPv4 dotted quad and port; `ValueError` if either is invalid."""

    ip: str
    port: int

    def __post_init__(self) -> None:
        ipaddress.IPv4Address(self.ip)
        if not 0 < self.port < 65536:
            raise ValueError(f"port {self.port} is not between 1 and 65535")

    def __str__(self) -> str:
        return f"{self.ip}:{self.port}"

    def and_after(self, count: int) -> list[Address]:
        """Return this address and those with the ports after it, *count* in all, as far as there are ports."""
        ports = range(self.port, min(self.port + count, 65536))
        return [Address(self.ip, port) for port in ports]

    @classmethod
    def parse(cls, text: str) -> Address:
        """Return the address in a text such as `192.0.2.1:8308`; raises `ValueError` if it is none."""
        ip, _, port = text.rpartition(":")
        return cls(ip, int(port))
