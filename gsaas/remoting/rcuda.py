# SPDX-License-Identifier: Apache-2.0
"""rCUDA, which operators bring themselves: it is proprietary and given on request.

A server's image holds the client libraries; programs have to be linked with the shared CUDA
runtime. Some releases read more variables, `RCUDAPROTO=TCP` among them: add those with
`[remoting]extra_environment`. `RCUDA_RESERVED_GPU_MEMORY_<i>` tells a client its share. The client enforces it, where
the tenant can change it, so GSaaS does not rely on it: only a limit on the GPU host is certain.
"""

from __future__ import annotations

from collections.abc import Sequence

from gsaas.remoting.base import ClientDevice, RemotingDriver
from gsaas.remoting.daemon import PER_GPU, TCP, DaemonTemplate


class Rcuda(RemotingDriver):
    """One numbered variable per cGPU: its address, and in shared mode the MiB of its share."""

    name = "rcuda"
    default_port = 8308
    library_path = "/opt/rCUDA/lib"
    own_variables = ("RCUDA_DEVICE_", "RCUDA_RESERVED_GPU_MEMORY_")
    daemon_template = DaemonTemplate(
        # It looks for its own files in its working directory.
        command="./rCUDAd -i -p {port} -n {max_clients}",
        environment={"CUDA_VISIBLE_DEVICES": "{gpu_uuid}"},
        folder="/opt/rCUDA/bin",
        health=TCP,
        life=PER_GPU,
    )

    def variables(
        self,
        lease_id: str,
        devices: Sequence[ClientDevice],
    ) -> dict[str, str]:
        """Return `RCUDA_DEVICE_COUNT`, then each device's address and, unless it is a whole GPU, its MiB."""
        variables = {"RCUDA_DEVICE_COUNT": str(len(devices))}
        for index, device in enumerate(devices):
            address = device.address
            port = "" if address.port == self.default_port else f"@{address.port}"
            variables[f"RCUDA_DEVICE_{index}"] = f"{address.ip}{port}:{device.number}"
            if device.memory_mb is not None:
                variables[f"RCUDA_RESERVED_GPU_MEMORY_{index}"] = str(device.memory_mb)
        return variables
