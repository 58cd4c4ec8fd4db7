# SPDX-License-Identifier: Apache-2.0
"""A tenant's VMs reach exactly their own GPUs, from launch to release."""

from __future__ import annotations

import socket
import subprocess

import pytest

from gsaas.netlink.namespace import entered
from tests.kernel.standalone.cloud import ip, namespaces
from tests.support.waiting import until

pytestmark = pytest.mark.kernel

UNMAPPED = "169.254.71.200:8308"
REAL = "192.168.50.11:8308"


def test_each_masked_address_is_answered_by_the_gpu_that_was_claimed(cloud):
    lease = cloud.launch(count=2)
    assert len({device["gpu_uuid"] for device in lease["devices"]}) == 2
    cloud.check_reach(lease)
    cloud.check_nothing_is_leaked([lease])


def test_vms_with_the_same_address_each_reach_their_own_gpus(cloud):
    launched = [cloud.launch(count=2, mode="shared", memory_mb=2048) for _ in range(4)]
    for lease in launched:
        cloud.check_reach(lease)
    cloud.check_nothing_is_leaked(launched)


def test_an_unmapped_masked_address_is_refused_at_once_and_counted(cloud):
    lease = cloud.launch(count=1)
    assert cloud.greeting(lease, UNMAPPED)["error"] == "ConnectionRefusedError"
    counted = {"unmapped": 1, "refused": 0}
    until(lambda: cloud.lease(lease)["dropped_packets"] == counted, "the endpoint's report")


def test_a_connection_of_a_vm_is_in_the_readings_of_its_lease(cloud):
    lease = cloud.launch(count=1)
    (device,) = lease["devices"]
    program = cloud.keep_connection(lease, device["masked_address"])

    def path() -> dict | None:
        status, answer = cloud.call("GET", f"/v1/leases/{lease['id']}/readings", version="1.5")
        assert status == 200
        return next((each["path"] for each in answer["readings"]["series"][0]["points"]), None)

    try:
        until(path, "a report of what passed the path")
        assert path()["connections"] == 1
    finally:
        program.terminate()
        program.wait()


def test_a_vm_cannot_reach_a_gpu_host_by_its_real_address(cloud):
    lease = cloud.launch(count=1)
    assert cloud.greeting(lease, REAL)["error"] in {"OSError", "TimeoutError"}


def test_root_in_a_vm_cannot_reach_its_compute_host_even_with_the_mac_of_the_tap(cloud):
    """Daemons listen at an address of the host itself, on which VMs run too; only RODVR must lead to them."""
    lease = cloud.launch(count=1, locality="local")
    host, vm = cloud.prefix + lease["server"]["host"], cloud.vm(lease)
    (real,) = {device["real_address"].partition(":")[0] for device in lease["devices"]}
    (tap,) = (row for row in ip("-n", host, "link") if row["ifname"].startswith("tap"))
    subprocess.run(["ip", "-n", vm, "route", "add", real, "dev", "eth0"], check=True)
    neighbour = ["neigh", "add", real, "lladdr", tap["address"], "dev", "eth0"]
    subprocess.run(["ip", "-n", vm, *neighbour], check=True)
    with udp_receiver(host, real) as receiver, udp_receiver(vm, "127.0.0.1") as control:
        send_to(vm, real, receiver)
        send_to(vm, "127.0.0.1", control)
        assert control.recv(100) == b"hello"  # a datagram to the host would have arrived before
        with pytest.raises(BlockingIOError):
            receiver.recv(100)


def udp_receiver(netns: str, address: str) -> socket.socket:
    """Return a bound UDP socket in *netns*, which blocks only on loopback."""
    with entered(netns):
        receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    receiver.bind((address, 0))
    receiver.setblocking(address == "127.0.0.1")
    return receiver


def send_to(netns: str, address: str, receiver: socket.socket) -> None:
    with entered(netns), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.sendto(b"hello", (address, receiver.getsockname()[1]))


def test_a_local_lease_runs_on_the_host_of_its_gpus_and_a_remote_one_elsewhere(cloud):
    local = cloud.launch(count=2, mode="shared", memory_mb=1024, locality="local")
    remote = cloud.launch(count=2, mode="shared", memory_mb=1024, locality="remote")
    assert {device["gpu_host"] for device in local["devices"]} == {local["server"]["host"]}
    assert remote["server"]["host"] not in {device["gpu_host"] for device in remote["devices"]}
    for lease in (local, remote):
        cloud.check_reach(lease)


def test_a_release_cuts_connections_and_releases_everything(cloud):
    lease, other = cloud.launch(count=1), cloud.launch(count=1)
    program = cloud.keep_connection(lease, lease["devices"][0]["masked_address"])
    cloud.terminate(lease)
    until(lambda: program.poll() is not None, "the connection to end")
    assert program.stdout.read() != "answered\n"
    cloud.check_nothing_is_leaked([other])
    cloud.check_reach(other)


def test_a_released_gpu_is_given_to_the_next_lease(cloud):
    cloud.terminate(cloud.launch(count=8))
    cloud.check_reach(cloud.launch(count=8))


def test_a_vm_deleted_by_another_program_releases_its_lease(cloud):
    lease, other = cloud.launch(count=2), cloud.launch(count=1)
    subprocess.run(["ip", "netns", "del", cloud.vm(lease)], check=True)
    released = cloud.await_status(lease, "RELEASED")
    assert "its server was deleted" in [event["detail"] for event in released["events"]]
    cloud.check_nothing_is_leaked([other])
    cloud.check_reach(other)


def test_a_tenant_launches_and_terminates_too_and_sees_no_host(cloud):
    body = {"lease": {"cgpus": {"count": 1}, "server": {"imageRef": "cirros"}}}
    status, made = cloud.call("POST", "/v1/leases", body, user="-demo")
    assert status == 202
    assert made["notes"] == ["image: ignored, a standalone VM is a network namespace"]
    path = f"/v1/leases/{made['lease']['id']}"
    shown = until(
        lambda: (
            (answer := cloud.call("GET", path, user="-demo")[1]["lease"])["status"] == "ACTIVE"
            and answer
        ),
        "the lease",
    )
    assert "host" not in shown["server"]
    assert "gpu_host" not in shown["devices"][0]
    answer = cloud.greeting(shown, shown["devices"][0]["masked_address"])
    assert answer["gpu"].startswith("GPU-")
    assert cloud.call("DELETE", path, user="-demo")[0] == 202


def test_many_launches_and_releases_at_once_leave_nothing(cloud):
    leases = [cloud.request_lease(count=1, mode="shared", memory_mb=4096) for _ in range(16)]
    refused, _ = cloud.call("POST", "/v1/leases", {"lease": {"cgpus": {"count": 1}}})
    assert refused == 409
    active = [cloud.await_status(lease, "ACTIVE") for lease in leases]
    cloud.check_nothing_is_leaked(active)
    for lease in active:
        cloud.request_release(lease)
    for lease in active:
        cloud.await_status(lease, "RELEASED")
    cloud.check_nothing_is_leaked([])
    assert not [name for name in namespaces() if name.startswith(f"{cloud.prefix}vm-")]
