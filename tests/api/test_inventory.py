# SPDX-License-Identifier: Apache-2.0
"""GPUs, hosts, endpoints and policies: totals for tenants, everything for admins."""

from __future__ import annotations

import datetime

import pytest
from oslo_utils import timeutils

from gsaas.db import endpoints, gpus, hosts, models
from gsaas.objects.gpu_report import GpuInfo, GpuProcess, Reading, XidError
from tests.api.world import World, only_error


@pytest.mark.parametrize("path", ["/v1/gpus", "/v1/hosts"])
def test_tenants_see_totals_and_nothing_else(world, path):
    world.launch(mode="shared", memory_mb=192)
    assert world.call("reader", "GET", path).json == {
        "totals": {"hosts": 2, "gpus": 8, "memory_mb": 65536, "free_mb": 65344, "idle": 7}
    }


LATEST = {"OpenStack-API-Version": "gpu-scheduling latest"}


def test_tenants_see_the_models_of_gpus_and_how_much_of_each_is_free(world):
    """Neither a GPU that is out of service counts, nor those of a host that is; nothing tells where GPUs are."""
    world.launch()
    world.launch(mode="shared", memory_mb=192)
    world.call("admin", "PATCH", "/v1/gpus/GPU-0002-3", {"gpu": {"disabled": True}})
    shown = {
        "model": "Quadro M4000",
        "kind": "cuda",
        "compute_capability": None,
        "memory_mb": 8192,
        "gpus": 7,
        "idle": 5,
        "free_mb": 6 * 8192 - 192,
        "largest_share_mb": 8192,
    }
    answer = world.call("reader", "GET", "/v1/models", headers=LATEST)
    assert answer.json == {"models": [shown]}
    for name in ("gpu1", "gpu2"):
        world.call("admin", "PATCH", f"/v1/hosts/{name}", {"host": {"disabled": True}})
    assert world.call("reader", "GET", "/v1/models", headers=LATEST).json == {"models": []}


def test_what_is_listed_as_free_is_what_a_check_finds(world):
    world.launch(count=8, mode="shared", memory_mb=6000, policy="round-robin")
    (model,) = world.call("reader", "GET", "/v1/models", headers=LATEST).json["models"]
    assert (model["idle"], model["largest_share_mb"]) == (0, 2192)
    for memory_mb, fits in ((2192, True), (2193, False)):
        wanted = {"check": {"count": 1, "mode": "shared", "memory_mb": memory_mb}}
        assert world.call("member", "POST", "/v1/checks", wanted).json["check"]["fits"] == fits


def test_admins_see_each_gpu_and_its_leases(world):
    exclusive = world.launch(policy="first-fit")["id"]
    shared = [
        world.launch(mode="shared", memory_mb=512, policy="first-fit", count=n)["id"]
        for n in (1, 2)
    ]
    shown = {gpu["uuid"]: gpu for gpu in world.call("admin", "GET", "/v1/gpus").json["gpus"]}
    assert len(shown) == 8
    held = {
        uuid: (gpu["mode"], gpu["used_mb"], gpu["leases"])
        for uuid, gpu in shown.items()
        if gpu["leases"]
    }
    assert held == {
        "GPU-0001-0": ("exclusive", 8192, [exclusive]),
        "GPU-0001-1": ("shared", 1536, sorted(shared)),
    }
    assert shown["GPU-0002-3"] | {"generation": 0} == {
        "uuid": "GPU-0002-3",
        "host": "gpu2",
        "index": 3,
        "model": "Quadro M4000",
        "memory_mb": 8192,
        "used_mb": 0,
        "mode": "free",
        "leases": [],
        "disabled": False,
        "disabled_reason": None,
        "withdrawn": None,
        "awaits_operator": False,
        "parent_uuid": None,
        "compute_capability": None,
        "reading": None,
        "daemon_address": "192.168.50.3:8308",
        "generation": 0,
    }
    one = world.call("admin", "GET", "/v1/gpus/GPU-0001-1").json["gpu"]
    assert one == shown["GPU-0001-1"]


@pytest.mark.parametrize("noun", ["gpus", "hosts", "endpoints"])
def test_pages_of_the_inventory_follow_one_another_to_the_end(world, noun):
    whole = world.call("admin", "GET", f"/v1/{noun}").json[noun]
    path, seen = f"/v1/{noun}?limit=2", []
    while path:
        page = world.call("admin", "GET", path).json
        seen += page[noun]
        links = {link["rel"]: link["href"] for link in page.get(f"{noun}_links", [])}
        path = links.get("next", "")
    assert seen == whole
    assert len(seen) == {"gpus": 8, "hosts": 3, "endpoints": 3}[noun]


def test_new_leases_do_not_get_a_disabled_gpu_until_it_is_enabled(world):
    change = {"gpu": {"disabled": True, "disabled_reason": "fan broken"}}
    gpu = world.call("admin", "PATCH", "/v1/gpus/GPU-0001-0", change).json["gpu"]
    assert (gpu["disabled"], gpu["disabled_reason"]) == (True, "fan broken")
    assert world.call("admin", "GET", "/v1/gpus/GPU-0001-0").json["gpu"] == gpu
    eight = {"check": {"count": 8}}
    assert world.call("member", "POST", "/v1/checks", eight).json["check"]["fits"] is False

    change = {"gpu": {"disabled": False}}
    gpu = world.call("admin", "PATCH", "/v1/gpus/GPU-0001-0", change).json["gpu"]
    assert (gpu["disabled"], gpu["disabled_reason"]) == (False, None)
    assert world.call("member", "POST", "/v1/checks", eight).json["check"]["fits"] is True


def test_a_disabled_host_keeps_its_leases_and_gets_no_new_ones(world):
    world.launch(policy="first-fit")
    change = {"host": {"disabled": True, "disabled_reason": "moving"}}
    host = world.call("admin", "PATCH", "/v1/hosts/gpu1", change).json["host"]
    assert (host["disabled"], host["disabled_reason"]) == (True, "moving")
    assert world.call("admin", "GET", "/v1/gpus/GPU-0001-0").json["gpu"]["used_mb"] == 8192
    four, five = ({"check": {"count": count}} for count in (4, 5))
    assert world.call("member", "POST", "/v1/checks", four).json["check"]["fits"] is True
    assert world.call("member", "POST", "/v1/checks", five).json["check"]["fits"] is False
    world.call("admin", "PATCH", "/v1/hosts/gpu1", {"host": {"disabled": False}})
    assert world.call("member", "POST", "/v1/checks", five).json["check"]["fits"] is True


def test_admins_see_each_host(world):
    shown = world.call("admin", "GET", "/v1/hosts").json["hosts"]
    assert [host["name"] for host in shown] == ["compute1", "gpu1", "gpu2"]
    bare, full, _ = shown
    assert (
        bare | {"monitor_seen_at": None}
        == bare
        == {
            "name": "compute1",
            "gpu_address": None,
            "gpus": 0,
            "memory_mb": 0,
            "free_mb": 0,
            "compute": True,
            "disabled": False,
            "disabled_reason": None,
            "monitor_seen_at": None,
            "monitor_interval": None,
            "problems": [],
            "silent": False,
        }
    )
    assert (full["gpus"], full["memory_mb"], full["free_mb"]) == (4, 32768, 32768)
    assert full["gpu_address"] == "192.168.50.2"
    assert world.call("admin", "GET", "/v1/hosts/gpu1").json["host"] == full


def test_a_gpu_host_that_does_not_report_is_shown_as_silent(world):
    with world.database.write() as session:
        host = session.get(models.HostRow, "gpu1")
        host.monitor_seen_at = timeutils.utcnow() - datetime.timedelta(hours=1)
    shown = world.call("admin", "GET", "/v1/hosts").json["hosts"]
    assert [host["name"] for host in shown if host["silent"]] == ["gpu1"]


def test_admins_see_what_endpoints_reported(world):
    report = {
        "host": "gpu1",
        "bindings": {
            "port-a": {"installed": True, "dropped_packets": {"unmapped": 1, "refused": 2}},
            "port-b": {"installed": False, "dropped_packets": {"unmapped": 0, "refused": 0}},
            "port-c": {"installed": True, "dropped_packets": {"unmapped": 0, "refused": 0}},
        },
        "problems": ["the FORWARD policy drops"],
    }
    with world.database.write() as session:
        endpoints.register(session, "gpu1", report)
    endpoint = world.call("admin", "GET", "/v1/endpoints/gpu1").json["endpoint"]
    assert endpoint | {"seen_at": 0} == {
        "host": "gpu1",
        "seen_at": 0,
        "bindings": {"installed": 2, "pending": 1},
        "problems": ["the FORWARD policy drops"],
        "dropped_packets": {
            "port-a": {"unmapped": 1, "refused": 2},
            "port-b": {"unmapped": 0, "refused": 0},
            "port-c": {"unmapped": 0, "refused": 0},
        },
    }


def silence(world, name):
    with world.database.write() as session:
        host = session.get(models.HostRow, name)
        host.monitor_seen_at = timeutils.utcnow() - datetime.timedelta(hours=1)
        session.get(models.EndpointRow, name).seen_at = host.monitor_seen_at


def test_a_host_that_is_permanently_gone_is_deleted_and_its_leases_say_what_they_lost(world):
    lost = world.launch(locality="local")["id"]
    world.engine.settle()
    name = world.call("admin", "GET", f"/v1/leases/{lost}").json["lease"]["server"]["host"]
    silence(world, name)
    world.engine.woken.clear()
    answer = world.call("admin", "DELETE", f"/v1/hosts/{name}").json["forgotten"]
    assert answer == {"name": name, "failed_leases": [lost], "unbound_leases": [lost]}
    assert [woken for woken, _ in world.engine.woken] == [lost]
    lease = world.call("member", "GET", f"/v1/leases/{lost}").json["lease"]
    assert (lease["status"], lease["fault"]["step"]) == ("ERROR", "keep-gpus")
    assert world.call("admin", "GET", f"/v1/endpoints/{name}").status_code == 404
    totals = world.call("reader", "GET", "/v1/gpus").json["totals"]
    assert totals["idle"] == 4
    check = {"check": {"count": 5}}
    assert world.call("member", "POST", "/v1/checks", check).json["check"]["fits"] is False


def test_a_host_that_still_speaks_is_forgotten_only_by_force(world):
    before = world.rows()
    error = only_error(world.call("admin", "DELETE", "/v1/hosts/gpu2"))
    assert (error["status"], error["code"]) == (409, "gsaas.host.alive")
    assert "ask again in 60 s" in error["detail"]
    assert world.rows() == before
    assert world.call("admin", "DELETE", "/v1/hosts/gpu2?force=true").status_code == 202
    hosts = world.call("admin", "GET", "/v1/hosts").json["hosts"]
    assert [host["name"] for host in hosts] == ["compute1", "gpu1"]
    assert world.call("member", "POST", "/v1/checks", {"check": {"count": 4}}).json["check"]["fits"]


@pytest.mark.parametrize(
    ("method", "path", "body", "detail"),
    [
        ("GET", "/v1/gpus/GPU-9", None, "there is no GPU GPU-9"),
        ("PATCH", "/v1/gpus/GPU-9", {"gpu": {"disabled": True}}, "there is no GPU GPU-9"),
        ("GET", "/v1/hosts/nowhere", None, "there is no host nowhere"),
        ("PATCH", "/v1/hosts/nowhere", {"host": {"disabled": True}}, "there is no host nowhere"),
        ("GET", "/v1/endpoints/nowhere", None, "there is no endpoint nowhere"),
        ("DELETE", "/v1/hosts/nowhere", None, "there is no host nowhere"),
        ("GET", "/v1/hosts/%00", None, "there is no host '\\x00'"),
    ],
)
def test_what_is_not_there_is_not_found(world, method, path, body, detail):
    before = world.rows()
    error = only_error(world.call("admin", method, path, body))
    assert (error["status"], error["detail"]) == (404, detail)
    assert world.rows() == before


def test_policies_are_listed_with_what_they_do(world):
    shown = world.call("reader", "GET", "/v1/policies").json["policies"]
    assert {"first-fit", "least-load-fit"} <= {policy["name"] for policy in shown}
    assert [policy["name"] for policy in shown if policy["default"]] == ["least-load-fit"]
    assert all(policy["description"] for policy in shown)
    small = {"mode": "shared", "memory_mb": 1024}
    for policy in shown:
        assert world.launch(**small, policy=policy["name"])["cgpus"]["policy"] == policy["name"]


def test_an_empty_cloud_has_totals_of_zero(tmp_path):
    world = World.build(tmp_path, hosts=0)
    assert world.call("admin", "GET", "/v1/gpus").json == {
        "totals": {"hosts": 0, "gpus": 0, "memory_mb": 0, "free_mb": 0, "idle": 0},
        "gpus": [],
    }
    error = only_error(
        world.call("member", "POST", "/v1/leases", {"lease": {"cgpus": {"count": 1}}})
    )
    assert error["code"] == "gsaas.capacity.impossible"
    world.database.close()


READING = Reading(
    used_mb=1024,
    utilisation=37.0,
    mean_utilisation=21.5,
    temperature_c=65.0,
    processes=[GpuProcess(17, "python", 512)],
    xid_errors=[XidError(datetime.datetime(2026, 1, 2, 3, 4, 5), 31, False)],
)


def read(world, **more) -> None:
    """Let the monitor of gpu1 report a reading of one GPU."""
    info = GpuInfo("GPU-0001-0", 0, "Quadro M4000", 8192, 8308, compute_capability="5.2")
    with world.database.write() as session:
        gpus.register(
            session, "gpu1", "192.168.50.2", [info], readings={info.uuid: READING}, **more
        )


def test_admins_see_what_was_read_of_a_gpu(world):
    read(world)
    gpu = world.call("admin", "GET", "/v1/gpus/GPU-0001-0").json["gpu"]
    assert gpu["compute_capability"] == "5.2"
    assert gpu["reading"].pop("at")
    assert gpu["reading"] == {
        "used_mb": 1024,
        "utilisation": 37.0,
        "mean_utilisation": 21.5,
        "temperature_c": 65.0,
        "power_w": None,
        "processes": [{"pid": 17, "name": "python", "used_mb": 512}],
        "xid_errors": [{"at": "2026-01-02T03:04:05.000000Z", "xid": 31, "fatal": False}],
    }
    listed = world.call("admin", "GET", "/v1/gpus").json["gpus"]
    assert [gpu["reading"] is not None for gpu in listed[:2]] == [True, False]


def test_admins_see_how_often_a_host_reports_and_its_problems(world):
    read(world, interval=10.0, problems=["a fan is broken"])
    host = world.call("admin", "GET", "/v1/hosts/gpu1").json["host"]
    assert (host["monitor_interval"], host["problems"]) == (10.0, ["a fan is broken"])
    with world.database.write() as session:
        row = hosts.get(session, "gpu1")
        row.monitor_report = {"daemons": {}, "fence": None, "problems": ["the fence failed"]}
    host = world.call("admin", "GET", "/v1/hosts/gpu1").json["host"]
    assert host["problems"] == ["a fan is broken", "the fence failed"]


def test_an_operator_puts_a_gpu_back_after_a_fatal_error(world):
    failed = GpuInfo(
        "GPU-0001-0",
        0,
        "Quadro M4000",
        8192,
        8308,
        fatal_error="XID 79",
        fatal_error_at=datetime.datetime(2026, 1, 2),
    )
    with world.database.write() as session:
        gpus.register(session, "gpu1", "192.168.50.2", [failed])
    gpu = world.call("admin", "GET", "/v1/gpus/GPU-0001-0").json["gpu"]
    assert (gpu["withdrawn"], gpu["awaits_operator"], gpu["disabled"]) == ("XID 79", True, False)
    change = {"gpu": {"disabled": False}}
    gpu = world.call("admin", "PATCH", "/v1/gpus/GPU-0001-0", change).json["gpu"]
    assert (gpu["withdrawn"], gpu["awaits_operator"]) == (None, False)


def test_an_admin_consents_to_the_move_of_a_gpu_to_another_host(world):
    latest = {"OpenStack-API-Version": "gpu-scheduling 1.2"}
    path = "/v1/gpus/GPU-0001-0"
    info = GpuInfo("GPU-0001-0", 9, "Quadro M4000", 8192, 8317)
    others = [
        GpuInfo(f"GPU-0002-{n}", n, "Quadro M4000", 8192, 8308 + n if n else 8308) for n in range(4)
    ]
    adopt = {"adopt": {"host": "gpu2"}}

    def consent(caller: str, **more: object):
        return world.call(caller, "POST", f"{path}/adopt", adopt, **more)

    assert only_error(consent("admin", headers=latest))["code"] == "gsaas.gpu.not-reported"
    with world.database.write() as session:
        gpus.register(session, "gpu2", "192.168.50.3", [*others, info])
    gpu = world.call("admin", "GET", path, headers=latest).json["gpu"]
    assert (gpu["host"], gpu["reported_by"]) == ("gpu1", ["gpu2"])
    assert "reported_by" not in world.call("admin", "GET", path).json["gpu"]
    assert only_error(consent("member", headers=latest))["status"] == 403
    assert "needs microversion 1.2" in only_error(consent("admin"))["detail"]
    gpu = consent("admin", headers=latest).json["gpu"]
    assert (gpu["host"], gpu["reported_by"]) == ("gpu2", [])
    with world.database.write() as session:
        gpus.register(session, "gpu2", "192.168.50.3", [*others, info])
    gpu = world.call("admin", "GET", path).json["gpu"]
    assert (gpu["host"], gpu["withdrawn"], gpu["index"]) == ("gpu2", None, 9)
