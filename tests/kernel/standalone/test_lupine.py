# SPDX-License-Identifier: Apache-2.0
"""LUPINE's own server and client in gsaas-standalone, in front of the fake CUDA driver: the default for two cGPUs."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from gsaas.prove import program
from tests.kernel.standalone.cloud import Cloud
from tests.support import lupine
from tests.support.waiting import PATIENCE

pytestmark = pytest.mark.kernel

CONFIGURATION = """\
[remoting]
driver = lupine
library_path = {client}
[daemons]
folder = {server}
memory_limit = none
health = listens
environment = LD_LIBRARY_PATH:{driver},FAKE_CUDA_GPUS:{{gpu_uuids}}
"""


@pytest.fixture
def cloud(make_cloud) -> Cloud:
    try:
        built = lupine.built()
    except lupine.NotBuildable as reason:
        pytest.skip(str(reason))
    cloud = make_cloud()
    words = {"client": built.client, "server": built.server.parent, "driver": built.driver}
    with cloud.config.open("a", encoding="utf-8") as file:
        file.write(CONFIGURATION.format(**words))
    cloud.start()
    return cloud


def computed(cloud: Cloud, lease: dict, device: str) -> dict:
    """Return what a program in the VM finds that computes on one device of the lease."""
    _, answer = cloud.call("GET", f"/v1/leases/{lease['id']}/environment")
    command = ["ip", "netns", "exec", cloud.vm(lease), sys.executable, program.__file__]
    done = subprocess.run(
        [*command, "compute", device],
        env={**os.environ, **answer["environment"]},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    return json.loads(done.stdout.splitlines()[-1])


def test_a_program_computes_right_on_both_cgpus_of_a_lease(cloud):
    lease = cloud.launch(count=2, mode="shared", memory_mb=512)
    found = [computed(cloud, lease, device) for device in "01"]
    assert [(each.get("failed"), each.get("devices")) for each in found] == [([], 2)] * 2, found
    assert [each["uuid"] for each in found] == [each["gpu_uuid"] for each in lease["devices"]]
