# SPDX-License-Identifier: Apache-2.0
"""LUPINE (Apache-2.0, once SCUDA): the CUDA driver API over a TCP connection per process and daemon.

What an operator should know of it, as seen with its release of August 2026:

* A program sees at most 7 cGPUs, and silently no more; larger requests are refused.
* An entry of `LUPINE_SERVER` that does not answer delays every program by 30 seconds or more and is then left out of
  the numbering. GSaaS therefore gives this environment out only after the lease's GPUs can be reached.
* When a cGPU moves to another GPU its connections are cut and a running program gets error 46 for
  that device, for ever. It has to start again; a new process finds the new GPU.
* The client's shim ignores `CUDA_VISIBLE_DEVICES`; choose devices by their number.
* Two threads that copy in opposite directions over one connection can block each other for minutes.
* Device pointers pass through unchanged, and the client finds the device by the pointer alone. If
  two daemons return the same pointer, one cGPU's data may be read from the other. Whether real
  drivers ever do is not known. So one daemon serves all cGPUs of a lease, where CUDA itself keeps the
  pointers of its devices apart: they are on one host, each on a GPU of its own, and restart together.
  `[remoting]several_daemons` says that `gsaas-manage prove` has found no equal pointers with your
  driver; then each cGPU has a daemon of its own, on any host.
* `fork()` after CUDA has started hangs the child, and a low `ulimit -v` makes every connection
  fail.

Nothing in the client limits memory in shared mode; the daemon's side of the GPU host does.
"""

from __future__ import annotations

from collections.abc import Sequence

from oslo_config import cfg

from gsaas.exceptions import RemotingLimit
from gsaas.objects.request import Request
from gsaas.remoting.base import ClientDevice, RemotingDriver
from gsaas.remoting.daemon import HTTP2, PER_LEASE, DaemonTemplate

SEVERAL_DAEMONS = (
    "each GPU has a daemon of its own here, and two daemons that return the same device pointer would make a program "
    "read the data of another cGPU; your operator may allow it after a test of the GPUs' driver"
)
"""Why a lease may have one cGPU only where daemons serve GPUs and not leases, as the end of a sentence."""


class Lupine(RemotingDriver):
    """`LUPINE_SERVER`, a list of addresses, and settings without which the shim fails inside a server."""

    name = "lupine"
    default_port = 14833
    max_devices = 7
    limit_reason = "its client has address space for no more, and silently drops the rest"
    library_path = "/opt/lupine/lib"
    own_variables = ("LUPINE_SERVER", "LUPINE_SESSION", "LUPINE_DISABLE_LOCAL")
    daemon_template = DaemonTemplate(
        command="./lupine_driver_server",
        environment={
            "LUPINE_PORT": "{port}",
            "LUPINE_LOG_LEVEL": "error",
            "CUDA_VISIBLE_DEVICES": "{gpu_uuids}",
        },
        folder="/opt/lupine/bin",
        health=HTTP2,  # the daemon keeps a process for each bare TCP connection, for ever
        life=PER_LEASE,
    )

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        """Raises `ValueError` as `RemotingDriver` does."""
        super().__init__(conf)
        self.one_daemon = not conf.remoting.several_daemons

    def adapt(self, request: Request) -> Request:
        """Refuse several cGPUs also where several daemons would have to serve them, unless the operator allows that."""
        if request.count > 1 and self.one_daemon and not self.daemon_ports:
            raise RemotingLimit(driver=self.name, limit=1, count=request.count, why=SEVERAL_DAEMONS)
        return super().adapt(request)

    def variables(self, lease_id: str, devices: Sequence[ClientDevice]) -> dict[str, str]:
        """Return `LUPINE_SERVER` and the settings; operators may override only `LUPINE_LOG_LEVEL`."""
        return {
            # No space and no empty item: the shim takes each for a server and waits for it. A server has all devices
            # of its daemon, so it is named once.
            "LUPINE_SERVER": ",".join(
                str(device.address) for device in devices if device.number == 0
            ),
            "LUPINE_SESSION": lease_id,
            # Where the shim is installed as the system's libcuda, it would load itself to find local GPUs, and crash.
            "LUPINE_DISABLE_LOCAL": "1",
            "LUPINE_LOG_LEVEL": "error",  # its default, debug, writes into every program's output
        }
