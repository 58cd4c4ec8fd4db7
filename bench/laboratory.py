# SPDX-License-Identifier: Apache-2.0
"""The lab of the benchmarks of the datapath: a VM reaches a GPU host by plain routing, and through masked addresses."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from gsaas.objects.address import Address
from gsaas.rodvr.config import ConnectionLimits, DatapathConfig
from gsaas.rodvr.endpoint import Endpoint
from tests.kernel.rodvr.lab import Lab, binding

BEYOND_REACH = ConnectionLimits(1_000_000, 1_000_000, 1_000_000)
"""Checked for every connection, and never reached."""


@contextmanager
def routing_lab() -> Iterator[Lab]:
    """Yield a lab whose compute host also routes between the VM's network and the GPU network.

    Raises `SystemExit` if this process is not root.
    """
    if os.geteuid() != 0:
        raise SystemExit("this benchmark makes network namespaces: run it as root")
    lab = Lab()
    try:
        lab.up()
        for device in ("gpu0", "br-a"):
            lab.sysctl("cmp", f"ipv4/conf/{device}/forwarding", 1)
        lab.ip("g1", "route add 10.0.0.0/24 via 192.168.50.1")
        yield lab
    finally:
        lab.down()


@contextmanager
def rodvr(lab: Lab, mappings: Mapping[Address, Address]) -> Iterator[None]:
    """Have RODVR translate masked addresses of the VM by these *mappings*."""
    endpoint = Endpoint("cmp", DatapathConfig("gpu0", lab.compute, limits=BEYOND_REACH))
    endpoint.start()
    try:
        report = endpoint.replace([binding("vm1", dict(mappings))])
        assert report.bindings["port-vm1"].installed, report.problems
        yield
    finally:
        endpoint.teardown()
