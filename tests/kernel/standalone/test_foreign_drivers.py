# SPDX-License-Identifier: Apache-2.0
"""Remoting drivers of other packages serve leases once they are installed: the examples of the operators' guide."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from tests.kernel.standalone.cloud import Cloud
from tests.support.packages import NEEDS_PIP, install

pytestmark = [pytest.mark.kernel, NEEDS_PIP]

GUIDE = Path(__file__).parents[3] / "doc" / "gpu-hosts.md"
CONFIGURATION = """\
[remoting]
driver = {driver}
[daemons]
folder = {folder}
memory_limit = none
"""
GVIRTUS = """\
#!{python} -ES
import json, os, socket, sys
with open(sys.argv[1]) as file:
    endpoint = json.load(file)["communicator"][0]["endpoint"]
listener = socket.create_server((endpoint["server_address"], int(endpoint["port"])))
while True:
    connection, _ = listener.accept()
    with connection:
        hello = {{"gpu": os.environ["CUDA_VISIBLE_DEVICES"], "home": os.environ["GVIRTUS_HOME"]}}
        connection.sendall(json.dumps(hello).encode() + b"\\n")
"""
POCL = """\
#!{python} -ES
import json, os, select, socket, sys
_, address, _, port = sys.argv[1:]
listeners = [socket.create_server((address, int(port) + number)) for number in range(3)]
while True:
    for listener in select.select(listeners, [], [])[0]:
        connection, _ = listener.accept()
        with connection:
            hello = {{"gpu": os.environ["CUDA_VISIBLE_DEVICES"], "number": listeners.index(listener)}}
            connection.sendall(json.dumps(hello).encode() + b"\\n")
"""


def blocks(language: str) -> list[str]:
    """Return the listings of the guide's section in a language."""
    guide = GUIDE.read_text(encoding="utf-8").partition("## A middleware of your own")[2]
    return re.findall(rf"```{language}\n(.*?)```", guide, re.DOTALL)


@pytest.fixture
def begin(make_cloud, tmp_path):
    """A function that starts a cloud with the driver of a package, and a stand-in as its daemon."""

    def begin(driver: str, files: dict[str, str], program: str, stand_in: str) -> Cloud:
        daemon = tmp_path / program
        daemon.parent.mkdir(exist_ok=True)
        daemon.write_text(stand_in.format(python=sys.executable))
        daemon.chmod(0o755)
        cloud = make_cloud()
        with cloud.config.open("a", encoding="utf-8") as file:
            file.write(CONFIGURATION.format(driver=driver, folder=tmp_path))
        cloud.environment = {"PYTHONPATH": str(install(tmp_path / "package", files))}
        cloud.start()
        return cloud

    return begin


def test_a_driver_of_another_package_serves_leases(begin, tmp_path):
    files = {"pyproject.toml": blocks("toml")[0], "gsaas_gvirtus.py": blocks("python")[0]}
    cloud = begin("gvirtus", files, "bin/gvirtus-backend", GVIRTUS)
    lease = cloud.launch(count=1, mode="shared", memory_mb=512)
    (device,) = lease["devices"]
    assert device["masked_address"] == "169.254.71.1:9999", "the one in the image of its VMs"
    assert cloud.greeting(lease, device["masked_address"]) == {
        "gpu": device["gpu_uuid"],
        "home": str(tmp_path),
    }
    _, answer = cloud.call("GET", f"/v1/leases/{lease['id']}/environment")
    assert answer["environment"] == {
        "GVIRTUS_CONFIG": "/etc/gvirtus/properties.json",
        "LD_LIBRARY_PATH": "/opt/gvirtus/lib:/opt/gvirtus/lib/frontend",
    }
    two = {"lease": {"cgpus": {"count": 2, "mode": "shared", "memory_mb": 512}}}
    status, refusal = cloud.call("POST", "/v1/leases", two)
    assert status == 400
    assert "its client's file has one endpoint" in refusal["errors"][0]["detail"]


def test_a_driver_of_another_package_may_have_daemons_with_three_ports(begin):
    named = blocks("toml")[0].replace("gvirtus", "pocl").replace("GVirtuS", "PoCL")
    files = {"pyproject.toml": named, "gsaas_pocl.py": blocks("python")[1]}
    cloud = begin("pocl", files, "pocld", POCL)
    lease = cloud.launch(count=1, mode="shared", memory_mb=512)
    (device,) = lease["devices"]
    assert device["masked_address"] == "169.254.71.1:10998"
    for number in range(3):
        hello = {"gpu": device["gpu_uuid"], "number": number}
        assert cloud.greeting(lease, f"169.254.71.1:{10998 + number}") == hello
    assert cloud.greeting(lease, "169.254.71.1:11001")["error"] == "ConnectionRefusedError"
    _, answer = cloud.call("GET", f"/v1/leases/{lease['id']}/environment")
    assert answer["environment"] == {
        "POCL_DEVICES": "remote",
        "POCL_REMOTE0_PARAMETERS": "169.254.71.1:10998/0",
    }
    assert "ports_per_daemon" not in lease["cgpus"], "nobody asked for it"
