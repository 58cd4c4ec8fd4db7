# SPDX-License-Identifier: Apache-2.0
"""Lists are sorted as asked for, page by page, and tell nobody more than the rows that they may see."""

from __future__ import annotations

import pytest

from gsaas.api.schemas import endpoints, gpus, hosts, leases, queue, reservations
from gsaas.db import endpoints as endpoint_rows
from gsaas.db import gpus as gpu_rows
from gsaas.db import hosts as host_rows
from gsaas.db import leases as lease_rows
from gsaas.db import queue as queue_rows
from gsaas.db import reservations as reservation_rows
from tests.api.world import only_error

NEW = {"OpenStack-API-Version": "gpu-scheduling 1.1"}


def listed(world, caller, path):
    """Return the rows of all pages, following the links."""
    noun = path.partition("?")[0].rpartition("/")[2]
    noun = "places" if noun == "queue" else noun
    seen = []
    while path:
        response = world.call(caller, "GET", path, headers=NEW)
        assert response.status_code == 200, response.json
        seen += response.json[noun]
        links = {link["rel"]: link["href"] for link in response.json.get(f"{noun}_links", [])}
        path = links.get("next", "")
    return seen


def refused(world, caller, path, **headers):
    return only_error(world.call(caller, "GET", path, headers=NEW | headers))


@pytest.mark.parametrize(
    ("schema", "rows"),
    [
        (leases, lease_rows),
        (gpus, gpu_rows),
        (hosts, host_rows),
        (endpoints, endpoint_rows),
        (queue, queue_rows),
        (reservations, reservation_rows),
    ],
)
def test_the_keys_that_are_documented_are_those_that_the_database_sorts_by(schema, rows):
    assert set(schema.SORT_KEYS) == set(rows.SORT_KEYS)


@pytest.mark.slow
def test_every_key_of_every_list_sorts_without_losing_a_row(world):
    for size in (1, 2):
        world.launch(count=size, mode="shared", memory_mb=512)
    for noun, schema, count in (
        ("leases", leases, 2),
        ("gpus", gpus, 8),
        ("hosts", hosts, 3),
        ("endpoints", endpoints, 3),
    ):
        for key in schema.SORT_KEYS:
            for direction in ("asc", "desc"):
                path = f"/v1/{noun}?limit=1&sort_key={key}&sort_dir={direction}"
                path += "&all_projects=true" if noun == "leases" else ""
                found = [str(row) for row in listed(world, "admin", path)]
                assert len(set(found)) == len(found) == count, path


def test_several_keys_sort_one_after_the_other_and_links_keep_them(world):
    for name, count in (("b", 1), ("a", 1), ("b", 2), ("a", 2)):
        body = {
            "lease": {"name": name, "cgpus": {"count": count, "mode": "shared", "memory_mb": 64}}
        }
        world.call("member", "POST", "/v1/leases", body)
    path = "/v1/leases?sort_key=name&sort_dir=desc&sort_key=count&limit=1"
    found = [(row["name"], row["cgpus"]["count"]) for row in listed(world, "member", path)]
    assert found == [("b", 1), ("b", 2), ("a", 1), ("a", 2)]


def test_the_queue_is_sorted_for_the_reader_and_keeps_its_turns(world):
    for name in ("late", "early"):
        body = {"lease": {"name": name, "cgpus": {"count": 8}, "server": None, "wait": None}}
        world.call("member", "POST", "/v1/leases", body)
        world.engine.idle = True
    body["lease"]["name"] = "middle"
    world.call("member", "POST", "/v1/leases", body)
    found = listed(world, "member", "/v1/queue?sort_key=name&limit=1")
    assert [row["name"] for row in found] == ["early", "middle"]
    assert [row["position"] for row in found] == [1, 2]


def test_gpus_are_sorted_by_what_is_claimed_of_them(world):
    world.launch(mode="shared", memory_mb=512, policy="first-fit")
    world.launch(mode="shared", memory_mb=1024, policy="worst-fit")
    found = listed(world, "admin", "/v1/gpus?sort_key=used_mb&sort_dir=desc&limit=3")
    assert [gpu["used_mb"] for gpu in found] == sorted(
        (gpu["used_mb"] for gpu in found), reverse=True
    )
    assert found[0]["used_mb"] == 1024


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("leases?sort_key=user_data", "one of id, name, status"),
        ("leases?sort_key=name&sort_key=name", "each time with another value"),
        ("leases?sort_key=name&sort_dir=up", "one of asc, desc"),
        ("leases?sort_dir=asc", "sort_dir is given 1 times"),
        ("leases?changes-since=yesterday", "changes-since"),
        ("leases?changes-since=2026-02-30", "changes-since"),
        ("leases?changes-since=2026-01-01T00:00:00+02:00", "an offset, whose + is %2B in a URL"),
        ("gpus?sort_key=leases", "one of uuid, host"),
    ],
)
def test_an_order_that_does_not_exist_is_refused_by_name(world, path, reason):
    error = refused(world, "admin", f"/v1/{path}")
    assert error["status"] == 400
    assert reason in error["detail"]


@pytest.mark.parametrize("query", ["sort_key=name", "changes-since=2026-01-01"])
def test_an_older_microversion_does_not_know_orders(world, query):
    error = only_error(world.call("member", "GET", f"/v1/leases?{query}"))
    assert error["status"] == 400
    assert "needs microversion 1.1" in error["detail"]


def test_nobody_sorts_by_what_he_may_not_see(world):
    """The order of a tenant's leases by their servers' hosts would tell which of them share a host."""
    assert refused(world, "member", "/v1/leases?sort_key=server_host")["status"] == 403
    assert (
        refused(world, "member", "/v1/leases?sort_key=name&sort_key=server_host")["status"] == 403
    )
    for path in ("/v1/gpus?sort_key=uuid", "/v1/hosts?sort_key=name"):
        assert refused(world, "member", path)["status"] == 403
    assert refused(world, "member", "/v1/endpoints?sort_key=host")["status"] == 403


@pytest.mark.parametrize("key", leases.SORT_KEYS)
def test_sorting_shows_no_row_of_another_project(world, key):
    mine = world.launch("member")["id"]
    world.launch("stranger")
    if key in leases.PLACEMENT_SORT_KEYS:
        return
    for direction in ("asc", "desc"):
        path = f"/v1/leases?sort_key={key}&sort_dir={direction}&limit=1"
        assert [row["id"] for row in listed(world, "member", path)] == [mine]


def test_a_lease_of_another_project_is_no_marker_in_any_order(world):
    theirs = world.launch("stranger")["id"]
    error = refused(world, "member", f"/v1/leases?sort_key=name&marker={theirs}")
    assert error["detail"] == f"the marker {theirs} is not a lease"


def test_changes_are_listed_with_leases_that_have_ended(world):
    kept = world.launch()
    ended = world.launch()
    world.engine.settle()
    world.call("member", "DELETE", f"/v1/leases/{ended['id']}")
    world.engine.settle()
    since = world.call("member", "GET", f"/v1/leases/{ended['id']}").json["lease"]["updated_at"]
    (found,) = listed(world, "member", f"/v1/leases?changes-since={since}")
    assert (found["id"], found["status"]) == (ended["id"], "RELEASED")
    found = listed(world, "member", "/v1/leases?changes-since=2000-01-01&limit=1")
    assert {row["id"] for row in found} == {kept["id"], ended["id"]}
    assert listed(world, "member", "/v1/leases?changes-since=2999-01-01T00:00:00%2B02:00") == []


def test_pages_of_changes_lose_no_lease_that_changes_between_them(world):
    """The lease at the end of a page changes, and would be the last one of all in the order of changes."""
    made = [world.launch(mode="shared", memory_mb=64)["id"] for _ in range(6)]
    path, seen = "/v1/leases?changes-since=2026-01-01&limit=2", []
    while path:
        answer = world.call("member", "GET", path, headers=NEW).json
        seen += [lease["id"] for lease in answer["leases"]]
        with world.database.writing() as connection:
            lease_rows.update(connection, seen[-1], name=f"changed after {len(seen)}")
        links = answer.get("leases_links", [])
        path = links[0]["href"] if links and len(seen) < 20 else None
    assert set(made) == set(seen)
    assert seen[:6] == made


def test_changes_come_in_the_order_in_which_they_were_made(world):
    first, second = (world.launch(mode="shared", memory_mb=64)["id"] for _ in range(2))
    with world.database.writing() as connection:
        lease_rows.update(connection, first, name="changed")
    found = listed(world, "member", "/v1/leases?changes-since=2026-01-01")
    assert [lease["id"] for lease in found] == [second, first]


@pytest.mark.parametrize("time", ["", "x", "2026-02-30T00:00:00Z", "2026-01-01"])
def test_a_marker_with_a_time_that_is_none_is_refused(world, time):
    lease_id = world.launch()["id"]
    path = f"/v1/leases?changes-since=2026-01-01&marker={time}_{lease_id}"
    status = world.call("member", "GET", path, headers=NEW).status_code
    assert status == (200 if time == "2026-01-01" else 400)


def test_the_document_says_since_when_a_parameter_exists(world):
    document = world.call(None, "GET", "/v1/openapi.json").json
    parameters = {
        each["name"]: each["schema"]
        for each in document["paths"]["/v1/leases"]["get"]["parameters"]
    }
    for name in ("sort_key", "sort_dir", "changes-since"):
        assert parameters[name]["x-openstack"] == {"min-ver": "1.1"}


def test_the_client_sorts_and_lists_changes(desk):
    for name in ("b", "a", "c"):
        assert desk.type("-l", "-ncgpus=1", f"-name={name}")[0] == 0
    since = desk.read("show", "c")["updated_at"]
    names = ("list", "-c=name", "-f", "value")
    assert desk.type(*names, "-sort=name")[1].split() == ["a", "b", "c"]
    assert desk.type(*names, "-sort=created_at:desc")[1].split() == ["c", "a", "b"]
    assert desk.type(*names, "-sort=count", "-sort=name:desc")[1].split() == ["c", "b", "a"]
    assert desk.type("-t", "-id=a")[0] == 0
    changed = desk.type(*names, f"-changes-since={since}", "-sort=name")[1].split()
    assert changed == ["a", "c"]
    status, _, error = desk.type("list", "-sort=name:up")
    assert (status, "asc or desc" in error) == (2, True)
