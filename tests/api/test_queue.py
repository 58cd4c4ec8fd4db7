# SPDX-License-Identifier: Apache-2.0
"""Waiting for GPUs over HTTP: asking, being notified, giving up and disconnecting."""

from __future__ import annotations

import datetime
import http.client
import json
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from gsaas.db import gpus, leases
from gsaas.gpgpums import queue_manager
from tests.api import server
from tests.api.world import World, only_error, token
from tests.support.waiting import until

ALL = {"count": 8}
ONE = {"count": 1}


@pytest.fixture
def world(tmp_path) -> Iterator[World]:
    made = World.build(tmp_path, settings="[queue]\nclient_timeout = 20\nrecheck_interval = 60\n")
    yield made
    made.database.close()


@pytest.fixture
def url(world) -> Iterator[str]:
    with server.serving(world.app) as found:
        yield found


@pytest.fixture
def later() -> Iterator[Callable[..., Future]]:
    with ThreadPoolExecutor() as pool:
        yield pool.submit


def ask(world: World, cgpus: Any = ONE, caller: str = "member", path: str = "", **more: Any) -> Any:
    lease = {"cgpus": cgpus, "server": None} | more
    return world.call(caller, "POST", "/v1/leases" + path, {"lease": lease})


def take(world: World, cgpus: Any, caller: str = "member") -> str:
    response = ask(world, cgpus, caller)
    assert response.status_code == 201, response.json
    return response.json["lease"]["id"]


def queue_up(world: World, cgpus: Any = ONE, **more: Any) -> str:
    response = ask(world, cgpus, **({"wait": None} | more))
    assert (response.status_code, response.json["lease"]["status"]) == (202, "QUEUED")
    return response.json["lease"]["id"]


def show(world: World, lease_id: str, query: str = "") -> dict[str, Any]:
    return world.call("member", "GET", f"/v1/leases/{lease_id}{query}").json["lease"]


def give_back(world: World, lease_id: str) -> dict[str, Any]:
    response = world.call("member", "DELETE", f"/v1/leases/{lease_id}")
    assert response.status_code == 202
    return response.json["lease"]


def places(world: World, caller: str = "admin") -> list[str]:
    answer = world.call(caller, "GET", "/v1/queue").json
    return [place["lease_id"] for place in answer["places"]]


def await_subscriber(world: World, lease_id: str) -> None:
    """Return once a client waits for the lease."""
    until(lambda: world.subscriptions.has_subscribers(lease_id), "a client to wait")


def test_without_wait_the_answer_is_busy_or_impossible(world):
    take(world, ALL)

    busy, impossible = only_error(ask(world)), only_error(ask(world, {"count": 9}))

    assert (busy["status"], busy["code"]) == (409, "gsaas.capacity.busy")
    assert (impossible["status"], impossible["code"]) == (409, "gsaas.capacity.impossible")


def test_what_can_never_fit_is_not_queued(world):
    error = only_error(ask(world, {"count": 9}, wait=None))

    assert error["code"] == "gsaas.capacity.impossible"
    assert places(world) == []


def test_a_waiting_request_sees_its_position_and_an_estimate(world):
    first = take(world, ALL)
    with world.database.write() as session:
        leases.update(session.connection(), first, claimed_at=ago(10))
    give_back(world, first)
    take(world, ALL)
    queue_up(world)

    lease = ask(world, wait=60).json["lease"]

    assert (lease["queue"]["position"], lease["queue"]["length"]) == (2, 2)
    # One lease holds GPUs now, and the one before held its for 10 s: a turn every 10 s.
    assert lease["queue"]["estimate_seconds"] == pytest.approx(20, abs=0.5)
    assert (lease["devices"], lease["cgpus"]["policy"]) == ([], None)
    assert lease["wait_until"] is not None


def test_a_request_that_does_not_wait_is_told_how_long_it_would(world):
    first = take(world, ALL)
    with world.database.write() as session:
        leases.update(session.connection(), first, claimed_at=ago(10))
    give_back(world, first)
    take(world, ALL)
    queue_up(world, ALL)
    for more in ({}, {"server": {}}):
        facts = only_error(ask(world, **more))["gsaas"]
        assert facts["estimate_seconds"] == pytest.approx(20, abs=0.5)
    facts = only_error(ask(world, {"count": 9}))["gsaas"]
    assert "estimate_seconds" not in facts


def test_without_history_there_is_no_estimate(world):
    take(world, ALL)
    assert "estimate_seconds" not in only_error(ask(world))["gsaas"]


def test_without_history_a_place_has_no_estimate(world):
    take(world, ALL)

    assert ask(world, wait=None).json["lease"]["queue"]["estimate_seconds"] is None


def test_a_long_poll_is_answered_at_the_moment_of_a_release(world, later):
    holder = take(world, ALL)
    waiting = queue_up(world)
    poll = later(show, world, waiting, "?while_status=QUEUED&timeout=60")
    await_subscriber(world, waiting)

    give_back(world, holder)

    lease = poll.result(timeout=30)
    assert (lease["status"], lease["queue"]) == ("ACTIVE", None)
    assert [event["event"] for event in lease["events"]] == ["queue", "claim", "activate"]
    assert lease["timings"]["queue"] > 0


def test_the_request_itself_may_be_held_back_until_it_is_its_turn(world, later):
    holder = take(world, ALL)
    request = later(ask, world, wait=None, attended=True, path="?timeout=60")
    (waiting,) = until(lambda: places(world), "a place")
    await_subscriber(world, waiting)

    give_back(world, holder)

    response = request.result(timeout=30)
    assert response.status_code == 201
    assert response.json["environment"]["GSAAS_LEASE"] == waiting


@pytest.mark.slow
def test_a_poll_whose_time_is_over_says_how_it_stands(world):
    take(world, ALL)
    waiting = queue_up(world)

    assert show(world, waiting, "?while_status=QUEUED&timeout=0")["status"] == "QUEUED"


def test_a_poll_of_another_status_than_the_lease_has_is_answered_at_once(world):
    holder = take(world, ALL)

    assert show(world, holder, "?while_status=QUEUED&timeout=60")["status"] == "ACTIVE"


def test_a_deleted_request_leaves_the_queue_to_the_next_one(world):
    take(world, {"count": 7})
    greedy = queue_up(world, {"count": 2})
    modest = queue_up(world)

    assert give_back(world, greedy)["status"] == "RELEASED"

    assert (show(world, greedy)["fault"], show(world, modest)["status"]) == (None, "ACTIVE")


@pytest.mark.slow
def test_a_wait_that_is_over_is_released_and_says_so(world):
    take(world, ALL)
    waiting = queue_up(world, wait=1)

    lease = show(world, waiting, "?while_status=QUEUED&timeout=60")

    assert lease["status"] == "RELEASED"
    assert lease["fault"] == {"step": "queue", "message": queue_manager.TIME_OVER}


def test_priorities_above_0_are_for_admins_and_all_are_bounded(world):
    take(world, ALL)
    usual = queue_up(world)
    polite = queue_up(world, priority=-5)
    response = ask(world, caller="admin of blue", wait=None, priority=5)
    urgent = response.json["lease"]["id"]

    assert places(world) == [urgent, usual, polite]
    assert only_error(ask(world, wait=None, priority=1))["code"] == "gsaas.forbidden"
    error = only_error(ask(world, caller="admin", wait=None, priority=101))
    assert error["detail"] == "lease.priority is 101; it must be from -100 to 100"


def test_only_a_request_that_waits_can_be_attended(world):
    assert "lease.wait" in only_error(ask(world, attended=True))["detail"]


@pytest.mark.parametrize(
    ("noun", "path", "left"), [("gpu", "/v1/gpus/GPU-0001-0", 7), ("host", "/v1/hosts/gpu1", 4)]
)
def test_what_is_enabled_serves_waiting_requests(world, noun, path, left):
    world.call("admin", "PATCH", path, {noun: {"disabled": True}})
    take(world, {"count": left})
    waiting = queue_up(world)

    world.call("admin", "PATCH", path, {noun: {"disabled": False}})

    assert show(world, waiting)["status"] == "ACTIVE"


def test_tenants_see_their_own_places_and_admins_see_all(world):
    take(world, ALL)
    others = queue_up(world, caller="stranger")
    own = queue_up(world)

    seen = world.call("member", "GET", "/v1/queue").json
    assert seen["totals"] == {"length": 2, "own": 1}
    assert [(p["lease_id"], p["position"]) for p in seen["places"]] == [(own, 2)]
    assert places(world, "admin") == [others, own]


def test_the_queue_comes_in_pages(world):
    take(world, ALL)
    expected = [queue_up(world) for _ in range(3)]

    found, path = [], "/v1/queue?limit=2"
    while path:
        page = world.call("member", "GET", path).json
        found += [place["lease_id"] for place in page["places"]]
        links = page.get("places_links")
        path = links and links[0]["href"]

    assert found == expected


def test_a_check_says_that_other_requests_wait(world):
    take(world, {"count": 7})
    queue_up(world, {"count": 2})

    check = world.call("member", "POST", "/v1/checks", {"check": ONE}).json["check"]

    assert (check["fits"], check["code"]) == (False, "gsaas.capacity.busy")
    assert "1 request waits in the queue" in check["reason"]


def test_a_waiting_lease_with_a_server_is_booted_when_it_is_its_turn(world):
    holder = take(world, ALL)
    waiting = queue_up(world, server={"imageRef": "debian"})
    assert (waiting, "blue") in world.engine.woken  # so that the engine has the token

    give_back(world, holder)
    assert show(world, waiting)["status"] == "CLAIMED"
    world.engine.settle()

    assert show(world, waiting)["status"] == "ACTIVE"


def test_a_request_that_waits_keeps_the_defaults_that_the_cloud_had_when_it_came(world):
    world.cloud.defaults = {"imageRef": "debian"}
    holder = take(world, ALL)
    queue_up(world, server={})
    world.cloud.defaults = {"imageRef": "another"}

    give_back(world, holder)
    world.engine.settle()

    assert world.cloud.asked == [{"imageRef": "debian"}]


def test_what_the_cloud_refuses_is_not_queued(world):
    take(world, ALL)

    response = ask(world, wait=None, server={"imageRef": "nonsense"})

    assert only_error(response)["code"] == "gsaas.server.refused"
    assert places(world) == []


@pytest.mark.slow
def test_the_request_of_a_client_that_disconnects_leaves_the_queue(world, url):
    take(world, ALL)
    waiting = queue_up(world, attended=True)
    connection = connect(url)
    connection.request(
        "GET",
        f"/v1/leases/{waiting}?while_status=QUEUED&timeout=60",
        headers={"X-Auth-Token": token("member")},
    )
    await_subscriber(world, waiting)

    connection.close()

    until(lambda: not places(world), "the place to be given back")
    assert show(world, waiting)["fault"]["message"] == "the client that waited for it disconnected"


@pytest.mark.slow
def test_another_client_that_disconnects_changes_nothing(world, url):
    take(world, ALL)
    waiting = queue_up(world, attended=True)
    connection = connect(url)
    connection.request(
        "GET",
        f"/v1/leases/{waiting}?while_status=QUEUED&timeout=60",
        headers={"X-Auth-Token": token("reader")},
    )
    await_subscriber(world, waiting)

    connection.close()

    until(lambda: not world.subscriptions.has_subscribers(waiting), "the poll to end")
    assert places(world) == [waiting]


def test_gpus_for_a_client_that_has_just_disconnected_are_released(world, url, monkeypatch):
    holder = take(world, ALL)
    connection = connect(url)
    body = json.dumps({"lease": {"cgpus": ONE, "server": None, "wait": None, "attended": True}})
    headers = {"X-Auth-Token": token("member"), "Content-Type": "application/json"}
    connection.request("POST", "/v1/leases?timeout=60", body, headers)
    (waiting,) = until(lambda: places(world), "a place")
    await_subscriber(world, waiting)

    # Both at once: the next read finds the lease ACTIVE and the client disconnected.
    connection.sock.shutdown(socket.SHUT_RDWR)
    connection.close()
    give_back(world, holder)

    until(lambda: show(world, waiting)["status"] == "RELEASED", "it to be released")
    assert take(world, ALL)


def launch_and_wait(url: str, key: str) -> http.client.HTTPConnection:
    """Return a connection on which an attended launch with *key* waits for its answer."""
    connection = connect(url)
    body = json.dumps({"lease": {"cgpus": ONE, "server": None, "wait": None, "attended": True}})
    headers = {"X-Auth-Token": token("member"), "Content-Type": "application/json"}
    connection.request("POST", "/v1/leases?timeout=60", body, headers | {"Idempotency-Key": key})
    return connection


def answer(connection: http.client.HTTPConnection) -> dict[str, Any]:
    response = connection.getresponse()
    return json.loads(response.read())["lease"] | {"http_status": response.status}


@pytest.mark.slow
def test_a_launch_that_is_repeated_after_its_connection_broke_keeps_its_place(world, url):
    holder = take(world, ALL)
    broken = launch_and_wait(url, "k")
    (waiting,) = until(lambda: places(world), "a place")
    await_subscriber(world, waiting)

    broken.close()
    until(lambda: not world.subscriptions.has_subscribers(waiting), "the request to end")
    assert places(world) == [waiting]
    repeated = launch_and_wait(url, "k")
    await_subscriber(world, waiting)
    give_back(world, holder)

    lease = answer(repeated)
    assert (lease["http_status"], lease["id"], lease["status"]) == (201, waiting, "ACTIVE")
    assert world.claims.run_audit() == []
    with world.database.read() as session:
        assert leases.get(session.connection(), waiting).waiter_seen_at is None


def serve_a_broken_launch(world: World, url: str) -> str:
    """Return a lease that was served while the connection of its launch, with the key "k", was broken."""
    holder = take(world, ALL)
    broken = launch_and_wait(url, "k")
    (waiting,) = until(lambda: places(world), "a place")
    await_subscriber(world, waiting)
    # Both at once: the next read finds the lease ACTIVE and the client disconnected.
    broken.sock.shutdown(socket.SHUT_RDWR)
    broken.close()
    give_back(world, holder)
    until(lambda: not world.subscriptions.has_subscribers(waiting), "the request to end")
    return waiting


def test_a_launch_that_is_repeated_gets_the_gpus_that_came_while_its_connection_was_broken(
    world, url
):
    waiting = serve_a_broken_launch(world, url)

    lease = answer(launch_and_wait(url, "k"))

    assert (lease["http_status"], lease["id"], lease["status"]) == (201, waiting, "ACTIVE")
    with world.database.read() as session:
        assert leases.get(session.connection(), waiting).waiter_seen_at is None


def test_gpus_for_a_broken_launch_that_is_not_repeated_are_released_by_the_audit(world, url):
    waiting = serve_a_broken_launch(world, url)
    assert world.claims.run_audit() == []
    with world.database.write() as session:
        lease = leases.get(session.connection(), waiting)
        assert lease.waiter_seen_at is not None
        leases.update(session.connection(), waiting, waiter_seen_at=ago(21))

    assert world.claims.run_audit() == [waiting]

    assert show(world, waiting)["status"] == "RELEASED"


@pytest.mark.slow
def test_a_client_that_still_waits_in_another_request_keeps_its_place(world, url):
    take(world, ALL)
    waiting = queue_up(world, attended=True)
    first, second = connect(url), connect(url)
    for connection, seconds in ((first, 60), (second, 3)):
        connection.request(
            "GET",
            f"/v1/leases/{waiting}?while_status=QUEUED&timeout={seconds}",
            headers={"X-Auth-Token": token("member")},
        )
    await_subscriber(world, waiting)

    first.close()

    assert answer(second)["status"] == "QUEUED"


def test_an_attended_request_whose_client_is_silent_is_not_served_and_leaves_the_queue(world):
    holder = take(world, ALL)
    silent = queue_up(world, attended=True)
    unattended = queue_up(world)
    with world.database.write() as session:
        leases.update(session.connection(), silent, waiter_seen_at=ago(21))

    give_back(world, holder)
    assert [show(world, one)["status"] for one in (silent, unattended)] == ["QUEUED", "ACTIVE"]

    assert world.claims.run_audit() == []
    lease = show(world, silent)
    assert (lease["status"], lease["fault"]["message"]) == ("RELEASED", queue_manager.SILENT)


def test_a_client_that_keeps_asking_is_recorded_as_present(world):
    take(world, ALL)
    waiting = queue_up(world, attended=True)
    with world.database.write() as session:
        leases.update(session.connection(), waiting, waiter_seen_at=ago(15))

    show(world, waiting, "?while_status=QUEUED&timeout=0")

    with world.database.read() as session:
        assert leases.get(session.connection(), waiting).waiter_seen_at > ago(5)


def test_gpus_that_a_client_never_learned_of_are_released(world):
    holder = take(world, ALL)
    waiting = queue_up(world, attended=True)
    give_back(world, holder)
    assert show(world, waiting)["status"] == "ACTIVE"
    with world.database.write() as session:
        leases.update(session.connection(), waiting, waiter_seen_at=ago(21))

    assert world.claims.run_audit() == [waiting]

    assert show(world, waiting)["status"] == "RELEASED"


def test_gpus_that_a_client_knows_of_stay_with_its_lease(world):
    holder = take(world, ALL)
    waiting = queue_up(world, attended=True)
    give_back(world, holder)
    show(world, waiting, "?while_status=QUEUED&timeout=0")

    with world.database.read() as session:
        assert leases.get(session.connection(), waiting).waiter_seen_at is None
    assert world.claims.run_audit() == []


def test_a_request_that_can_never_be_served_any_more_leaves_the_queue(world):
    take(world, ONE)
    hopeless, modest = queue_up(world, ALL), queue_up(world)
    with world.database.write() as session:
        gpus.register(session, "gpu2", "192.168.50.3", [])

    world.claims.run_audit()

    assert "can no longer give" in show(world, hopeless)["fault"]["message"]
    assert show(world, modest)["status"] == "ACTIVE"


def test_beyond_the_limit_of_long_polls_a_client_is_answered_at_once(tmp_path):
    world = World.build(tmp_path, settings="[queue]\nlong_polls = 0\n")
    take(world, ALL)
    waiting = queue_up(world)

    assert show(world, waiting, "?while_status=QUEUED&timeout=60")["status"] == "QUEUED"
    world.database.close()


@pytest.mark.slow
def test_many_wait_and_each_is_served_once_in_order(world, later):
    holder = take(world, ALL)
    expected = [queue_up(world, attended=True) for _ in range(20)]
    served: list[str] = []
    lock = threading.Lock()

    def client(lease_id: str) -> str:
        status = show(world, lease_id, "?while_status=QUEUED&timeout=60")["status"]
        with lock:
            served.append(lease_id)
        give_back(world, lease_id)
        return status

    clients = [later(client, lease_id) for lease_id in expected]
    give_back(world, holder)

    assert {client.result(timeout=60) for client in clients} == {"ACTIVE"}
    assert sorted(served) == sorted(expected)
    claimed = [claimed_at(world, lease_id) for lease_id in expected]
    assert claimed == sorted(claimed)


def claimed_at(world: World, lease_id: str) -> datetime.datetime:
    with world.database.read() as session:
        return leases.get(session.connection(), lease_id).claimed_at


def ago(seconds: float) -> datetime.datetime:
    now = datetime.datetime.now(datetime.UTC).replace(tzinfo=None)
    return now - datetime.timedelta(seconds=seconds)


def connect(url: str) -> http.client.HTTPConnection:
    return http.client.HTTPConnection(url.removeprefix("http://"), timeout=60)
