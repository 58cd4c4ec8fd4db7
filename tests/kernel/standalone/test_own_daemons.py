# SPDX-License-Identifier: Apache-2.0
"""gsaas-standalone with a daemon for each cGPU: the daemons start and end with their leases."""

from __future__ import annotations

import json
import subprocess

import pytest

from tests.kernel.standalone.cloud import HOSTS, Cloud, ip
from tests.support.waiting import until

pytestmark = pytest.mark.kernel


@pytest.fixture
def cloud(make_cloud) -> Cloud:
    cloud = make_cloud()
    with cloud.config.open("a", encoding="utf-8") as file:
        file.write("[daemons]\nlife = per-lease\nlease_ports = 20000-20999\n")
    cloud.start()
    return cloud


def listening(cloud: Cloud, host: str) -> set[int]:
    """Return the TCP ports of a host on which a program listens, as `ss` lists them."""
    command = ["ip", "netns", "exec", cloud.prefix + host, "ss", "-Htln"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return {int(line.split()[3].rpartition(":")[2]) for line in done.stdout.splitlines()}


def admitted(cloud: Cloud, host: str) -> set[tuple[str, int]]:
    """Return the addresses and ports that the fence of a host admits."""
    command = ["ip", "netns", "exec", cloud.prefix + host, "nft", "-j", "list", "set", "inet"]
    done = subprocess.run(
        [*command, "gsaas_fence", "admitted"], check=True, capture_output=True, text=True
    )
    elements = json.loads(done.stdout)["nftables"][1]["set"].get("elem", [])
    return {tuple(element["concat"]) for element in elements}


def all_daemons(cloud: Cloud) -> set[tuple[str, int]]:
    """Return the GPU host and the port of every daemon."""
    return {(host, port) for host in HOSTS for port in listening(cloud, host) if port >= 20000}


def test_two_leases_on_one_gpu_have_separate_daemons_that_end_with_them(cloud):
    leases = [cloud.launch(count=2, mode="shared", memory_mb=512) for _ in range(2)]
    real = [device["real_address"] for lease in leases for device in lease["devices"]]
    assert len(set(real)) == 4
    assert len(all_daemons(cloud)) == 4
    for lease in leases:
        cloud.check_reach(lease)
    cloud.terminate(leases[0])
    assert len(all_daemons(cloud)) == 2
    cloud.check_reach(leases[1])
    cloud.terminate(leases[1])
    assert all_daemons(cloud) == set()
    assert [admitted(cloud, host) for host in ("gpu1", "gpu2")] == [set(), set()]


def test_a_compute_host_reaches_the_daemons_of_its_own_leases_only(cloud):
    lease = cloud.launch(count=1, mode="shared", memory_mb=512, locality="remote")
    (device,) = lease["devices"]
    address, _, port = device["real_address"].rpartition(":")
    at = lease["server"]["host"]
    for host in HOSTS:
        if host == device["gpu_host"]:
            continue
        command = ["ip", "netns", "exec", cloud.prefix + host]
        program = (
            "import socket, sys\n"
            "try: socket.create_connection((sys.argv[1], int(sys.argv[2])), 5); print('in')\n"
            "except ConnectionRefusedError: print('refused')\n"
        )
        command = [*command, "/usr/bin/python3", "-c", program, address, port]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        assert done.stdout.strip() == ("in" if host == at else "refused"), host


def test_a_start_after_a_kill_restarts_every_daemon_at_its_address(cloud):
    leases = [cloud.launch(count=2, mode="shared", memory_mb=512) for _ in range(2)]
    before = all_daemons(cloud)
    cloud.kill()
    assert all_daemons(cloud) == set()  # simulated daemons end with their process
    cloud.start()
    until(lambda: all_daemons(cloud) == before, "the daemons")
    for lease in leases:
        cloud.check_reach(lease)


def test_a_local_lease_reaches_its_daemon_through_the_fence(cloud):
    lease = cloud.launch(count=1, mode="shared", memory_mb=512, locality="local")
    assert lease["server"]["host"] == lease["devices"][0]["gpu_host"]
    cloud.check_reach(lease)
    assert ip("-n", cloud.prefix + lease["server"]["host"], "link", "show", "rodvr1")
