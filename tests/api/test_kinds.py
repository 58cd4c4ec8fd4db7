# SPDX-License-Identifier: Apache-2.0
"""GPUs and CPU devices in one cloud: a request gets devices of its kind, through the middleware of that kind."""

from __future__ import annotations

import pytest

from gsaas.db import endpoints, gpus
from gsaas.objects.gpu_report import GpuInfo
from tests.api.openstack_user import user as user
from tests.api.server import serving
from tests.api.world import World, only_error, token
from tests.support.launcher import Launcher

NEWEST = {"OpenStack-API-Version": "gpu-scheduling 1.9"}
BOTH = "[remoting]\ncpu_driver = ggml\n"
SHARED = {"mode": "shared", "memory_mb": 512}


def mixed(folder, settings: str = BOTH) -> World:
    """Two hosts with four GPUs each, whose middleware is simulated, and one with two CPU devices of 1024 MiB."""
    world = World.build(folder, settings=settings)
    add_cpu_host(world)
    return world


def add_cpu_host(world: World) -> None:
    infos = [GpuInfo(f"CPU-{index}", index, "Xeon", 1024, 50052 + index) for index in range(2)]
    with world.database.write() as session:
        gpus.register(session, "cpu1", "192.168.50.99", infos)
        endpoints.register(session, "cpu1", {"bindings": {}, "problems": []})


@pytest.fixture
def world(tmp_path):
    world = mixed(tmp_path)
    yield world
    world.database.close()


def call(world, method, path, body=None, caller="admin"):
    return world.call(caller, method, path, body, headers=NEWEST)


def launch(world, count=1, **more):
    """Launch with a VM; return the lease, or the error."""
    cgpus = {"count": count} | {name: more.pop(name) for name in list(more) if name != "lease"}
    body = {"lease": {"cgpus": cgpus} | more.get("lease", {})}
    response = call(world, "POST", "/v1/leases", body)
    if response.status_code >= 400:
        return only_error(response)
    return response.json["lease"]


def environment(world, lease):
    path = f"/v1/leases/{lease['id']}/environment"
    return call(world, "GET", path).json["environment"]


def uuids(lease):
    return [device["gpu_uuid"] for device in lease["devices"]]


def test_each_lease_has_devices_of_its_kind_and_the_environment_of_their_middleware(world):
    cuda, cpu = launch(world, 2), launch(world, 2, kind="cpu")
    assert (cuda["cgpus"]["kind"], cpu["cgpus"]["kind"]) == ("cuda", "cpu")
    assert (cuda["remoting"], cpu["remoting"]) == ("simulated", "ggml")
    assert all(uuid.startswith("GPU-") for uuid in uuids(cuda))
    assert sorted(uuids(cpu)) == ["CPU-0", "CPU-1"]
    assert environment(world, cpu) == {
        "LLAMA_ARG_RPC": "169.254.71.1:50052,169.254.71.2:50052",
        "LD_LIBRARY_PATH": "/opt/llama.cpp/lib",
    }
    assert environment(world, cuda)["RCUDA_DEVICE_0"] == "169.254.71.1:0"
    assert "LLAMA_ARG_RPC" not in environment(world, cuda)


def test_nobody_gets_a_device_of_another_kind_however_many_are_idle(world):
    launch(world, 2, kind="cpu")
    error = launch(world, kind="cpu")
    assert error["code"] == "gsaas.capacity.busy"
    assert error["gsaas"]["nearest"] is None
    launch(world, 7)
    assert launch(world, 2, kind="cuda")["gsaas"]["nearest"]["kind"] == "cuda"
    assert launch(world, 2, kind="cpu")["gsaas"]["filters"] == [
        {"filter": "exclusive", "gpus": 2},
        {"filter": "kind", "gpus": 8},
    ]
    assert launch(world, 3, kind="cpu")["code"] == "gsaas.capacity.impossible"


def test_what_waits_for_one_kind_gets_nothing_of_another(world):
    first = launch(world, 2, kind="cpu")
    waiting = launch(world, kind="cpu", lease={"wait": None})
    assert waiting["status"] == "QUEUED"
    (place,) = call(world, "GET", "/v1/queue").json["places"]
    assert place["cgpus"]["kind"] == "cpu"
    call(world, "DELETE", f"/v1/leases/{first['id']}")
    world.engine.settle()
    served = call(world, "GET", f"/v1/leases/{waiting['id']}").json["lease"]
    assert (uuids(served)[0][:4], served["remoting"]) == ("CPU-", "ggml")
    assert served["devices"][0]["masked_address"] == "169.254.71.1:50052"


def test_a_request_of_an_older_client_gets_gpus(world):
    lease = world.launch(count=8)
    assert "kind" not in lease["cgpus"]
    body = {"lease": {"cgpus": {"count": 1}}}
    assert only_error(world.call("member", "POST", "/v1/leases", body))["status"] == 409


def test_an_older_client_is_told_nothing_of_kinds_when_it_is_refused(world):
    """So that it can ask for what would fit, as it was told."""
    world.launch(count=6)
    nearest = {"count": 2, "mode": "exclusive", "memory_mb": None, "locality": "any"}
    body = {"lease": {"cgpus": {"count": 3}}}
    error = only_error(world.call("member", "POST", "/v1/leases", body))
    assert error["gsaas"]["nearest"] == nearest
    checked = world.call("member", "POST", "/v1/checks", {"check": {"count": 3}}).json["check"]
    assert checked["nearest"] == nearest
    assert launch(world, 3)["gsaas"]["nearest"] == nearest | {"kind": "cuda"}


def test_the_operator_chooses_the_kind_of_requests_that_name_none(tmp_path):
    world = mixed(tmp_path, "[remoting]\ncpu_driver = ggml\ndefault_kind = cpu\n")
    lease = launch(world)
    assert (lease["cgpus"]["kind"], uuids(lease)[0][:4]) == ("cpu", "CPU-")
    assert uuids(launch(world, kind="cuda"))[0].startswith("GPU-")
    world.database.close()


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/leases", {"lease": {"cgpus": {"count": 1, "kind": "cpu"}}}),
        ("/v1/checks", {"check": {"count": 1, "kind": "cpu"}}),
        (
            "/v1/reservations",
            {"reservation": {"cgpus": {"count": 1, "kind": "cpu"}, "end": "2036-01-01"}},
        ),
    ],
    ids=["launch", "check", "reservation"],
)
def test_a_kind_for_which_there_is_no_middleware_is_refused(tmp_path, path, body):
    world = World.build(tmp_path, driver="rcuda")
    before = world.rows()
    error = only_error(call(world, "POST", path, body, "member"))
    assert (error["status"], error["code"]) == (400, "gsaas.remoting.kind")
    assert error["detail"] == "this cloud serves no devices of kind cpu"
    assert world.rows() == before
    world.database.close()


def test_the_limits_of_a_middleware_are_those_of_its_kind(world):
    error = launch(world, 17, kind="cpu", **SHARED)
    assert (error["code"], error["detail"][:4]) == ("gsaas.remoting.limit", "ggml")
    assert launch(world, 17, **SHARED)["status"] == "CLAIMED"


def test_gpus_say_of_which_kind_they_are(world):
    found = call(world, "GET", "/v1/gpus").json["gpus"]
    assert {(gpu["uuid"][:4], gpu["kind"]) for gpu in found} == {("GPU-", "cuda"), ("CPU-", "cpu")}


def test_a_reservation_is_of_one_kind_and_so_are_the_launches_in_it(world):
    body = {"cgpus": {"count": 2, "kind": "cpu"}, "end": "2036-01-01"}
    made = call(world, "POST", "/v1/reservations", {"reservation": body})
    reservation = made.json["reservation"]
    assert (reservation["cgpus"]["kind"], reservation["kept"]) == ("cpu", 2)
    assert launch(world, kind="cpu")["code"] == "gsaas.capacity.busy"
    within = {"reservation": reservation["id"]}
    error = launch(world, lease=within)
    assert "the reservation's kind, mode and size" in error["detail"]
    assert uuids(launch(world, kind="cpu", lease=within))[0].startswith("CPU-")


def test_programs_of_its_own_host_use_a_cpu_device_through_its_middleware(tmp_path):
    world = mixed(tmp_path, f"{BOTH}native = true\n")
    for kind, host, access in (("cuda", "gpu1", "native"), ("cpu", "cpu1", "masked")):
        body = {
            "cgpus": {"count": 1, "kind": kind, "host": host},
            "server": None,
            "consumer": {"host": host},
        }
        lease = call(world, "POST", "/v1/leases", {"lease": body}).json["lease"]
        assert lease["access"] == access, kind
    assert lease["devices"][0]["masked_address"].endswith(":50052")
    world.database.close()


def test_gsaas_asks_for_a_kind_and_shows_it(desk):
    lease = desk.read("-l", "-ncgpus=1", "-kind=cpu", "-name=cpu")
    assert lease["cgpus"]["kind"] == "cpu"
    assert "-ncgpus=1 -kind=cpu" in desk.type("show", lease["id"])[1]
    assert desk.type("list", "-f=value", "-c=kind")[1] == "cpu\n"
    assert desk.type("check", "-ncgpus=1", "-kind=cpu")[1].splitlines()[0] == (
        "it fits: gsaas -l -ncgpus=1 -kind=cpu"
    )
    assert "-kind" in desk.type("check", "-ncgpus=1", "-kind=gpu")[2]
    reserved = desk.read("reserve", "-ncgpus=1", "-kind=cpu", "-end=2036-01-01")
    assert reserved["cgpus"]["kind"] == "cpu"
    desk.sit("admin")
    kinds = desk.type("gpus", "-f=value", "-c=kind")[1].split()
    assert sorted(kinds) == ["cpu"] * 2 + ["cuda"] * 8


@pytest.mark.slow
def test_openstack_asks_for_a_kind_and_shows_it(user):
    add_cpu_host(user.world)
    lease = user.read("gpu", "lease", "create", "--kind", "cpu")
    assert (lease["kind"], lease["cgpus"]) == ("cpu", 1)
    assert user.read("gpu", "check", "create", "--kind", "cpu")["fits"] is True
    assert "--kind=cpu" in user.refused("gpu", "lease", "create", "--cgpus", "3", "--kind", "cpu")
    assert {gpu["Kind"] for gpu in user.read("gpu", "list", user="admin")} == {"cuda", "cpu"}


@pytest.mark.slow
@pytest.mark.parametrize("program", ["gsaas", "gsaas-cli"])
def test_gsaas_run_asks_for_a_kind(world, programs, tmp_path, program):
    launcher = Launcher(programs / program, tmp_path / "credentials.json")
    with serving(world.app) as url:
        launcher.use(url, token("member"))
        ran = launcher.run("-ncgpus=1", "-kind=cpu", "--", "sh", "-c", "echo $LLAMA_ARG_RPC")
        assert ran.stdout.startswith("192.168.50.99:5005"), ran.stderr
        refused = launcher.run("-ncgpus=1", "-kind=gpu", "--", "true")
        assert "-kind" in refused.stderr
