# SPDX-License-Identifier: Apache-2.0
"""Leases as tenants use them: launch, show, list, environment, terminate."""

from __future__ import annotations

import json
import os
import subprocess
import uuid
from base64 import b64encode
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from gsaas.db import endpoints, leases
from tests.api.world import World, only_error


def test_a_launch_answers_with_the_lease_its_address_and_what_the_cloud_notes(world):
    body = {
        "lease": {
            "name": "training",
            "cgpus": {"count": 2, "mode": "shared", "memory_mb": 2048, "policy": "first-fit"},
            "server": {"imageRef": "debian", "flavorRef": "small"},
        }
    }
    response = world.call("member", "POST", "/v1/leases", body)

    assert response.status_code == 202
    lease = response.json["lease"]
    assert response.headers["Location"] == f"/v1/leases/{lease['id']}"
    assert lease["links"] == [{"rel": "self", "href": response.headers["Location"]}]
    assert response.json["notes"] == ["flavorRef: ignored by this cloud"]
    assert list(lease.pop("timings")) == ["gpu_selection", "check", "claim"]
    assert lease | {"id": 0, "created_at": 0, "updated_at": 0, "links": 0} == {
        "id": 0,
        "name": "training",
        "status": "CLAIMED",
        "project_id": "blue",
        "user_id": "member",
        "created_at": 0,
        "updated_at": 0,
        "released_at": None,
        "kept_until": None,
        "queued_at": None,
        "wait_until": None,
        "priority": 0,
        "queue": None,
        "cgpus": {
            "count": 2,
            "mode": "shared",
            "memory_mb": 2048,
            "locality": "any",
            "policy": "first-fit",
        },
        "remoting": "simulated",
        "access": "masked",
        "server": {"id": None},
        "consumer": None,
        "degraded": False,
        "devices": [
            {"index": 0, "masked_address": "169.254.71.1:8308", "memory_mb": 2048},
            {"index": 1, "masked_address": "169.254.71.2:8308", "memory_mb": 2048},
        ],
        "fault": None,
        "dropped_packets": None,
        "links": 0,
    }
    assert world.engine.woken == [(lease["id"], "blue")]


def test_a_minimal_launch_gets_whole_gpus_a_name_and_the_default_policy(world):
    response = world.call("member", "POST", "/v1/leases", {"lease": {"cgpus": {"count": 1}}})
    lease = response.json["lease"]
    assert lease["name"] == f"lease-{lease['id'][:8]}"
    assert lease["cgpus"] == {
        "count": 1,
        "mode": "exclusive",
        "memory_mb": None,
        "locality": "any",
        "policy": "least-load-fit",
    }
    assert [device["memory_mb"] for device in lease["devices"]] == [8192]


def test_only_admins_see_which_gpus_hosts_and_addresses_are_behind_a_lease(world):
    lease_id = world.launch()["id"]
    world.engine.settle()
    path = f"/v1/leases/{lease_id}"

    shown = world.call("admin", "GET", path).json["lease"]
    assert shown["devices"] == [
        {
            "index": 0,
            "masked_address": "169.254.71.1:8308",
            "memory_mb": 8192,
            "gpu_uuid": "GPU-0001-0",
            "gpu_host": "gpu1",
            "real_address": "192.168.50.2:8308",
        }
    ]
    assert shown["server"]["host"] == "gpu1"

    for caller in ("member", "manager", "reader", "service"):
        text = world.call(caller, "GET", path).text
        for secret in ("gpu1", "GPU-0001-0", "192.168."):
            assert secret not in text, caller


def test_a_lease_shows_its_events(world):
    lease_id = world.launch()["id"]
    world.engine.settle()
    for caller, details in (("admin", {"on host gpu1"}), ("member", {None})):
        events = world.call(caller, "GET", f"/v1/leases/{lease_id}").json["lease"]["events"]
        assert [(event["event"], event["status"]) for event in events] == [
            ("claim", "CLAIMED"),
            ("boot", "BOOTING"),
            ("activate", "ACTIVE"),
        ]
        assert {event["detail"] for event in events[1:]} == details


def test_a_lease_in_error_says_which_step_failed_and_why(world):
    lease_id = world.launch()["id"]
    world.engine.fail(lease_id, "create-server", "the flavor has no room for it")
    lease = world.call("member", "GET", f"/v1/leases/{lease_id}").json["lease"]
    assert lease["status"] == "ERROR"
    assert lease["fault"] == {
        "step": "create-server",
        "message": "the flavor has no room for it",
    }
    assert lease["devices"] == []


def test_a_lease_shows_what_its_host_dropped_of_its_packets(world):
    lease_id = world.launch()["id"]
    world.engine.settle()
    server = world.cloud.servers[lease_id]
    report = {
        "bindings": {
            server.port.id: {"installed": True, "dropped_packets": {"unmapped": 3, "refused": 0}},
            "another": {"installed": True, "dropped_packets": {"unmapped": 9, "refused": 9}},
        },
        "problems": [],
    }
    with world.database.write() as session:
        endpoints.register(session, server.host, report)
    lease = world.call("member", "GET", f"/v1/leases/{lease_id}").json["lease"]
    assert lease["dropped_packets"] == {"unmapped": 3, "refused": 0}


@pytest.mark.parametrize(
    "told", [{}, {"dropped_packets": {}}, {"dropped_packets": {"unmapped": 3}}]
)
def test_a_lease_shows_all_counts_of_dropped_packets_when_its_host_reports_only_some(world, told):
    lease_id = world.launch()["id"]
    world.engine.settle()
    server = world.cloud.servers[lease_id]
    report = {"bindings": {server.port.id: {"installed": True, **told}}, "problems": []}
    with world.database.write() as session:
        endpoints.register(session, server.host, report)
    lease = world.call("member", "GET", f"/v1/leases/{lease_id}").json["lease"]
    unmapped = told.get("dropped_packets", {}).get("unmapped", 0)
    assert lease["dropped_packets"] == {"unmapped": unmapped, "refused": 0}


def test_a_lease_says_what_is_refused_to_its_vm_and_what_to_do(world):
    lease_id = world.launch()["id"]
    world.engine.settle()
    server = world.cloud.servers[lease_id]
    report = {
        "bindings": {server.port.id: {"installed": True}},
        "refusals": {
            server.port.id: {"seconds": 60, "foreign": 3, "unmapped": 0, "source": "10.0.1.9"},
            "another": {"seconds": 60, "unmapped": 9},
        },
    }
    with world.database.write() as session:
        endpoints.register(session, server.host, report)

    def read(version: str) -> dict:
        headers = {"OpenStack-API-Version": f"gpu-scheduling {version}"}
        path = f"/v1/leases/{lease_id}"
        return world.call("member", "GET", path, headers=headers).json["lease"]

    (problem,) = read("1.10")["problems"]
    assert problem.startswith("packets that the VM sent to masked addresses from 10.0.1.9")
    assert ": 3 dropped in the last " in problem
    assert f"it has {server.port.ip}" in problem
    assert "problems" not in read("1.9")
    with world.database.write() as session:
        endpoints.register(session, server.host, {**report, "refusals": {}})
    assert read("1.10")["problems"] == []


@pytest.mark.parametrize("format", ["json", "shell", "dotenv"])
def test_the_environment_reads_the_same_in_every_format(world, format):
    lease_id = world.launch(count=2, mode="shared", memory_mb=1024)["id"]
    response = world.call("member", "GET", f"/v1/leases/{lease_id}/environment?format={format}")
    assert response.status_code == 200
    expected = {
        "RCUDA_DEVICE_COUNT": "2",
        "RCUDA_DEVICE_0": "169.254.71.1:0",
        "RCUDA_DEVICE_1": "169.254.71.2:0",
        "RCUDA_RESERVED_GPU_MEMORY_0": "1024",
        "RCUDA_RESERVED_GPU_MEMORY_1": "1024",
    }
    match format:
        case "json":
            assert response.json == {"environment": expected}
        case "shell":
            assert as_a_shell_reads(response.text) == expected
        case "dotenv":
            assert as_a_shell_reads(f"set -a\n{response.text}") == expected
            assert set(response.text.splitlines()) == {f"{k}={v}" for k, v in expected.items()}


def as_a_shell_reads(lines: str) -> dict[str, str]:
    """Return the variables that *lines* leave in the environment of a program."""
    found = subprocess.run(
        ["/bin/sh", "-c", f"{lines}\nexec env -u PWD -u _ -u SHLVL"],
        env={"PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    )
    variables = dict(line.split("=", 1) for line in found.stdout.splitlines())
    del variables["PATH"]
    return variables


def test_the_environment_is_that_of_the_driver_the_lease_was_made_for(world, tmp_path):
    lease_id = world.launch()["id"]
    after_the_change = World.build(tmp_path, driver="lupine", hosts=0)
    response = after_the_change.call("member", "GET", f"/v1/leases/{lease_id}/environment")
    assert "RCUDA_DEVICE_0" in response.json["environment"]


def test_a_lease_without_gpus_has_no_environment(world):
    lease_id = world.launch()["id"]
    world.call("member", "DELETE", f"/v1/leases/{lease_id}")
    world.engine.settle()
    error = only_error(world.call("member", "GET", f"/v1/leases/{lease_id}/environment"))
    assert (error["status"], error["code"]) == (409, "gsaas.lease.holds-nothing")


def test_terminating_releases_everything(world):
    before = world.call("admin", "GET", "/v1/gpus").json["totals"]
    lease_id = world.launch(count=8)["id"]
    world.engine.settle()
    assert world.call("admin", "GET", "/v1/gpus").json["totals"]["idle"] == 0

    response = world.call("member", "DELETE", f"/v1/leases/{lease_id}")
    assert (response.status_code, response.json["lease"]["status"]) == (202, "RELEASING")
    world.engine.settle()

    lease = world.call("member", "GET", f"/v1/leases/{lease_id}").json["lease"]
    assert (lease["status"], lease["devices"]) == ("RELEASED", [])
    assert lease["released_at"] is not None
    assert world.call("admin", "GET", "/v1/gpus").json["totals"] == before


def test_terminating_twice_is_terminating_once(world):
    lease_id = world.launch()["id"]
    for _ in range(2):
        response = world.call("member", "DELETE", f"/v1/leases/{lease_id}")
        assert (response.status_code, response.json["lease"]["status"]) == (202, "RELEASING")
    world.engine.settle()
    error = only_error(world.call("member", "DELETE", f"/v1/leases/{lease_id}"))
    assert (error["status"], error["code"]) == (404, "gsaas.lease.released")
    assert error["detail"] == f"lease {lease_id} is released already"


def test_terminating_is_possible_from_every_state_before(world):
    fresh = world.launch()["id"]
    active = world.launch()["id"]
    broken = world.launch()["id"]
    world.engine.settle()
    world.engine.fail(broken, "boot", "no")
    assert world.launch()["status"] == "CLAIMED"
    for lease_id in (fresh, active, broken):
        assert world.call("member", "DELETE", f"/v1/leases/{lease_id}").status_code == 202


def test_a_list_has_the_live_leases_of_the_callers_project_oldest_first(world):
    mine = [world.launch()["id"] for _ in range(3)]
    world.launch("stranger")
    gone = world.launch()["id"]
    world.call("member", "DELETE", f"/v1/leases/{gone}")
    world.engine.settle()
    listed = world.call("reader", "GET", "/v1/leases").json
    assert [lease["id"] for lease in listed["leases"]] == mine
    assert "leases_links" not in listed


def test_a_list_can_be_narrowed(world):
    first, second = world.launch()["id"], world.launch()["id"]
    world.engine.settle()
    third = world.launch()["id"]
    world.call("member", "DELETE", f"/v1/leases/{second}")
    world.engine.settle()
    server_id = world.cloud.servers[first].id
    for query, expected in (
        (f"server_id={server_id}", [first]),
        ("server_id=unknown", []),
        ("status=ACTIVE", [first, third]),
        ("status=RELEASED", [second]),
        (f"name=lease-{third[:8]}", [third]),
        ("status=ERROR&name=x", []),
    ):
        listed = world.call("reader", "GET", f"/v1/leases?{query}").json["leases"]
        assert [lease["id"] for lease in listed] == expected, query


def test_a_list_of_all_projects_is_for_admins_and_services(world):
    leases = [world.launch()["id"], world.launch("stranger")["id"]]
    for caller in ("admin", "service"):
        listed = world.call(caller, "GET", "/v1/leases?all_projects=true").json["leases"]
        assert [lease["id"] for lease in listed] == leases
        assert world.call(caller, "GET", "/v1/leases?all_projects=false").json["leases"] == []
    refused = world.call("manager", "GET", "/v1/leases?all_projects=true")
    assert only_error(refused)["code"] == "gsaas.forbidden"


def test_pages_follow_one_another_to_the_end(world):
    leases = [world.launch()["id"] for _ in range(5)]
    path, seen, sizes = "/v1/leases?limit=2&status=CLAIMED", [], []
    while path:
        page = world.call("member", "GET", path).json
        seen += [lease["id"] for lease in page["leases"]]
        sizes.append(len(page["leases"]))
        links = {link["rel"]: link["href"] for link in page.get("leases_links", [])}
        path = links.get("next", "")
    assert (seen, sizes) == (leases, [2, 2, 1])


def test_no_page_is_longer_than_the_service_allows(world):
    world.conf.set_override("max_limit", 1, "api")
    world.launch()
    world.launch()
    for query in ("", "?limit=1000000"):
        page = world.call("member", "GET", f"/v1/leases{query}").json
        assert len(page["leases"]) == 1
        assert page["leases_links"][0]["rel"] == "next"


def test_another_projects_lease_and_no_lease_at_all_are_answered_alike(world):
    theirs = world.launch("stranger")["id"]
    nobodys = str(uuid.uuid4())
    before = world.rows()
    for method, tail in (("GET", ""), ("GET", "/environment"), ("DELETE", "")):
        details = []
        for lease_id in (theirs, nobodys):
            response = world.call("member", method, f"/v1/leases/{lease_id}{tail}")
            error = only_error(response)
            assert (error["status"], error["code"]) == (404, "gsaas.not-found")
            details.append(error["detail"].replace(lease_id, "ID"))
        assert details == ["there is no lease ID"] * 2
    assert world.rows() == before


def test_admins_may_terminate_any_lease(world):
    lease_id = world.launch()["id"]
    assert world.call("admin", "DELETE", f"/v1/leases/{lease_id}").status_code == 202


def test_a_full_cloud_says_what_each_filter_excluded_and_what_would_fit(world):
    world.launch(count=6)
    before = world.rows()
    response = world.call("member", "POST", "/v1/leases", {"lease": {"cgpus": {"count": 3}}})
    error = only_error(response)
    assert (error["status"], error["code"]) == (409, "gsaas.capacity.busy")
    assert error["gsaas"]["filters"] == [{"filter": "exclusive", "gpus": 6}]
    assert error["gsaas"]["nearest"] == {
        "count": 2,
        "mode": "exclusive",
        "memory_mb": None,
        "locality": "any",
    }
    assert world.rows() == before


def test_the_error_for_a_request_beyond_the_whole_cloud_says_that_waiting_is_useless(world):
    response = world.call("member", "POST", "/v1/leases", {"lease": {"cgpus": {"count": 9}}})
    error = only_error(response)
    assert (error["status"], error["code"]) == (409, "gsaas.capacity.impossible")
    assert error["gsaas"]["nearest"]["count"] == 8


def test_a_server_that_the_cloud_refuses_changes_nothing(world):
    before = world.rows()
    body = {"lease": {"cgpus": {"count": 1}, "server": {"imageRef": "plan9"}}}
    error = only_error(world.call("member", "POST", "/v1/leases", body))
    assert (error["status"], error["code"]) == (400, "gsaas.server.refused")
    assert error["detail"] == "there is no image plan9"
    assert world.rows() == before
    assert world.engine.woken == []


def test_a_server_that_lacks_what_has_no_default_is_refused_with_all_there_is_to_choose(world):
    world.cloud.missing = [
        {"field": "imageRef", "names": ["debian"], "more": 0},
        {"field": "flavorRef", "names": ["small", "large"], "more": 3},
    ]
    before = world.rows()
    error = only_error(
        world.call("member", "POST", "/v1/leases", {"lease": {"cgpus": {"count": 1}}})
    )
    assert (error["status"], error["code"]) == (400, "gsaas.server.incomplete")
    assert error["gsaas"] == {"missing": world.cloud.missing}
    assert world.rows() == before
    assert world.engine.woken == []


def test_a_lease_has_the_clouds_defaults_for_what_its_owner_left_out(world):
    world.cloud.defaults = {"imageRef": "debian", "flavorRef": "small"}
    body = {"lease": {"cgpus": {"count": 1}, "server": {"flavorRef": "large"}}}
    response = world.call("member", "POST", "/v1/leases", body)
    assert response.json["notes"] == ["chosen: imageRef", "flavorRef: ignored by this cloud"]
    world.engine.settle()
    assert world.cloud.asked == [{"imageRef": "debian", "flavorRef": "large"}]


def test_the_servers_own_fields_reach_the_engine_untouched(world):
    server = {
        "imageRef": "debian",
        "networks": [{"uuid": "n1"}, {"port": "p2"}],
        "metadata": {"é": "\N{PARTY POPPER}", "deep": [[1.5, None, True]]},
        "user_data": b64encode(b"#!/bin/sh\n" + b"echo hello\n" * 20).decode(),
    }
    lease_id = world.launch(server=server)["id"]
    with world.database.read() as session:
        assert leases.get(session.connection(), lease_id).server_request == server


def test_user_data_may_be_broken_into_lines_as_base64_tools_do(world):
    text = b64encode(b"#!/bin/sh\n" * 40).decode()
    broken = "\n".join(text[i : i + 76] for i in range(0, len(text), 76))
    assert world.launch(server={"user_data": broken})["status"] == "CLAIMED"


def test_the_answer_notes_user_data_that_cloud_init_will_ignore(world):
    server = {"imageRef": "debian", "user_data": b64encode(b"hostname=web\n").decode()}
    body = {"lease": {"cgpus": {"count": 1}, "server": server}}
    response = world.call("member", "POST", "/v1/leases", body)
    assert response.status_code == 202
    assert response.json["notes"][0] == (
        "cloud-init will ignore the user data of the request: it begins with 'hostname=web', which is no format of "
        "cloud-init"
    )


def test_user_data_that_nova_would_not_take_is_refused_before_anything_is_claimed(world):
    before = world.rows()
    noise = os.urandom(60000)  # compression does not help here
    body = {
        "lease": {
            "cgpus": {"count": 1},
            "server": {"user_data": b64encode(b"#!/bin/sh\n" + noise).decode()},
        }
    }
    error = only_error(world.call("member", "POST", "/v1/leases", body))
    assert (error["status"], error["code"]) == (400, "gsaas.user-data.too-large")
    assert world.rows() == before


def test_a_middleware_that_shows_few_gpus_says_so(tmp_path):
    world = World.build(tmp_path, driver="lupine")
    before = world.rows()
    error = only_error(
        world.call("member", "POST", "/v1/leases", {"lease": {"cgpus": {"count": 8}}})
    )
    assert (error["status"], error["code"]) == (400, "gsaas.remoting.limit")
    assert world.rows() == before
    world.database.close()


@pytest.fixture
def lupine(tmp_path) -> Iterator[World]:
    world = World.build(tmp_path, driver="lupine", own_daemons=True)
    yield world
    world.database.close()


def test_one_daemon_serves_the_cgpus_of_a_lease_whose_programs_would_confuse_two(lupine):
    body = {"lease": {"cgpus": {"count": 2, "mode": "shared", "memory_mb": 2048}, "server": None}}
    lease = lupine.call("member", "POST", "/v1/leases", body).json["lease"]
    assert "one_daemon" not in lease["cgpus"], "nobody asked for it"
    shown = lupine.call("admin", "GET", f"/v1/leases/{lease['id']}").json["lease"]
    first, second = shown["devices"]
    assert first["gpu_host"] == second["gpu_host"]
    assert first["gpu_uuid"] != second["gpu_uuid"]
    assert first["real_address"] == second["real_address"]
    lupine.engine.settle()
    response = lupine.call("member", "GET", f"/v1/leases/{lease['id']}/environment")
    assert response.json["environment"]["LUPINE_SERVER"] == first["real_address"]


def test_a_refusal_says_what_would_fit_and_what_the_operator_may_allow(lupine):
    for host in ("gpu1", "gpu2"):  # each has four
        lupine.launch(count=1, host=host)
        lupine.launch(count=1, host=host)
        lupine.launch(count=1, host=host)
    wanted = {"count": 2, "mode": "shared", "memory_mb": 2048}
    error = only_error(lupine.call("member", "POST", "/v1/leases", {"lease": {"cgpus": wanted}}))
    assert (error["status"], error["code"]) == (409, "gsaas.capacity.busy")
    assert "the largest request that would fit now is 1 cGPU of 2048 MiB" in error["detail"]
    assert "2 cGPUs of 2048 MiB would fit now with several daemons" in error["detail"]
    assert "[remoting]several_daemons" in error["detail"]
    check = lupine.call("member", "POST", "/v1/checks", {"check": wanted}).json["check"]
    assert (check["fits"], check["nearest"]["count"]) == (False, 1)


def test_links_begin_where_the_operator_says(world):
    world.conf.set_override("public_url", "https://gpu.example.org/", "api")
    lease = world.launch()
    assert lease["links"][0]["href"] == f"https://gpu.example.org/v1/leases/{lease['id']}"


def test_answers_are_plain_json(world):
    world.launch()
    response = world.call("member", "GET", "/v1/leases")
    assert json.loads(response.data)["leases"][0]["name"].startswith("lease-")


def test_many_launches_at_once_share_what_there_is_and_no_more(world):
    body = {"lease": {"cgpus": {"count": 1}}}
    with ThreadPoolExecutor(12) as pool:
        launches = [
            pool.submit(world.call, "member", "POST", "/v1/leases", body) for _ in range(12)
        ]
    statuses = sorted(launch.result().status_code for launch in launches)
    assert statuses == [202] * 8 + [409] * 4
    held = [gpu["leases"] for gpu in world.call("admin", "GET", "/v1/gpus").json["gpus"]]
    assert len({lease_id for (lease_id,) in held}) == 8


def test_many_terminations_at_once_are_one(world):
    lease_id = world.launch()["id"]
    with ThreadPoolExecutor(8) as pool:
        path = f"/v1/leases/{lease_id}"
        deletions = [pool.submit(world.call, "member", "DELETE", path) for _ in range(8)]
    assert {deletion.result().status_code for deletion in deletions} == {202}
    story = world.call("member", "GET", path).json["lease"]["events"]
    assert [event["event"] for event in story] == ["claim", "release"]
