# SPDX-License-Identifier: Apache-2.0
"""A middleware whose daemons listen on two ports: its consumers reach both, and nothing else."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.kernel.standalone.cloud import HOSTS, Cloud
from tests.kernel.standalone.test_own_daemons import admitted, listening
from tests.kernel.standalone.test_standalone_leases import alloc, greeting, show_grant
from tests.support.packages import NEEDS_PIP, install
from tests.support.waiting import until

pytestmark = [pytest.mark.kernel, NEEDS_PIP]

PROJECT = """\
[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"
[project]
name = "gsaas-twin"
version = "1.0"
[project.entry-points."gsaas.remoting"]
twin = "gsaas_twin:Twin"
[tool.setuptools]
py-modules = ["gsaas_twin"]
"""
MODULE = """\
from gsaas.remoting.base import RemotingDriver
from gsaas.remoting.daemon import LISTENS, PER_LEASE, DaemonTemplate

class Twin(RemotingDriver):
    name = "twin"
    default_port = 7000
    daemon_template = DaemonTemplate(command="twin", health=LISTENS, life=PER_LEASE, ports=2)

    def variables(self, lease_id, devices):
        return {"TWIN": ",".join(str(device.address) for device in devices)}
"""
SERVER = """\
import json, select, socket, sys
address, port, gpu = sys.argv[1:]
# The one that is looked for comes last: then both are there.
listeners = [socket.create_server((address, int(port) + number)) for number in (1, 0)]
while True:
    for listener in select.select(listeners, [], [])[0]:
        connection, _ = listener.accept()
        with connection:
            hello = {"gpu": gpu, "port": listener.getsockname()[1]}
            connection.sendall(json.dumps(hello).encode() + b"\\n")
"""
CONFIGURATION = """\
[remoting]
driver = twin
[daemons]
life = {life}
lease_ports = 20000-20007
folder = /
command = {python} -ES {server} {{address}} {{port}} {{gpu_uuid}}
memory_limit = none
"""
REFUSED = "ConnectionRefusedError"


@pytest.fixture(scope="module")
def installed(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("package")
    return install(folder, {"pyproject.toml": PROJECT, "gsaas_twin.py": MODULE})


@pytest.fixture
def begin(make_cloud, installed, tmp_path):
    """A function that starts a cloud whose daemons serve leases or whole GPUs."""

    def begin(life: str) -> Cloud:
        server = tmp_path / "server.py"
        server.write_text(SERVER)
        cloud = make_cloud()
        words = {"life": life, "python": sys.executable, "server": server}
        with cloud.config.open("a", encoding="utf-8") as file:
            file.write(CONFIGURATION.format(**words))
        cloud.environment = {"PYTHONPATH": str(installed)}
        cloud.start()
        return cloud

    return begin


def after(address: str, number: int) -> str:
    ip, _, port = address.rpartition(":")
    return f"{ip}:{int(port) + number}"


def check_both_ports(cloud: Cloud, lease: dict[str, Any]) -> None:
    """Check that the VM of a lease reaches both ports of each of its daemons, and not the third."""
    for device in lease["devices"]:
        masked, real = device["masked_address"], device["real_address"]
        for number in range(2):
            _, port = after(real, number).split(":")
            hello = {"gpu": device["gpu_uuid"], "port": int(port)}
            assert cloud.greeting(lease, after(masked, number)) == hello
        assert cloud.greeting(lease, after(masked, 2))["error"] == REFUSED


def mapped(cloud: Cloud) -> list[set[tuple[str, str]]]:
    """Return masked and real address of all mappings, as nft lists them, a set for each VM."""
    found: dict[tuple[str, str], set[tuple[str, str]]] = {}
    for host in HOSTS:
        command = ["ip", "netns", "exec", cloud.prefix + host, "nft", "-j", "list", "map", "ip"]
        listed = subprocess.run(
            [*command, "rodvr", "real"], check=False, capture_output=True, text=True
        )
        for item in json.loads(listed.stdout or "{}").get("nftables", []):
            for key, value in item.get("map", {}).get("elem", []):
                identity, ip, port = key["concat"]
                real = "{}:{}".format(*value["concat"])
                found.setdefault((host, identity), set()).add((f"{ip}:{port}", real))
    return sorted(found.values(), key=len)


def pairs(lease: dict[str, Any]) -> set[tuple[str, str]]:
    """Return the mappings that a lease has to have."""
    return {
        (after(device["masked_address"], number), after(device["real_address"], number))
        for device in lease["devices"]
        for number in range(2)
    }


def real_ports(host: str, *leases: dict[str, Any]) -> set[int]:
    """Return the ports of leases' daemons on a host."""
    addresses = [real for lease in leases for _, real in pairs(lease)]
    hosts = {
        device["real_address"].split(":")[0]: device["gpu_host"]
        for lease in leases
        for device in lease["devices"]
    }
    return {int(port) for ip, port in (each.split(":") for each in addresses) if hosts[ip] == host}


def test_a_vm_reaches_both_ports_of_its_daemons_and_no_third_one(begin):
    cloud = begin("per-lease")
    lease = cloud.launch(count=2, mode="shared", memory_mb=512)
    other = cloud.launch(count=1, mode="shared", memory_mb=512)
    for each in (lease, other):
        check_both_ports(cloud, each)
    assert mapped(cloud) == [pairs(other), pairs(lease)]
    for host in ("gpu1", "gpu2"):
        ports = real_ports(host, lease, other)
        assert {port for _, port in admitted(cloud, host)} == ports
        assert {port for port in listening(cloud, host) if port >= 20000} == ports

    cloud.terminate(lease)

    check_both_ports(cloud, other)
    assert mapped(cloud) == [pairs(other)]
    cloud.terminate(other)
    assert mapped(cloud) == []
    assert [admitted(cloud, host) for host in ("gpu1", "gpu2")] == [set(), set()]


def test_the_vm_of_another_lease_reaches_neither_port(begin):
    cloud = begin("per-lease")
    lease, other = (cloud.launch(count=count, mode="shared", memory_mb=512) for count in (2, 1))
    first, second = lease["devices"]
    (own,) = other["devices"]
    for number in range(2):
        # Both VMs have this address, and each reaches its own daemon there.
        assert after(first["masked_address"], number) == after(own["masked_address"], number)
        answer = cloud.greeting(other, after(own["masked_address"], number))
        assert f":{answer['port']}" == after(own["real_address"], number)[-6:]
        refused = cloud.greeting(other, after(second["masked_address"], number))
        assert refused["error"] == REFUSED
        for device in lease["devices"]:
            assert "error" in cloud.greeting(other, after(device["real_address"], number))
            at = {*HOSTS} - {device["gpu_host"], lease["server"]["host"], other["server"]["host"]}
            for host in at:
                answer = greeting(cloud, host, after(device["real_address"], number))
                assert answer["error"] == REFUSED


def test_no_more_daemons_begin_than_have_all_their_ports(begin):
    """Each host has eight ports."""
    cloud = begin("per-lease")
    cloud.launch(count=8, mode="shared", memory_mb=512)
    request = {"lease": {"cgpus": {"count": 1, "mode": "shared", "memory_mb": 512}}}
    status, refusal = cloud.call("POST", "/v1/leases", request)
    assert (status, refusal["errors"][0]["code"]) == (409, "gsaas.capacity.ports")


def test_programs_of_a_compute_host_reach_both_ports_by_masked_addresses(begin):
    cloud = begin("per-lease")
    lease = cloud.await_status(alloc(cloud, host="compute1", uid=1234)["lease"], "ACTIVE")
    (device,) = lease["devices"]
    for number in range(2):
        masked, real = (after(device[f"{each}_address"], number) for each in ("masked", "real"))
        answer = greeting(cloud, "compute1", masked, 1234)
        assert answer == {"gpu": device["gpu_uuid"], "port": int(real.split(":")[1])}
        assert greeting(cloud, "compute1", masked)["error"] == REFUSED, "another user"
    third = after(device["masked_address"], 2)
    assert greeting(cloud, "compute1", third, 1234)["error"] == REFUSED
    cloud.terminate(lease)
    for number in range(2):
        gone = greeting(cloud, "compute1", after(device["masked_address"], number), 1234)
        assert gone["error"] == REFUSED


def test_who_has_redeemed_a_grant_reaches_both_ports(begin):
    cloud = begin("per-lease")
    lease = cloud.await_status(alloc(cloud)["lease"], "ACTIVE")
    _, answer = cloud.call("GET", f"/v1/leases/{lease['id']}/environment")
    (device,) = lease["devices"]
    real = [after(device["real_address"], number) for number in range(2)]
    assert [greeting(cloud, "compute1", each).get("error") for each in real] == [REFUSED] * 2

    show_grant(cloud, "compute1", answer["environment"])

    assert {greeting(cloud, "compute1", each)["gpu"] for each in real} == {device["gpu_uuid"]}
    assert {address for address, _ in admitted(cloud, device["gpu_host"])} == {"192.168.50.21"}
    cloud.terminate(lease)
    assert admitted(cloud, device["gpu_host"]) == set()


def all_can_be_had(cloud: Cloud) -> bool:
    """Return whether no GPU is withdrawn, as each is until its daemon answers."""
    _, body = cloud.call("GET", "/v1/gpus")
    return bool(body["gpus"]) and all(gpu["withdrawn"] is None for gpu in body["gpus"])


def test_the_daemons_of_whole_gpus_have_two_ports_each(begin):
    cloud = begin("per-gpu")
    until(lambda: all_can_be_had(cloud), "the daemons of all GPUs")
    lease = cloud.launch(count=2, hosts="one")
    check_both_ports(cloud, lease)
    (host,) = {device["gpu_host"] for device in lease["devices"]}
    until(
        lambda: (
            {port for port in listening(cloud, host) if 7000 <= port < 8000} == {*range(7000, 7008)}
        ),
        "two ports of each of four daemons",
    )
    assert {port for _, port in admitted(cloud, host)} == real_ports(host, lease)
    assert mapped(cloud) == [pairs(lease)]
