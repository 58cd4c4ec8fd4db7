# SPDX-License-Identifier: Apache-2.0
"""Bindings of programs that a former process of the endpoint left: the kernel does not say whose they are."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from gsaas.objects.address import Address
from gsaas.objects.binding import LocalBinding
from gsaas.objects.gpu_network import GpuNetwork
from gsaas.rodvr.config import DatapathConfig
from gsaas.rodvr.endpoint import Endpoint, NotRemoved
from gsaas.rodvr.kernel import kernel as endpoint_kernel
from gsaas.rodvr.plan import DatapathState
from tests.world import baton
from tests.world.kernel import GPU_DEVICE, HostKernel, MemoryDatapath

MASKED, REAL = Address("169.254.72.1", 8308), Address("192.0.2.7", 8308)


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> HostKernel:
    """A kernel in memory, which has RODVR's tables."""
    nobody_else = SimpleNamespace(point=lambda: None, effect=lambda _: None, wake=lambda *_: None)
    monkeypatch.setattr(baton, "here", lambda: nobody_else)
    made = HostKernel("compute1", "192.0.2.1")
    made.tables = DatapathState()
    monkeypatch.setattr(endpoint_kernel, "Datapath", lambda _config: MemoryDatapath(made))
    return made


def started(kernel: HostKernel) -> Endpoint:
    """An endpoint that has opened the kernel; no thread watches it."""
    network = GpuNetwork.of(["192.0.2.0/24"])
    made = Endpoint("compute1", DatapathConfig(GPU_DEVICE), gpu_network=network)
    made._kernel.open()
    return made


def test_a_removal_is_not_confirmed_while_the_kernel_refuses_to_remove_what_a_former_process_left(
    kernel,
):
    former = started(kernel)
    former.replace([LocalBinding("lease-1", "lease-1", None, {MASKED: REAL})])
    assert list(kernel.mapped_locally()) == [(MASKED, REAL)]
    kernel.refuses = True
    endpoint = started(kernel)
    endpoint.replace([])  # the lease is over
    with pytest.raises(NotRemoved, match="lease-1 may still be connected on compute1"):
        endpoint.remove("lease-1")
    assert list(kernel.mapped_locally()) == [(MASKED, REAL)]
    kernel.refuses = False
    endpoint.remove("lease-1")
    assert list(kernel.mapped_locally()) == []


def test_removing_what_nobody_installed_is_no_error(kernel):
    endpoint = started(kernel)
    endpoint.replace([LocalBinding("lease-2", "lease-2", None, {MASKED: REAL})])
    endpoint.remove("lease-1")
    assert list(kernel.mapped_locally()) == [(MASKED, REAL)]
