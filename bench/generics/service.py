# SPDX-License-Identifier: Apache-2.0
"""`gsaas-standalone` with a given number of simulated GPUs, and its database on disk."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

GPUS_PER_HOST = 64
MEMORY_MB = 8192
HZ = os.sysconf("SC_CLK_TCK")


@dataclass
class RunningService:
    """A running service: the credentials file for its clients, and its process."""

    credentials: Path
    pid: int

    def environment(self) -> dict[str, str]:
        """Return the environment for the service's clients."""
        return {**os.environ, "GSAAS_CREDENTIALS": str(self.credentials)}

    def cpu_seconds(self) -> float:
        """Return the CPU time that the process has used so far, in seconds."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / HZ

    def memory_mb(self) -> float:
        """Return the private memory of the process, in MiB: what it does not share with other processes."""
        rollup = Path(f"/proc/{self.pid}/smaps_rollup").read_text()
        kilobytes = re.findall(r"^Private_\w+: +(\d+) kB$", rollup, re.MULTILINE)
        return sum(map(int, kilobytes)) / 1024


@contextmanager
def running(gpus: int) -> Iterator[RunningService]:
    """Start a service with *gpus* GPUs and yield it; afterwards end it and remove all that it made."""
    with tempfile.TemporaryDirectory(prefix="gsaas-bench-", dir="/var/tmp") as folder:
        inventory, config = Path(folder, "inventory.toml"), Path(folder, "gsaas.conf")
        inventory.write_text(_inventory(gpus), encoding="utf-8")
        config.write_text("[queue]\nlong_polls = 1100\n", encoding="utf-8")
        state = Path(folder, "state")
        command = [
            *(sys.executable, "-m", "gsaas.cli.standalone", f"--inventory={inventory}"),
            *(f"--state-dir={state}", f"--prefix=g{gpus}x{os.getpid()}-", "--listen=127.0.0.1:0"),
            *(f"--config-file={config}", f"--log-file={folder}/log"),
        ]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            assert line.startswith("ready:"), Path(folder, "log").read_text(encoding="utf-8")
            yield RunningService(state / "credentials.json", process.pid)
        finally:
            process.terminate()
            process.communicate()
            subprocess.run([*command, "--clean"], check=True)


def _inventory(gpus: int) -> str:
    hosts = [
        f'[[hosts]]\nname = "gpu{number}"\ngpu_address = "192.168.50.{number + 1}"\ncompute = false\n'
        f'gpus = {min(GPUS_PER_HOST, gpus)}\nmodel = "made up"\nmemory_mb = {MEMORY_MB}\n'
        for number in range(max(1, gpus // GPUS_PER_HOST))
    ]
    return "\n".join(['gpu_network = "192.168.50.0/24"\n', *hosts])
