"""A middleware that computes nothing and only says which GPU answered, to show and to test with.

The environment is rCUDA's, so that what is demonstrated is what rCUDA users will see. No client
library is involved; connect to a masked address with anything that speaks TCP and read one line of
JSON.

    python -m gsaas.standalone.simulated_middleware --gpu GPU-8f6a… --host gpu01 --listen 192.0.2.7:8308
"""

from __future__ import annotations

from gsaas.remoting.daemon import PER_GPU, SIMULATED, DaemonTemplate
from gsaas.remoting.rcuda import Rcuda


class SimulatedMiddleware(Rcuda):
    """rCUDA's variables without its libraries."""

    name = "simulated"
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
