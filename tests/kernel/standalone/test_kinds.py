# SPDX-License-Identifier: Apache-2.0
"""GPUs and CPU devices side by side: a lease has devices of its kind, reached through the middleware of that kind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from gsaas.standalone.demo.user import MATRICES
from tests.kernel.standalone.cloud import Cloud

pytestmark = pytest.mark.kernel

CONFIGURATION = """\
[remoting]
cpu_driver = tvm
[daemons]
lease_ports = 20000-20999
start_timeout = 240
tmp_mb = 64
[standalone]
inventory = {inventory}
"""
INVENTORY = """\
gpu_network = "192.168.50.0/24"
[[hosts]]
name = "gpu1"
gpu_address = "192.168.50.11"
kind = "cpu"
gpus = 2
memory_mb = 1024
[[hosts]]
name = "gpu2"
gpu_address = "192.168.50.12"
gpus = 2
[[hosts]]
name = "compute1"
gpu_address = "192.168.50.21"
"""
SHARED = {"count": 2, "mode": "shared", "memory_mb": 256}


@pytest.fixture(scope="module")
def cloud(tmp_path_factory) -> Iterator[Cloud]:
    folder = tmp_path_factory.mktemp("kinds")
    inventory = folder / "inventory.toml"
    inventory.write_text(INVENTORY, encoding="utf-8")
    cloud = Cloud(folder)
    with cloud.config.open("a", encoding="utf-8") as file:
        file.write(CONFIGURATION.format(inventory=inventory))
    try:
        cloud.start()
        yield cloud
    finally:
        cloud.remove()


def launch(cloud: Cloud, **cgpus: Any) -> dict[str, Any]:
    body = {"lease": {"cgpus": cgpus}}
    status, answer = cloud.call("POST", "/v1/leases", body, version="1.9")
    assert status == 202, answer
    return cloud.await_status(answer["lease"], "ACTIVE")


def environment(cloud: Cloud, lease: dict[str, Any]) -> dict[str, str]:
    _, body = cloud.call("GET", f"/v1/leases/{lease['id']}/environment")
    found: dict[str, str] = body["environment"]
    return found


def multiply(cloud: Cloud, lease: dict[str, Any]) -> list[dict[str, Any]]:
    """Multiply in the VM of a lease, on each of its cGPUs; return what the program tells of each."""
    done = subprocess.run(
        [*("ip", "netns", "exec", cloud.vm(lease), sys.executable), MATRICES, "--rounds=3"],
        env={**os.environ, **environment(cloud, lease), "OPENBLAS_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def test_one_lease_of_each_kind_has_its_own_devices_middleware_and_environment(cloud):
    cuda, cpu = launch(cloud, **SHARED), launch(cloud, kind="cpu", **SHARED)
    assert {device["gpu_host"] for device in cuda["devices"]} == {"gpu2"}
    assert {device["gpu_host"] for device in cpu["devices"]} == {"gpu1"}
    assert environment(cloud, cuda)["RCUDA_DEVICE_0"] == "169.254.71.1:0"
    assert environment(cloud, cpu) == {
        "TVM_RPC_SERVER_0": "169.254.71.1:9090",
        "TVM_RPC_SERVER_1": "169.254.71.2:9090",
    }
    cloud.check_reach(cuda)
    results = multiply(cloud, cpu)
    assert [each["products"] for each in results] == [3, 3]
    assert max(each["largest_error"] for each in results) < 1e-3
    cloud.check_nothing_is_leaked([cuda, cpu])
    for lease in (cuda, cpu):
        cloud.terminate(lease)
    cloud.check_nothing_is_leaked([])


def test_a_kind_that_is_used_up_is_not_replaced_by_the_other(cloud):
    launch(cloud, count=2)
    status, body = cloud.call("POST", "/v1/leases", {"lease": {"cgpus": {"count": 1}}})
    assert (status, body["errors"][0]["code"]) == (409, "gsaas.capacity.busy")
    launch(cloud, count=2, kind="cpu")


def test_a_host_whose_kind_no_middleware_serves_is_refused_at_the_start(tmp_path):
    inventory = tmp_path / "inventory.toml"
    inventory.write_text(INVENTORY, encoding="utf-8")
    cloud = Cloud(tmp_path)
    with cloud.config.open("a", encoding="utf-8") as file:
        file.write(f"[remoting]\ndriver = rcuda\n[standalone]\ninventory = {inventory}\n")
    ended = cloud.run()
    assert ended.returncode == 1
    assert "gpu1 has devices of kind cpu, which [remoting]driver does not serve" in ended.stderr
    cloud.remove()
