# SPDX-License-Identifier: Apache-2.0
"""`python -m tests.support.nvml.look`: print, as JSON, what a monitor of this machine would report."""

from __future__ import annotations

import json
import os

from gsaas.gpu_host.sources import xids
from gsaas.gpu_host.sources.nvml import Nvml
from gsaas.objects.gpu_report import GpuReport


def main() -> None:
    xids.WAIT_MS = 20  # how soon its thread ends
    source = Nvml(
        range(8308, 9000), fatal_xids=[79], visible_devices=os.environ.get("CUDA_VISIBLE_DEVICES")
    )
    print(json.dumps(GpuReport("192.0.2.1", 10.0, source.snapshot()).to_dict()))  # noqa: T201
    source.close()


if __name__ == "__main__":
    main()
