# SPDX-License-Identifier: Apache-2.0
"""A middleware that computes nothing and only sends the name of the GPU, for demonstrations and tests.

The environment of its leases is rCUDA's, so a demonstration shows what rCUDA's users see. There is no client library:
connect to a masked address over TCP and read one line of JSON.

    python -m gsaas.standalone.simulated_middleware --gpu GPU-8f6a… --host gpu01 --listen 192.0.2.7:8308
"""

from __future__ import annotations

from gsaas.objects.device_kinds import KINDS
from gsaas.remoting.daemon import PER_GPU, SIMULATED, DaemonTemplate
from gsaas.remoting.rcuda import Rcuda


class SimulatedMiddleware(Rcuda):
    """rCUDA's environment variables, without its libraries, and daemons that compute nothing."""

    name = "simulated"
    kinds = KINDS
    library_path = ""
    daemon_template = DaemonTemplate(
        command="{python} -m gsaas.standalone.simulated_middleware"
        " --gpu {gpu_uuid} --host {host} --listen {address}:{port}",
        health=SIMULATED,
        life=PER_GPU,
        uses_gpu=False,
    )


if __name__ == "__main__":
    from gsaas.standalone.simulated_daemon import main

    main()
