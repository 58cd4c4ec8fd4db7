"""`gsaas-standalone` with so many GPUs, its database on disk: the whole service in one process."""

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

PER_HOST = 64
MEMORY_MB = 8192
HZ = os.sysconf("SC_CLK_TCK")


@dataclass
class Service:
    """A service that runs, and the credentials file for it."""

    credentials: Path
    pid: int

    def environment(self) -> dict[str, str]:
        return {**os.environ, "GSAAS_CREDENTIALS": str(self.credentials)}

    def cpu_seconds(self) -> float:
        """CPU time that it has used so far."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / HZ

    def memory_mb(self) -> float:
        """Of its own: what it does not share with others, in MiB."""
        rollup = Path(f"/proc/{self.pid}/smaps_rollup").read_text()
        kilobytes = re.findall(r"^Private_\w+: +(\d+) kB$", rollup, re.MULTILINE)
        return sum(map(int, kilobytes)) / 1024


@contextmanager
def running(gpus: int) -> Iterator[Service]:
    """A service with *gpus* GPUs, of which nothing is left afterwards."""
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
        try:
            line = process.stdout.readline()
            assert line.startswith("ready:"), Path(folder, "log").read_text(encoding="utf-8")
            yield Service(state / "credentials.json", process.pid)
        finally:
            process.terminate()
            process.communicate()
            subprocess.run([*command, "--clean"], check=True)


def _inventory(gpus: int) -> str:
    hosts = [
        f'[[hosts]]\nname = "gpu{number}"\ngpu_address = "192.168.50.{number + 1}"\ncompute = false\n'
        f'gpus = {min(PER_HOST, gpus)}\nmodel = "made up"\nmemory_mb = {MEMORY_MB}\n'
        for number in range(max(1, gpus // PER_HOST))
    ]
    return "\n".join(['gpu_network = "192.168.50.0/24"\n', *hosts])
