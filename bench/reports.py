# SPDX-License-Identifier: Apache-2.0
"""What 1,024 GPUs cost that report every 10 seconds: the engine's CPU time, and the monitor's memory.

Reports are decoded from JSON, validated and stored (SQLite). The CPU time of this process is measured, the median of
several rounds. For comparison: NGS, whose server kept everything in memory, published 11 % of a core.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bench.report import machine, median
from gsaas.context import RequestContext
from gsaas.db import migration
from gsaas.db.database import Database
from gsaas.engine.agents import Agents
from gsaas.engine.callers import Callers
from gsaas.engine.rpc_endpoint import RpcEndpoint
from gsaas.objects.gpu_report import GpuInfo, GpuReport
from gsaas.standalone.simulated_gpus import SimulatedGpus

GPUS, QUICK_GPUS = 1024, 32
GPUS_PER_HOST = (8, 16)
INTERVAL = 10.0
ROUNDS, QUICK_ROUNDS = 5, 1
NGS_PERCENT = 11
NO_CALLER = RequestContext(overwrite=False)


def run(quick: bool = False) -> dict[str, Any]:
    """Return the engine's CPU time by the number of GPUs per host, and the memory of a monitor."""
    gpus, rounds = (QUICK_GPUS, QUICK_ROUNDS) if quick else (GPUS, ROUNDS)
    rows = [_measure(gpus, per_host, rounds) for per_host in GPUS_PER_HOST]
    reach = [
        {
            "what": f"percent of a core, {row['gpus_per_host']} GPUs on a host",
            "value": row["percent_of_a_core"],
            "bound": f"<= {NGS_PERCENT}",
        }
        for row in rows
    ]
    agent = [{"process": "gsaas-monitor, loaded", "mib": _memory_of_a_monitor()}]
    return {"bench": "reports", "machine": machine(), "rows": [*rows, *agent], "reach": reach}


def _measure(gpus: int, per_host: int, rounds: int) -> dict[str, Any]:
    hosts = gpus // per_host
    texts = {f"gpu{number}": _report(number, per_host) for number in range(hosts)}
    with tempfile.TemporaryDirectory(prefix="gsaas-bench-") as folder:
        database = Database.open(f"sqlite:///{Path(folder, 'gsaas.db')}")
        migration.upgrade(database)
        # Reports of GPUs use neither the clients of endpoints nor those of monitors.
        unused: Any = None
        endpoint = RpcEndpoint(database, Agents(unused, unused), lambda _lease_id: None, Callers())
        taken = []
        for _ in range(1 + rounds):  # the first round creates the rows
            began = time.process_time()
            for host, text in texts.items():
                endpoint.monitor_report(NO_CALLER, host, json.loads(text))
            taken.append(time.process_time() - began)
        database.close()
    seconds = median(taken[1:])
    return {
        "gpus_per_host": per_host,
        "hosts": hosts,
        "ms_a_report": seconds / hosts * 1e3,
        "percent_of_a_core": 100 * seconds / INTERVAL,
    }


def _report(number: int, per_host: int) -> str:
    """Return the report of host *number* with *per_host* GPUs, as JSON."""
    gpus = [
        GpuInfo(f"GPU-{number:04}-{index}", index, "NVIDIA L4", 23034, 8308 + index)
        for index in range(per_host)
    ]
    address = f"192.0.{number // 256}.{number % 256}"
    source = SimulatedGpus(gpus, lambda: {gpu.uuid for gpu in gpus})
    return json.dumps(GpuReport(address, INTERVAL, source.snapshot()).to_dict())


def _memory_of_a_monitor() -> float:
    """Return the resident MiB of a process that has imported all that the monitor imports."""
    script = (
        "import gsaas.cli.monitor, gsaas.gpu_host.sources.nvml, os;"
        "print(int(open('/proc/self/statm').read().split()[1]) * os.sysconf('SC_PAGE_SIZE'))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], check=True, capture_output=True, text=True
    )
    return int(done.stdout) / 2**20
