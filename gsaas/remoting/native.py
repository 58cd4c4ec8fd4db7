"""No middleware: the consumer runs on the GPU host itself and uses its GPUs with its own CUDA.

For leases that stand alone, where `[remoting]native` allows it. Nothing between the program and the GPU
keeps it to what it was given: it can unset these variables as well as read them. In shared mode CUDA's
multi-process service has to run on the host, and keeps to the limit for programs that leave it set. So this is
for hosts whose users are trusted, or where something else (a container runtime, device cgroups) holds
them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from oslo_config import cfg

from gsaas.remoting.base import Device, Driver


class Native(Driver):
    """CUDA's own variables: which GPUs, and in shared mode how much of each."""

    name = "native"
    default_port = 1  # no daemon listens anywhere

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        """The options of `gsaas.conf.remoting` are for a middleware's clients, which these are not."""
        self._settings = {}

    def variables(self, lease_id: str, devices: Sequence[Device]) -> dict[str, str]:
        """`CUDA_VISIBLE_DEVICES`, and `CUDA_MPS_PINNED_DEVICE_MEM_LIMIT` in MiB unless the GPUs are whole.

        cGPUs that share a GPU are one device to CUDA, which shows no GPU twice; their memory adds up.
        """
        sizes: Counter[str] = Counter()
        for device in devices:
            sizes[device.gpu_uuid] += device.memory_mb or 0
        variables = {"CUDA_VISIBLE_DEVICES": ",".join(sizes)}
        if all(sizes.values()):
            variables["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] = ",".join(
                f"{index}={size}M" for index, size in enumerate(sizes.values())
            )
        return variables
