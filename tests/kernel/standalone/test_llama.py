# SPDX-License-Identifier: Apache-2.0
"""llama.cpp runs a model that is larger than one cGPU on three of them, as doc/llm.md says: with the same tokens.

The devices are CPU devices, and the model's weights random numbers of a fixed seed.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.kernel.standalone.cloud import Cloud
from tests.support import llama
from tests.support.llama import Llama

pytestmark = pytest.mark.kernel

SHARE = 192
"""MiB of each cGPU."""
WIDTH, LAYERS, SEED = 512, 24, 20261127
"""384 MiB of weights: more than a cGPU and what its daemon has for itself."""
TEXT, COUNT = "A model that is larger than one GPU", 24
CONFIGURATION = """\
[remoting]
driver = ggml
[daemons]
lease_ports = 20000-20999
start_timeout = 240
tmp_mb = 64
command = {python} {server} --libraries {libraries} --threads 1 --host {{address}} --port {{port}}
folder = /
[standalone]
inventory = {inventory}
"""
INVENTORY = """\
gpu_network = "192.168.50.0/24"
[[hosts]]
name = "gpu1"
gpu_address = "192.168.50.11"
compute = false
kind = "cpu"
gpus = 2
memory_mb = 512
[[hosts]]
name = "gpu2"
gpu_address = "192.168.50.12"
compute = false
kind = "cpu"
gpus = 1
memory_mb = 512
[[hosts]]
name = "compute1"
gpu_address = "192.168.50.21"
"""


@dataclass(frozen=True)
class Site:
    """A cloud whose cGPUs compute, and a model."""

    cloud: Cloud
    llama: Llama
    model: Path

    def launch(self, count: int) -> dict[str, Any]:
        return self.cloud.launch(count=count, mode="shared", memory_mb=SHARE)

    def in_the_vm(self, lease: dict[str, Any]) -> tuple[dict[str, Any], str]:
        """Continue the text in the VM of a lease, on all its cGPUs; return what the program tells, and ggml."""
        status, body = self.cloud.call("GET", f"/v1/leases/{lease['id']}/environment")
        assert status == 200, body
        return self.run(body["environment"], ["ip", "netns", "exec", self.cloud.vm(lease)])

    def run(
        self, variables: Mapping[str, str] | None = None, prefix: Sequence[str] = ()
    ) -> tuple[dict[str, Any], str]:
        libraries = {"LD_LIBRARY_PATH": ""}  # the image of a VM has them where the lease says
        done = subprocess.run(
            [*prefix, *self.llama.command("llama_tokens.py", self.model, TEXT, str(COUNT))],
            env={**os.environ, **(variables or {}), **self.llama.environment, **libraries},
            check=False,
            capture_output=True,
            text=True,
        )
        lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
        assert lines, done.stderr[-2000:]
        return json.loads(lines[-1]), done.stderr


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Iterator[Site]:
    try:
        found = llama.available()
    except llama.NotAvailable as error:
        pytest.skip(str(error))
    folder = tmp_path_factory.mktemp("llama")
    model, inventory = folder / "model.gguf", folder / "inventory.toml"
    numbers = map(str, (WIDTH, LAYERS, SEED))
    subprocess.run(
        found.command("llama_model.py", model, *numbers),
        env={**os.environ, **found.environment},
        check=True,
    )
    inventory.write_text(INVENTORY)
    cloud = Cloud(folder)
    settings = CONFIGURATION.format(
        python=" ".join(found.python),
        server=llama.REPOSITORY / "gsaas/gpu_host/servers/ggml.py",
        libraries=found.libraries,
        inventory=inventory,
    )
    with cloud.config.open("a", encoding="utf-8") as file:
        file.write(settings)
    try:
        cloud.start()
        yield Site(cloud, found, model)
    finally:
        cloud.remove()
        model.unlink()


def test_a_model_larger_than_one_cgpu_answers_over_three_as_it_does_on_one_machine(site):
    local, _ = site.run()
    assert len(local["tokens"]) == COUNT
    lease = site.launch(3)
    remote, told = site.in_the_vm(lease)
    assert remote == local
    # What ggml tells: each cGPU has a part of the weights, and none has all of them.
    parts = {
        address: float(size)
        for address, size in re.findall(r"RPC\d+\[(\S+?)\] model buffer size = +(\S+) MiB", told)
    }
    assert set(parts) == {device["masked_address"] for device in lease["devices"]}
    assert all(0 < size < SHARE for size in parts.values())
    assert sum(parts.values()) > SHARE
    site.cloud.terminate(lease)


def test_a_model_larger_than_its_only_cgpu_is_refused_with_an_error(site):
    lease = site.launch(1)
    answer, told = site.in_the_vm(lease)
    assert "Failed to load model" in answer["error"], answer
    assert f"unable to allocate RPC0[{lease['devices'][0]['masked_address']}] buffer" in told
    site.cloud.terminate(lease)
