# SPDX-License-Identifier: Apache-2.0
"""How the engine reaches the agents of compute hosts and GPU hosts, and which addresses it believes."""

from __future__ import annotations

from dataclasses import dataclass

from gsaas.objects.gpu_network import GpuNetwork
from gsaas.rpc.monitor import MonitorClient
from gsaas.rpc.rodvr import EndpointClient


@dataclass(frozen=True)
class Agents:
    """The agents on all hosts. Daemons and compute hosts are in *gpu_network*; no other address is believed."""

    endpoint: EndpointClient
    monitors: MonitorClient
    gpu_network: GpuNetwork = GpuNetwork()  # noqa: RUF009  (immutable)
