# SPDX-License-Identifier: Apache-2.0
"""No middleware: the consumer runs on the GPU host itself and uses its GPUs with its own CUDA.

For leases without a server, where `[remoting]native` allows it. Nothing between the program and the GPU enforces the
lease: a program can unset these variables as well as read them. In shared mode CUDA's multi-process service (MPS) has
to run on the host; it limits the memory of programs that leave the variable set. So this is for hosts whose users are
trusted, or where something else (a container runtime, device cgroups) confines them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from oslo_config import cfg

from gsaas.remoting.base import ClientDevice, RemotingDriver


class Native(RemotingDriver):
    """CUDA's own variables: which GPUs, and in shared mode how much memory of each."""

    name = "native"
    default_port = 1  # no daemon listens anywhere

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        """Ignore *conf*: without a middleware, no option of `[remoting]` or `[daemons]` applies."""
        self._settings = {}
        self.daemon_settings = None

    def variables(self, lease_id: str, devices: Sequence[ClientDevice]) -> dict[str, str]:
        """Return `CUDA_VISIBLE_DEVICES`, and `CUDA_MPS_PINNED_DEVICE_MEM_LIMIT` in MiB unless the GPUs are whole.

        cGPUs that share a GPU are one device to CUDA, which shows no GPU twice; their memory adds up.
        """
        sizes: Counter[str] = Counter()
        for device in devices:
            if device.gpu_uuid is None:
                raise ValueError(f"lease {lease_id} is native, and one of its GPUs has no UUID")
            sizes[device.gpu_uuid] += device.memory_mb or 0
        variables = {"CUDA_VISIBLE_DEVICES": ",".join(sizes)}
        if all(sizes.values()):
            variables["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] = ",".join(
                f"{index}={size}M" for index, size in enumerate(sizes.values())
            )
        return variables
