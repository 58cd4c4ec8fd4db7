# SPDX-License-Identifier: Apache-2.0
"""One lab for all tests of a folder, as there can be only one at a time; an endpoint of its own for each test."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from gsaas.objects.gpu_network import GpuNetwork
from gsaas.rodvr.config import (
    IDENTITY_NETWORK,
    LOCAL_PREFIX,
    DatapathConfig,
    Networks,
    Periods,
)
from gsaas.rodvr.endpoint import Endpoint
from tests.kernel.rodvr.lab import USUAL, Lab, binding


@pytest.fixture(scope="package")
def lab() -> Iterator[Lab]:
    if os.geteuid() != 0:
        pytest.skip("network namespaces need root")
    lab = Lab()
    try:
        lab.up()
        yield lab
    finally:
        lab.down()


@pytest.fixture
def make_endpoint(lab: Lab) -> Iterator[Any]:
    """Creates started endpoints of the compute host; afterwards they are torn down, and nothing may be left."""
    made: list[Endpoint] = []

    def make(**options: Any) -> Endpoint:
        endpoint = configured(lab, **options)
        made.append(endpoint)
        endpoint.start()
        return endpoint

    before = _settings(lab)
    try:
        yield make
    finally:
        for endpoint in made:
            endpoint.stop()
        configured(lab).teardown()
    assert "rodvr" not in lab.nft("list tables")
    assert _settings(lab) == before


def configured(
    lab: Lab,
    gpu_device: str = "gpu0",
    *,
    identity_network: str = IDENTITY_NETWORK,
    local_prefix: str = LOCAL_PREFIX,
    audit_interval: float = 30.0,
    retry_interval: float = 5.0,
    grace: float = 60.0,
    gpu_network: GpuNetwork | None = None,
    on_installed: Callable[[str], None] = lambda _: None,
    **others: Any,
) -> Endpoint:
    """An endpoint of the compute host that is not started; *others* are of `DatapathConfig`."""
    networks = Networks(identities=identity_network, local=local_prefix)
    return Endpoint(
        "cmp",
        DatapathConfig(gpu_device, lab.compute, networks, **others),
        gpu_network=gpu_network or GpuNetwork(),
        periods=Periods(audit_interval, retry_interval, grace),
        on_installed=on_installed,
    )


@pytest.fixture
def endpoint(make_endpoint: Any) -> Endpoint:
    """An endpoint on which every VM has what is usual."""
    endpoint = make_endpoint()
    report = endpoint.replace(binding(vm, mappings) for vm, mappings in USUAL.items())
    assert not report.problems
    assert all(port.installed for port in report.bindings.values())
    return endpoint


def _settings(lab: Lab) -> object:
    """What RODVR may touch outside its tables, apart from the VMs' own links."""
    return (
        [link["ifname"] for link in lab.ip_json("cmp", "link") if "tap" not in link["ifname"]],
        lab.ip_json("cmp", "rule"),
        [route for route in lab.ip_json("cmp", "route show table all") if "rodvr" in str(route)],
        lab.sysctl("cmp", "ipv4/conf/gpu0/forwarding"),
        lab.sysctl("cmp", "ipv4/ip_forward"),
    )
