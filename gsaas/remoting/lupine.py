"""LUPINE (Apache-2.0, once SCUDA): the CUDA driver API over a TCP connection per process and cGPU.

What an operator should know of it, as seen with its release of August 2026:

* A program sees at most 7 cGPUs, and silently no more; larger requests are refused.
* An entry of `LUPINE_SERVER` that does not answer costs every program 30 seconds or more and then
  vanishes from the numbering. GSaaS therefore wires a lease before it hands this environment out.
* When a cGPU moves to another GPU its connections are cut and a running program gets error 46 for
  that device, for ever. It has to start again; a new process finds the new GPU.
* The client's shim ignores `CUDA_VISIBLE_DEVICES`; choose devices by their number.
* Two threads that copy in opposite directions over one connection can block each other for minutes.
* Device pointers pass through unchanged, and the client finds the device by the pointer alone. If
  two daemons hand out the same pointer, one cGPU's data may be read from the other. Whether real
  drivers ever do is not known: prefer leases of one cGPU, or check with your driver first.
* `fork()` after CUDA has started hangs the child, and a low `ulimit -v` makes every connection
  fail.

Nothing in the client limits memory in shared mode; the daemon's side of the GPU host does.
"""

from __future__ import annotations

from collections.abc import Sequence

from gsaas.remoting.base import Device, Driver
from gsaas.remoting.daemon import HTTP2, PER_LEASE, Recipe


class Lupine(Driver):
    """One list of addresses, and settings without which the shim misbehaves inside a server."""

    name = "lupine"
    default_port = 14833
    max_devices = 7
    limit_reason = "its client has address space for no more, and drops the rest without a word"
    library_path = "/opt/lupine/lib"
    own_variables = ("LUPINE_SERVER", "LUPINE_SESSION", "LUPINE_DISABLE_LOCAL")
    recipe = Recipe(
        command="./lupine_driver_server",
        environment={
            "LUPINE_PORT": "{port}",
            "LUPINE_LOG_LEVEL": "error",
            "CUDA_VISIBLE_DEVICES": "{gpu_uuid}",
        },
        folder="/opt/lupine/bin",
        health=HTTP2,  # a bare connection would leave a process behind for ever
        life=PER_LEASE,
    )

    def variables(self, lease_id: str, devices: Sequence[Device]) -> dict[str, str]:
        """`LUPINE_SERVER` and the rest; `LUPINE_LOG_LEVEL` is the one operators may override."""
        return {
            # No space, no empty item: each would be taken for a server, and waited for.
            "LUPINE_SERVER": ",".join(str(device.address) for device in devices),
            "LUPINE_SESSION": lease_id,
            # Installed as the system's own libcuda, the shim looks for a local GPU in itself and
            # crashes.
            "LUPINE_DISABLE_LOCAL": "1",
            "LUPINE_LOG_LEVEL": "error",  # its default, debug, writes into every program's output
        }
