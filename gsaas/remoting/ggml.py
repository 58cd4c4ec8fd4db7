# SPDX-License-Identifier: Apache-2.0
"""ggml's RPC (MIT), with which programs of llama.cpp compute on devices of other hosts: GPUs of any maker, and CPUs.

What an operator should know of it, as seen with protocol 4.0 (llama.cpp and ggml of 2026):

* Client and daemon have to speak the same version of the protocol; a client refuses another one.
* A daemon serves one connection after the other. A second program that uses the same cGPU waits until the first one
  has ended. So a daemon serves one cGPU, unless `[daemons]life` says otherwise, and its health is seen in its listening
  socket: a check that connects would stand in the queue of programs, which has one place.
* A program uses at most 16 daemons; larger requests are refused.
* It authenticates nobody, and a client can crash its daemon by what it sends. The fence, the masked addresses, and a
  daemon for each cGPU keep that among the lease's own programs.
* A program sees the memory that the device has free. On GPUs, only a limit on the GPU host keeps it to its share.
"""

from __future__ import annotations

from collections.abc import Sequence

from gsaas.objects.device_kinds import KINDS
from gsaas.remoting.base import ClientDevice, RemotingDriver
from gsaas.remoting.daemon import LISTENS, PER_LEASE, DaemonTemplate


class Ggml(RemotingDriver):
    """`LLAMA_ARG_RPC`, a list of addresses, which programs of llama.cpp read as their option `--rpc`."""

    name = "ggml"
    kinds = KINDS
    default_port = 50052
    max_devices = 16
    limit_reason = "its client uses no more servers"
    library_path = "/opt/llama.cpp/lib"
    own_variables = ("LLAMA_ARG_RPC",)
    daemon_template = DaemonTemplate(
        command="./rpc-server --host {address} --port {port}",
        environment={
            # Without a GPU of this name, as on a host of CPU devices, it serves the CPU.
            "CUDA_VISIBLE_DEVICES": "{gpu_uuid}",
            # Or a server that a client has made fail starts a debugger.
            "GGML_NO_BACKTRACE": "1",
        },
        folder="/opt/llama.cpp/bin",
        health=LISTENS,
        life=PER_LEASE,
        own_memory_mb=128,
    )

    def variables(self, lease_id: str, devices: Sequence[ClientDevice]) -> dict[str, str]:
        """Return `LLAMA_ARG_RPC`: address and port of each device, separated by commas."""
        return {"LLAMA_ARG_RPC": ",".join(str(device.address) for device in devices)}
