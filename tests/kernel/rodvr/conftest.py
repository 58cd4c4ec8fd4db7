# SPDX-License-Identifier: Apache-2.0
"""One lab for all tests of a folder, as there can be only one at a time; an endpoint of its own for each test."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

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
        endpoint = Endpoint("cmp", "gpu0", netns=lab.compute, **options)
        made.append(endpoint)
        endpoint.start()
        return endpoint

    before = _settings(lab)
    try:
        yield make
    finally:
        for endpoint in made:
            endpoint.stop()
        Endpoint("cmp", "gpu0", netns=lab.compute).teardown()
    assert "rodvr" not in lab.nft("list tables")
    assert _settings(lab) == before


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
