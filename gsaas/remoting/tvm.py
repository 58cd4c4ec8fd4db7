# SPDX-License-Identifier: Apache-2.0
"""Apache TVM's RPC (Apache-2.0): programs load functions that they have compiled into a daemon, and call them there.

What an operator should know of it, as seen with apache-tvm 0.27:

* A daemon runs whatever code its client sends. On the GPU host, only what confines the daemon confines the tenant.
* It serves one connection after the other, each in a process of its own: a second program that uses the same cGPU waits
  until the first one has ended. Its health is seen in its listening socket, which costs programs nothing.
* Client and daemon should be of the same release. Both are the same Python package; a daemon takes a second to start.
* It authenticates nobody. The fence, the masked addresses and a daemon for each cGPU keep a lease's daemons to it.
* Programs may load LLVM's text or bitcode (`load_module("f.ll")`), which needs no compiler on either side.
"""

from __future__ import annotations

from collections.abc import Sequence

from gsaas.objects.device_kinds import KINDS
from gsaas.remoting.base import ClientDevice, RemotingDriver
from gsaas.remoting.daemon import LISTENS, PER_LEASE, DaemonTemplate


class Tvm(RemotingDriver):
    """One numbered variable per cGPU, with the address for `tvm.rpc.connect`: TVM itself reads none."""

    name = "tvm"
    kinds = KINDS
    default_port = 9090
    own_variables = ("TVM_RPC_SERVER_",)
    daemon_template = DaemonTemplate(
        # TVM's own server accepts nobody any more after a client that was killed.
        command="{python} -m gsaas.gpu_host.servers.tvm --host {address} --port {port}",
        environment={
            "CUDA_VISIBLE_DEVICES": "{gpu_uuid}",
            # NumPy, which it imports, would otherwise have memory for a thread of each core.
            "OPENBLAS_NUM_THREADS": "1",
        },
        health=LISTENS,
        life=PER_LEASE,
        own_memory_mb=160,  # Python, and LLVM while it compiles
    )

    def variables(self, lease_id: str, devices: Sequence[ClientDevice]) -> dict[str, str]:
        """Return `TVM_RPC_SERVER_<i>`: address and port of each device."""
        return {
            f"TVM_RPC_SERVER_{index}": str(device.address) for index, device in enumerate(devices)
        }
