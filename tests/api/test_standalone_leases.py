# SPDX-License-Identifier: Apache-2.0
"""Leases without a VM: claimed, used and released, with one request each."""

from __future__ import annotations

import ipaddress

import pytest

from gsaas.db import endpoints, gpus, leases
from tests.api.world import World, only_error

SHARED = {"count": 2, "mode": "shared", "memory_mb": 1024}


@pytest.fixture
def world(tmp_path):
    world = World.build(tmp_path)
    yield world
    world.database.close()


def alloc(world, caller="member", consumer=None, **cgpus):
    lease = {"cgpus": {"count": 1} | cgpus, "server": None}
    if consumer is not None:
        lease["consumer"] = consumer
    return world.call(caller, "POST", "/v1/leases", {"lease": lease})


def used_mb(world):
    with world.database.read() as session:
        return sum(gpu.used_mb for gpu in gpus.page(session, limit=100))


def test_it_is_active_at_once_and_answered_with_its_environment(world):
    response = alloc(world, **SHARED)

    assert response.status_code == 201
    lease, environment = response.json["lease"], response.json["environment"]
    assert (lease["status"], lease["access"]) == ("ACTIVE", "direct")
    assert (lease["server"], lease["consumer"]) == (
        None,
        {"host": None, "uid": None, "address": None},
    )
    real = [device["real_address"] for device in lease["devices"]]
    assert environment == {
        "GSAAS_LEASE": lease["id"],
        "RCUDA_DEVICE_COUNT": "2",
        "RCUDA_DEVICE_0": real[0].replace(":8308", ":0"),
        "RCUDA_RESERVED_GPU_MEMORY_0": "1024",
        "RCUDA_DEVICE_1": real[1].replace(":8308", ":0"),
        "RCUDA_RESERVED_GPU_MEMORY_1": "1024",
    }
    assert world.engine.woken == []
    assert world.cloud.servers == {}


def test_its_owner_sees_the_real_addresses_but_not_the_gpus(world):
    (device,) = alloc(world).json["lease"]["devices"]

    assert device["masked_address"] is None
    assert device["real_address"].startswith("192.168.50.")
    assert "gpu_uuid" not in device
    assert "gpu_host" not in device


@pytest.mark.parametrize("access", ["direct", "native"])
def test_who_may_not_use_it_sees_neither_gpu_nor_host_nor_real_address(tmp_path, access):
    world = World.build(tmp_path, settings="[remoting]\nnative = true\n")
    consumer = {"address": "192.168.50.99"} if access == "direct" else {"host": "gpu1", "uid": 7}
    lease = alloc(world, consumer=consumer).json["lease"]
    assert lease["access"] == access
    hidden = ("192.168.", "GPU-", "gpu1", "gpu2")
    one = f"/v1/leases/{lease['id']}"
    for caller in ("reader", "service", "member"):
        paths = [one, f"{one}?while_status=QUEUED&timeout=0", "/v1/leases", f"{one}/readings"]
        paths += ["/v1/leases?all_projects=true"] if caller == "service" else []
        answers = [world.call(caller, "GET", path) for path in paths]
        said = "".join(response.text for response in answers)
        assert lease["id"] in said
        shown = [word for word in hidden if word in said]
        if caller == "member":
            assert shown
        else:
            assert shown == []
            refused = world.call(caller, "GET", f"{one}/environment")
            assert refused.status_code == 403
    world.database.close()


def test_the_environment_may_be_asked_for_again(world):
    granted = alloc(world).json

    again = world.call("member", "GET", f"/v1/leases/{granted['lease']['id']}/environment")

    assert again.json["environment"] == granted["environment"]


def test_it_is_released_with_one_request_and_leaves_nothing(world):
    lease_id = alloc(world, **SHARED).json["lease"]["id"]
    assert used_mb(world) == 2048

    response = world.call("member", "DELETE", f"/v1/leases/{lease_id}")

    assert response.status_code == 202
    assert response.json["lease"]["status"] == "RELEASED"
    assert response.json["lease"]["released_at"] is not None
    assert response.json["lease"]["devices"] == []
    assert used_mb(world) == 0
    assert world.engine.woken == []
    again = world.call("member", "DELETE", f"/v1/leases/{lease_id}")
    assert only_error(again)["code"] == "gsaas.lease.released"


def test_it_has_the_same_events_as_any_other_lease(world):
    lease_id = alloc(world).json["lease"]["id"]
    world.call("member", "DELETE", f"/v1/leases/{lease_id}")

    with world.database.read() as session:
        story = [
            (event.event, event.status) for event in leases.events(session.connection(), lease_id)
        ]
    assert story == [
        ("claim", "CLAIMED"),
        ("activate", "ACTIVE"),
        ("release", "RELEASING"),
        ("finish", "RELEASED"),
    ]


def test_what_it_held_stays_on_record(world):
    lease_id = alloc(world, **SHARED).json["lease"]["id"]
    world.call("member", "DELETE", f"/v1/leases/{lease_id}")

    with world.database.read() as session:
        lease = leases.get(session.connection(), lease_id)
    assert lease.claimed_mb == 2048
    assert lease.claimed_gpus == pytest.approx(0.25)
    assert lease.created_at <= lease.claimed_at <= lease.released_at


def test_local_means_the_consumers_own_host(world):
    response = alloc(world, "admin", {"host": "gpu2"}, count=4, locality="local")

    assert {device["gpu_host"] for device in response.json["lease"]["devices"]} == {"gpu2"}
    error = only_error(alloc(world, "admin", {"host": "gpu2"}, locality="local"))
    assert error["code"] == "gsaas.capacity.busy"
    filters = {told["filter"]: told["gpus"] for told in error["gsaas"]["filters"]}
    assert filters == {"host": 4, "exclusive": 4}


def test_remote_means_any_host_but_the_consumers(world):
    response = alloc(world, "admin", {"host": "gpu2"}, count=4, locality="remote")

    assert {device["gpu_host"] for device in response.json["lease"]["devices"]} == {"gpu1"}
    error = only_error(alloc(world, "admin", {"host": "gpu2"}, count=5, locality="remote"))
    assert error["code"] == "gsaas.capacity.impossible"
    assert "gpu2" in error["detail"]


def test_local_on_a_host_without_gpus_never_fits(world):
    error = only_error(alloc(world, consumer={"host": "laptop"}, locality="local"))

    assert error["code"] == "gsaas.capacity.impossible"
    assert "laptop" in error["detail"]


def test_a_locality_needs_a_consumer_whose_host_is_known(world):
    error = only_error(alloc(world, locality="remote"))

    assert error["status"] == 400
    assert "lease.consumer.host" in error["detail"]


def test_refused_it_leaves_nothing_behind(world):
    before = world.rows()

    assert alloc(world, count=99).status_code == 409

    assert world.rows() == before


def test_other_projects_can_neither_see_nor_end_it(world):
    lease_id = alloc(world).json["lease"]["id"]

    for method in ("GET", "DELETE"):
        assert world.call("stranger", method, f"/v1/leases/{lease_id}").status_code == 404
    assert world.call("reader", "DELETE", f"/v1/leases/{lease_id}").status_code == 403
    assert alloc(world, "reader").status_code == 403


@pytest.mark.parametrize(
    ("known", "written"),
    [
        ("compute1", "COMPUTE1"),
        ("compute1", "Compute1.example.org"),
        ("compute1", "compute1.example.org."),
        ("Node7.example.org", "node7"),
        ("Node7.example.org", "NODE7.EXAMPLE.ORG"),
        ("Node7.example.org", "node7.example"),
    ],
)
def test_a_host_is_known_in_other_case_and_with_or_without_its_domain(world, known, written):
    with world.database.write() as session:
        endpoints.register(session, known, {"bindings": {}, "problems": []})
    response = alloc(world, consumer={"host": written}, **SHARED)
    lease = response.json["lease"]
    assert (lease["access"], lease["consumer"]["host"]) == ("masked", known)
    assert response.json["notes"] == [f"consumer.host: {written} is {known} here"]
    exact = alloc(world, consumer={"host": known}, **SHARED).json
    assert (exact["lease"]["access"], exact["notes"]) == ("masked", [])


@pytest.mark.parametrize("written", ["laptop", "compute", "compute10", "compute1-other", "ompute1"])
def test_a_host_that_is_no_known_one_is_none(world, written):
    lease = alloc(world, consumer={"host": written}, **SHARED).json["lease"]
    assert (lease["access"], lease["consumer"]["host"]) == ("direct", written)


def test_a_host_that_may_be_several_is_refused(world):
    with world.database.write() as session:
        for name in ("node7.a", "node7.b", "Node8", "node8"):
            endpoints.register(session, name, {"bindings": {}, "problems": []})
    for written, names in (("node7", "node7.a and node7.b"), ("NODE8", "Node8 and node8")):
        error = only_error(alloc(world, consumer={"host": written}))
        assert (error["status"], f"{names}: name the one" in error["detail"]) == (400, True)
    assert alloc(world, consumer={"host": "node8"}).json["lease"]["consumer"]["host"] == "node8"


def test_the_host_of_gpus_is_known_alike(world):
    for where in ({"host": "GPU2.example.org"}, {"locality": "local"}):
        lease = alloc(world, consumer={"host": "Gpu2"}, **where).json["lease"]
        shown = world.call("admin", "GET", f"/v1/leases/{lease['id']}").json["lease"]
        assert {device["gpu_host"] for device in shown["devices"]} == {"gpu2"}
    check = {"count": 1, "host": "GPU2", "consumer": {"host": "GPU2"}, "locality": "local"}
    assert world.call("member", "POST", "/v1/checks", {"check": check}).json["check"]["fits"]


class TestOnAHostWithAnEndpoint:
    """Consumers on a host with a RODVR endpoint, which has masked addresses for them."""

    CONSUMER = {"host": "compute1", "uid": 1000}

    def test_it_is_active_once_the_endpoint_has_confirmed(self, world):
        response = alloc(world, consumer=self.CONSUMER, **SHARED)

        assert response.status_code == 202
        lease = response.json["lease"]
        assert (lease["status"], lease["access"]) == ("CLAIMED", "masked")
        assert lease["consumer"] == {"host": "compute1", "uid": 1000, "address": None}
        assert "environment" not in response.json
        assert world.engine.woken == [(lease["id"], "blue")]

        world.engine.settle()

        shown = world.call("member", "GET", f"/v1/leases/{lease['id']}").json["lease"]
        assert shown["status"] == "ACTIVE"

    def test_no_two_leases_of_the_host_have_an_address_in_common(self, world):
        told = [
            device["masked_address"]
            for _ in range(4)
            for device in alloc(world, consumer=self.CONSUMER, **SHARED).json["lease"]["devices"]
        ]

        assert len(set(told)) == 8
        prefix = ipaddress.ip_network(world.conf.rodvr.local_prefix)
        assert all(ipaddress.ip_address(address.split(":")[0]) in prefix for address in told)

    def test_its_owner_does_not_see_where_its_gpus_are(self, world):
        answer = alloc(world, consumer=self.CONSUMER).json["lease"]
        environment = world.call("member", "GET", f"/v1/leases/{answer['id']}/environment").json

        assert "192.168.50." not in str(answer)
        assert "192.168.50." not in str(environment)

    def test_giving_it_back_waits_for_the_endpoint(self, world):
        lease_id = alloc(world, consumer=self.CONSUMER).json["lease"]["id"]
        world.engine.settle()

        response = world.call("member", "DELETE", f"/v1/leases/{lease_id}")

        assert response.json["lease"]["status"] == "RELEASING"
        assert used_mb(world) > 0
        world.engine.settle()
        assert used_mb(world) == 0


def test_the_addresses_of_a_host_are_finite(tmp_path):
    world = World.build(tmp_path, settings="[rodvr]\nlocal_prefix = 169.254.72.0/30\n")
    consumer = {"host": "compute1"}
    assert alloc(world, consumer=consumer, **SHARED).status_code == 202

    error = only_error(alloc(world, consumer=consumer))

    assert error["code"] == "gsaas.capacity.masked-addresses"
    assert "masked addresses, and" in error["detail"]
    assert alloc(world).status_code == 201
    world.database.close()


class TestOnTheGpuHostItself:
    """Consumers on the host of the GPUs, with `[remoting]native`."""

    @pytest.fixture
    def world(self, tmp_path):
        world = World.build(tmp_path, settings="[remoting]\nnative = true\n")
        yield world
        world.database.close()

    def test_programs_use_its_gpus_with_their_own_cuda(self, world):
        response = alloc(world, consumer={"host": "gpu1"}, locality="local", **SHARED)

        lease = response.json["lease"]
        assert (lease["access"], lease["remoting"]) == ("native", "native")
        assert list(response.json["environment"]) == [
            "GSAAS_LEASE",
            "CUDA_VISIBLE_DEVICES",
            "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT",
        ]
        uuids = {device["gpu_uuid"] for device in lease["devices"]}
        assert set(response.json["environment"]["CUDA_VISIBLE_DEVICES"].split(",")) == uuids

    def test_gpus_of_several_hosts_are_reached_through_the_middleware(self, world):
        lease = alloc(world, consumer={"host": "gpu1"}, count=8).json["lease"]

        assert (lease["access"], lease["remoting"]) == ("masked", "simulated")


def test_too_many_cgpus_of_one_lease_are_refused(world):
    response = alloc(world, count=2047, mode="shared", memory_mb=1)

    assert response.status_code == 400
    assert "a lease without a server can have at most 2046" in only_error(response)["detail"]
    assert used_mb(world) == 0
