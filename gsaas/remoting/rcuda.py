"""rCUDA, which operators bring themselves: it is proprietary and given on request.

A server's image holds the client libraries; programs have to be linked with the shared CUDA
runtime. Some releases read more variables, `RCUDAPROTO=TCP` among them: add those with
`[remoting]extra_environment`. `RCUDA_RESERVED_GPU_MEMORY_<i>` tells a client its share. It is the
client that keeps to it, inside the tenant's reach, so GSaaS does not rely on it: the limit that
holds is the one on the GPU host.
"""

from __future__ import annotations

from collections.abc import Sequence

from gsaas.remoting.base import Device, Driver
from gsaas.remoting.daemon import PER_GPU, TCP, Recipe


class Rcuda(Driver):
    """One numbered variable per cGPU: where it is, and in shared mode how much of it there is."""

    name = "rcuda"
    default_port = 8308
    library_path = "/opt/rCUDA/lib"
    own_variables = ("RCUDA_DEVICE_", "RCUDA_RESERVED_GPU_MEMORY_")
    recipe = Recipe(
        # It looks for its own files in the folder that it is started in.
        command="./rCUDAd -i -p {port} -n {max_clients}",
        environment={"CUDA_VISIBLE_DEVICES": "{gpu_uuid}"},
        folder="/opt/rCUDA/bin",
        health=TCP,
        life=PER_GPU,
    )

    def variables(
        self,
        lease_id: str,
        devices: Sequence[Device],
    ) -> dict[str, str]:
        """`RCUDA_DEVICE_COUNT`, then each device's address and, unless it is whole, its MiB."""
        variables = {"RCUDA_DEVICE_COUNT": str(len(devices))}
        for index, device in enumerate(devices):
            address = device.address
            port = "" if address.port == self.default_port else f"@{address.port}"
            # GPU 0, always: a daemon serves one GPU and numbers it so.
            variables[f"RCUDA_DEVICE_{index}"] = f"{address.ip}{port}:0"
            if device.memory_mb is not None:
                variables[f"RCUDA_RESERVED_GPU_MEMORY_{index}"] = str(device.memory_mb)
        return variables
