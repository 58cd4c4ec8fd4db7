# SPDX-License-Identifier: Apache-2.0
"""Boots on `gsaas-standalone`, with hosts as in the published measurements. VMs are namespaces and boot at once."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from bench import boots
from bench.boots import Boot, BootTarget
from gsaasclient import Client, Credentials
from tests.support.waiting import until

INVENTORY = """\
gpu_network = "192.168.50.0/24"

[[hosts]]
name = "compute-gpu"
gpu_address = "192.168.50.11"
compute = false
gpus = 4
model = "Quadro M4000"
memory_mb = 8192
""" + "".join(
    f'\n[[hosts]]\nname = "compute{number}-rgpu"\ngpu_address = "192.168.50.{21 + number}"\n'
    for number in range(3)
)
"""One host with four GPUs, and three for VMs."""


class StandaloneTarget(BootTarget):
    """A running `gsaas-standalone`."""

    name = "standalone"

    def __init__(self, client: Client) -> None:
        self._client = client

    def boot(self, cgpus: int) -> Boot:
        booted = self._launch(cgpus)
        self.clear()
        return booted

    def add(self) -> Boot:
        return self._launch(1)

    def clear(self) -> None:
        leases = self._client.request("GET", "/v1/leases")["leases"]
        for lease in leases:
            self._client.request("DELETE", f"/v1/leases/{lease['id']}")
        for lease in leases:
            until(partial(self._has_status, lease["id"], "RELEASED"), "the end of a VM")

    def _launch(self, cgpus: int) -> Boot:
        begun = time.perf_counter()
        lease = {"cgpus": boots.cgpus_request(cgpus), "server": {}}
        lease_id = self._client.launch(lease)["lease"]["id"]
        until(partial(self._has_status, lease_id, "ACTIVE"), "the VM and its GPUs")
        seconds = time.perf_counter() - begun
        shown = self._client.request("GET", f"/v1/leases/{lease_id}")["lease"]
        return Boot(seconds, boots.phases(shown))

    def _has_status(self, lease_id: str, status: str) -> bool:
        lease = self._client.request("GET", f"/v1/leases/{lease_id}")["lease"]
        return bool(lease["status"] == status)


@contextmanager
def running() -> Iterator[StandaloneTarget]:
    """Start `gsaas-standalone` and yield it; afterwards end it and remove all that it made.

    Raises `SystemExit` if this process is not root.
    """
    if os.geteuid() != 0:
        raise SystemExit("this benchmark makes network namespaces: run it as root")
    with tempfile.TemporaryDirectory(prefix="gsaas-bench-") as folder:
        inventory = Path(folder, "inventory.toml")
        inventory.write_text(INVENTORY, encoding="utf-8")
        state = Path(folder, "state")
        command = [
            *(sys.executable, "-m", "gsaas.cli.standalone", f"--inventory={inventory}"),
            *(f"--state-dir={state}", f"--prefix=boot{os.getpid()}-", "--listen=127.0.0.1:0"),
            f"--log-file={folder}/log",
        ]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            assert line.startswith("ready:"), Path(folder, "log").read_text(encoding="utf-8")
            yield StandaloneTarget(Client(Credentials.read(state / "credentials.json")))
        finally:
            process.terminate()
            process.communicate()
            subprocess.run([*command, "--clean"], check=True)
