# SPDX-License-Identifier: Apache-2.0
"""Leases move between hosts while their VMs go on: programs compute right, by the same addresses, before and after."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from tests.kernel.standalone.test_computing import Site, computing, ggml_rpc, right, tvm_rpc, well
from tests.support.waiting import until

pytestmark = pytest.mark.kernel

INVENTORY = """\
gpu_network = "192.168.50.0/24"
[[hosts]]
name = "gpu1"
gpu_address = "192.168.50.11"
compute = false
kind = "cpu"
gpus = 2
memory_mb = 1024
[[hosts]]
name = "gpu2"
gpu_address = "192.168.50.12"
compute = false
kind = "cpu"
gpus = 1
memory_mb = 1024
[[hosts]]
name = "compute1"
gpu_address = "192.168.50.21"
"""
GPU_HOSTS = ("gpu1", "gpu2")


@pytest.fixture(
    scope="module",
    params=[tvm_rpc, pytest.param(ggml_rpc, marks=pytest.mark.thorough)],
    ids=["tvm", "ggml"],
)
def cloud_that_computes(request, tmp_path_factory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("moves")
    with computing(request.param(), folder, INVENTORY) as site:
        yield site


@pytest.fixture
def site(cloud_that_computes) -> Iterator[Site]:
    until(lambda: offered(cloud_that_computes) == 3, "all devices to be offered")
    yield cloud_that_computes
    cloud_that_computes.reset()
    for host in GPU_HOSTS:
        set_host(cloud_that_computes, host, disabled=False)
    for host in GPU_HOSTS:
        assert cloud_that_computes.daemons(host) == {}
        assert admitted(cloud_that_computes, host) == []


def set_host(site: Site, host: str, **fields: Any) -> dict[str, Any]:
    path = f"/v1/hosts/{host}"
    status, body = site.cloud.call("PATCH", path, {"host": fields}, version="1.11")
    assert status == 200, body
    return body["host"]


def left_on(site: Site, host: str) -> list[dict[str, Any]]:
    """Return the leases that a host has which is drained, with what each waits for."""
    _, body = site.cloud.call("GET", f"/v1/hosts/{host}", version="1.11")
    return body["host"]["drain"]["leases"]


def offered(site: Site) -> int:
    _, body = site.cloud.call("GET", "/v1/gpus")
    return sum(gpu["withdrawn"] is None for gpu in body["gpus"])


def admitted(site: Site, host: str) -> list[Any]:
    """Return what the fence of a host admits, as nft(8) lists it."""
    place = ["ip", "netns", "exec", site.cloud.prefix + host]
    listed = subprocess.run(
        [*place, "nft", "-j", "list", "sets"], check=True, capture_output=True, text=True
    )
    sets = [each["set"] for each in json.loads(listed.stdout)["nftables"] if "set" in each]
    return [one for each in sets if each["name"] == "admitted" for one in each.get("elem", [])]


def host_of(lease: dict[str, Any]) -> str:
    return lease["devices"][0]["gpu_host"]


def other_host(lease: dict[str, Any]) -> str:
    return "gpu2" if host_of(lease) == "gpu1" else "gpu1"


def request(site: Site, lease: dict[str, Any], **wanted: Any) -> tuple[int, Any]:
    path = f"/v1/leases/{lease['id']}/move"
    return site.cloud.call("POST", path, {"move": wanted}, version="1.11")


def ended(site: Site, lease: dict[str, Any]) -> str | None:
    """Return how the last move of a lease has ended; None while it goes on."""
    event = site.cloud.lease(lease)["events"][-1]["event"]
    return None if event == "move" else event


def move(site: Site, lease: dict[str, Any], **wanted: Any) -> dict[str, Any]:
    """Move a lease, and return it when it has moved and nothing is left where it was."""
    status, body = request(site, lease, **wanted)
    assert status == 202, body
    return outcome(site, lease)


def outcome(site: Site, lease: dict[str, Any]) -> dict[str, Any]:
    until(lambda: ended(site, lease), "the move to end")
    assert ended(site, lease) == "moved"
    return settled(site, lease)


def settled(site: Site, lease: dict[str, Any]) -> dict[str, Any]:
    """Return a lease when there is nothing of it but one daemon, its admission and its claim."""
    now = site.cloud.lease(lease)
    here, elsewhere = host_of(now), other_host(now)

    def nothing_is_left() -> bool:
        _, body = site.cloud.call("GET", "/v1/gpus")
        claimed = [gpu["uuid"] for gpu in body["gpus"] if gpu["used_mb"]]
        return claimed == [device["gpu_uuid"] for device in now["devices"]]

    until(nothing_is_left, "the other GPU to be returned")
    assert len(site.daemons(here)) == 1
    assert site.daemons(elsewhere) == {}
    assert len(admitted(site, here)) == 1
    assert admitted(site, elsewhere) == []
    site.cloud.check_nothing_is_leaked([now])
    return now


def environment(site: Site, lease: dict[str, Any]) -> dict[str, str]:
    return site.cloud.call("GET", f"/v1/leases/{lease['id']}/environment")[1]["environment"]


def test_programs_compute_on_another_host_by_the_same_addresses(site):
    lease = site.launch(1)
    assert well(site, lease)
    before = environment(site, lease)
    for _ in range(2):  # there and back
        target = other_host(lease)
        lease = move(site, lease, host=target)
        assert host_of(lease) == target
        assert environment(site, lease) == before
        assert well(site, lease)


def test_programs_compute_on_another_device_of_the_same_host(site):
    lease = site.launch(1)
    if host_of(lease) == "gpu2":
        lease = move(site, lease, host="gpu1")
    before = lease["devices"][0]["gpu_uuid"]
    _, body = site.cloud.call("GET", "/v1/gpus")
    (free,) = (
        gpu["uuid"] for gpu in body["gpus"] if gpu["host"] == "gpu1" and gpu["uuid"] != before
    )
    lease = move(site, lease, gpu=free)
    assert lease["devices"][0]["gpu_uuid"] == free
    assert well(site, lease)


def test_what_computes_stays_connected_unless_the_operator_says_that_it_may_be_cut(site):
    lease = site.launch(1)
    program = site.run(lease, "--endless").begun()
    status, body = request(site, lease, host=other_host(lease))
    if status == 202:  # the endpoint has not reported the connection yet: the engine asks it
        until(lambda: ended(site, lease), "the move to end")
        assert ended(site, lease) == "move-undone"
        assert "open" in site.cloud.lease(lease)["events"][-1]["detail"]
    else:
        assert body["errors"][0]["code"] == "gsaas.lease.connected"
    stayed = settled(site, lease)
    assert host_of(stayed) == host_of(lease)
    assert program.lives(), "it has computed all the time"

    moved = move(site, stayed, host=other_host(stayed), force=True)
    cut = program.results()
    assert right(cut, [0])
    assert cut[0]["error"]
    assert well(site, moved), "the program that is started again computes"


def test_a_neighbour_computes_on_while_a_lease_leaves_its_device(site):
    lease, neighbour = site.launch(1), site.launch(1)
    program = site.run(neighbour, "--endless").begun()
    status, body = request(site, lease, host=other_host(lease))
    assert status == 202, body
    until(lambda: ended(site, lease) == "moved", "the lease to have moved")
    assert well(site, lease)
    assert program.lives()


def test_a_move_ends_on_one_side_although_everything_is_killed_meanwhile(site):
    lease = site.launch(1)
    for _ in range(3):
        target = other_host(lease)
        status, body = request(site, lease, host=target)
        assert status == 202, body
        site.cloud.kill()
        site.cloud.start()
        lease = outcome(site, lease)
        assert host_of(lease) == target
        assert well(site, lease)


def test_a_lease_that_is_released_while_it_moves_leaves_nothing(site):
    lease = site.launch(1)
    status, body = request(site, lease, host=other_host(lease))
    assert status == 202, body
    site.cloud.terminate(lease)
    site.cloud.check_nothing_is_leaked([])


def test_programs_compute_by_the_same_addresses_after_their_host_was_drained(site):
    lease = site.launch(1)
    assert well(site, lease)
    before, host = environment(site, lease), host_of(lease)
    set_host(site, host, disabled=True, drain={})
    until(lambda: not left_on(site, host), "the lease to leave the host")
    now = settled(site, lease)
    assert host_of(now) != host
    assert environment(site, now) == before
    assert well(site, now)
    assert host_of(site.launch(1)) != host, "a new lease got a GPU of a host that is drained"


def test_what_computes_is_waited_for_and_cut_only_when_the_operator_says_so(site):
    lease = site.launch(1)
    host = host_of(lease)
    program = site.run(lease, "--endless").begun()
    set_host(site, host, disabled=True, drain={})
    until(
        lambda: [
            one
            for one in left_on(site, host)
            if "open" in (one["waits"] or "") or "undone" in (one["waits"] or "")
        ],
        "the drain to wait for the connection",
    )
    assert host_of(settled(site, lease)) == host
    assert program.lives(), "it has computed all the time"
    site.cloud.kill()
    site.cloud.start()  # what is to be done is in the database
    set_host(site, host, disabled=True, drain={"force": True})
    until(lambda: not left_on(site, host), "the lease to leave the host")
    cut = program.results()
    assert right(cut, [0])
    assert cut[0]["error"]
    assert well(site, settled(site, lease)), "the program that is started again computes"


def test_a_drain_goes_on_although_everything_is_killed_meanwhile(site):
    leases = [site.launch(1) for _ in range(2)]
    host = host_of(leases[0])
    set_host(site, host, disabled=True, drain={})
    site.cloud.kill()
    site.cloud.start()
    until(lambda: not left_on(site, host), "the leases to leave the host")
    for lease in leases:
        assert host_of(site.cloud.lease(lease)) != host
        assert well(site, lease)
