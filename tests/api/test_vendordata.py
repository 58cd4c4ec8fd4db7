# SPDX-License-Identifier: Apache-2.0
"""Vendor data: what Nova is answered when it makes a server whose properties ask for cGPUs."""

from __future__ import annotations

import threading
import uuid
from dataclasses import replace
from typing import Any

import pytest

from gsaas.db import leases
from gsaas.objects.lifecycle import Event, Status
from gsaas.objects.plain_server import PlainServer
from tests.api.world import World, only_error

ALL = "[plain_servers]\nproperties = all\n"
SHARES = {"gsaas:ncgpus": "2", "gsaas:poolmem": "2048", "gsaas:mode": "shared"}
EVERY_GPU = {"gsaas:ncgpus": "8"}
MEMBER = "member,reader"


@pytest.fixture
def make(tmp_path):
    """Makes the world of a test with these settings."""
    worlds: list[World] = []

    def make(settings: str = ALL) -> World:
        worlds.append(World.build(tmp_path, settings=settings))
        return worlds[-1]

    yield make
    for world in worlds:
        world.database.close()


@pytest.fixture
def world(make):
    return make()


def boot(world: World, project: str = "blue", **more: Any) -> str:
    """Have a tenant make a server with Nova, and return its id."""
    server_id = str(uuid.uuid4())
    metadata = {"metadata": SHARES} if "extra_specs" not in more else {}
    world.cloud.plain[server_id] = PlainServer(
        **{
            "id": server_id,
            "project_id": project,
            "user_id": "member",
            "name": "web",
            "host": "compute1",
            "is_usable": True,
            **metadata,
            **more,
        }
    )
    return server_id


def ask(
    world: World, server_id: str, project: str = "blue", roles: str = MEMBER, caller="service"
) -> Any:
    """Ask as Nova does, with all that it sends."""
    body = {
        "project-id": project,
        "instance-id": server_id,
        "image-id": str(uuid.uuid4()),
        "user-data": None,
        "hostname": "web",
        "metadata": {"gsaas:ncgpus": "64"},  # not what Nova has stored
        "boot-roles": roles,
    }
    return world.call(caller, "POST", "/v1/vendordata", body)


def lease_of(world: World, server_id: str) -> Any:
    with world.database.reading() as connection:
        return leases.of_server(connection, server_id)


def count(world: World) -> int:
    return len(world.rows()["leases"])


def test_a_server_gets_a_lease_of_its_owner_and_a_script_with_its_environment(world):
    server_id = boot(world)
    answer = ask(world, server_id)
    assert answer.status_code == 200
    assert answer.content_type == "application/json"
    assert answer.json.startswith("#cloud-boothook\n")
    assert "169.254.71.1" in answer.json
    assert "169.254.71.2" in answer.json
    assert "169.254.71.3" not in answer.json
    lease = lease_of(world, server_id)
    assert (lease.status, lease.project_id, lease.user_id) == (Status.CLAIMED, "blue", "member")
    assert (lease.name, lease.server_id, len(lease.claims)) == ("web", server_id, 2)
    assert world.engine.woken == [(lease.id, "blue")]
    shown = world.call("member", "GET", f"/v1/leases/{lease.id}").json["lease"]
    assert shown["server"] == {"id": server_id}


def test_asking_again_claims_nothing_more(world):
    server_id = boot(world)
    first = ask(world, server_id).json
    assert ask(world, server_id).json == first
    assert count(world) == 1


def test_two_that_ask_at_the_same_moment_make_one_lease(world):
    server_id = boot(world)
    together = threading.Barrier(2)
    look_up = world.cloud.plain_server

    def plain_server(server_id: str) -> Any:
        together.wait(10)
        return look_up(server_id)

    world.cloud.plain_server = plain_server
    answers: list[Any] = []
    threads = [
        threading.Thread(target=lambda: answers.append(ask(world, server_id))) for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [answer.status_code for answer in answers] == [200, 200]
    assert answers[0].json == answers[1].json
    assert count(world) == 1


@pytest.mark.parametrize(
    "more",
    [
        {"extra_specs": {"hw:cpu_policy": "shared"}},
        {"lease_id": "lease-1"},  # GSaaS has made it: its user data has it all
        {"is_usable": False},
    ],
)
def test_other_servers_get_nothing(world, more):
    answer = ask(world, boot(world, **more))
    assert (answer.status_code, answer.json) == (200, None)
    assert count(world) == 0


def test_a_server_that_gsaas_has_made_gets_no_second_lease_though_its_owner_took_its_tag(world):
    launched = world.launch()
    world.engine.settle()
    with world.database.reading() as connection:
        server_id = leases.get(connection, launched["id"]).server_id
    boot(world)
    world.cloud.plain[server_id] = replace(
        next(iter(world.cloud.plain.values())), id=server_id, lease_id=None
    )
    assert ask(world, server_id).json is None
    assert count(world) == 1


def test_without_the_operators_consent_nothing_is_looked_at(make):
    world = make("")
    assert ask(world, boot(world)).json is None
    assert count(world) == 0


def test_an_operator_may_allow_properties_of_flavors_alone(make):
    world = make("[plain_servers]\nproperties = flavors\n")
    refused = ask(world, boot(world))
    assert refused.status_code == 400
    assert "only flavors" in only_error(refused)["detail"]
    assert ask(world, boot(world, extra_specs=SHARES)).status_code == 200


def test_only_services_and_operators_may_ask(world):
    server_id = boot(world)
    for caller, status in (("member", 403), ("manager", 403), (None, 401), ("admin", 200)):
        assert ask(world, server_id, caller=caller).status_code == status


def test_the_project_that_nova_names_has_to_be_the_servers(world):
    answer = ask(world, boot(world), project="red")
    assert answer.status_code == 404


def test_properties_that_make_no_sense_are_refused_with_a_sentence_and_nothing_is_stored(world):
    answer = ask(world, boot(world, metadata={"gsaas:ncgpus": "many"}))
    assert answer.status_code == 400
    assert "gsaas:ncgpus is 'many'" in only_error(answer)["detail"]
    unknown = ask(world, boot(world, metadata={"gsaas:ncgpus": "1", "gsaas:policy": "none"}))
    assert only_error(unknown)["code"] == "gsaas.policy.unknown"
    assert count(world) == 0


def test_an_owner_who_may_not_launch_gets_no_cgpus(world):
    answer = ask(world, boot(world), roles="reader")
    assert answer.status_code == 403
    assert "gsaas:leases:create" in only_error(answer)["detail"]
    assert count(world) == 0


@pytest.mark.parametrize(
    ("settings", "metadata", "said"),
    [
        (ALL, {"gsaas:ncgpus": "9"}, "8 GPUs"),
        (ALL + "[quotas]\ncgpus = 1\n", SHARES, "quota"),
        (ALL + "[api]\nmost_leases_stored = 0\n", SHARES, "more than 0 leases"),
        (ALL + "[plain_servers]\nno_gpu = wait\n[quotas]\ncgpus = 1\n", SHARES, "quota"),
    ],
)
def test_what_a_launch_would_be_refused_for_is_refused(make, settings, metadata, said):
    world = make(settings)
    refused = ask(world, boot(world, metadata=metadata))
    assert refused.status_code in (403, 409)
    assert said in only_error(refused)["detail"]
    assert not world.rows()["claims"]


def test_a_refusal_is_kept_so_that_all_who_look_later_decide_the_same(world):
    first, second = boot(world, metadata=EVERY_GPU), boot(world)
    assert ask(world, first).status_code == 200
    refused = ask(world, second)
    assert refused.status_code == 409
    reason = only_error(refused)["detail"]
    assert second in reason
    assert only_error(refused)["title"] == reason  # which is all that Nova shows of it
    world.call("member", "DELETE", f"/v1/leases/{lease_of(world, first).id}")
    world.engine.settle()
    assert only_error(ask(world, second))["detail"] == reason
    shown = world.call("member", "GET", f"/v1/leases/{lease_of(world, second).id}").json["lease"]
    assert (shown["status"], shown["fault"]["step"]) == (Status.RELEASED, "claim")
    assert shown["fault"]["message"] in reason
    assert [event["event"] for event in shown["events"]] == ["refuse"]


def test_a_server_may_wait_for_its_cgpus_with_its_environment(make):
    world = make(ALL + "no_gpu = wait\n")
    first, second = boot(world, metadata=EVERY_GPU), boot(world)
    ask(world, first)
    waiting = ask(world, second)
    assert waiting.status_code == 200
    assert lease_of(world, second).status == Status.QUEUED
    world.call("member", "DELETE", f"/v1/leases/{lease_of(world, first).id}")
    world.engine.settle()
    assert lease_of(world, second).status != Status.QUEUED
    assert ask(world, second).json == waiting.json  # the addresses were known before the GPUs


@pytest.mark.parametrize("name", ["", "a\nb", "\u202eevil"])
def test_a_name_that_would_deceive_whoever_prints_it_is_not_that_of_the_lease(world, name):
    server_id = boot(world, name=name)
    ask(world, server_id)
    assert lease_of(world, server_id).name == f"server-{server_id[:8]}"


def test_a_server_that_outlives_its_lease_gets_no_environment_and_no_error(world):
    server_id = boot(world)
    ask(world, server_id)
    world.call("member", "DELETE", f"/v1/leases/{lease_of(world, server_id).id}")
    world.engine.settle()
    answer = ask(world, server_id)
    assert (answer.status_code, answer.json) == (200, None)


def test_a_server_whose_lease_left_the_queue_can_be_unshelved(make):
    """Nova asks again when it makes a server anew: the server waited, and its owner shelved it, or ended the lease."""
    world = make(ALL + "no_gpu = wait\n")
    first, second = boot(world, metadata=EVERY_GPU), boot(world)
    ask(world, first)
    ask(world, second)
    world.call("member", "DELETE", f"/v1/leases/{lease_of(world, second).id}")
    world.engine.settle()
    assert lease_of(world, second).status == Status.RELEASED
    answer = ask(world, second)
    assert (answer.status_code, answer.json) == (200, None)


@pytest.mark.parametrize(("was_active", "status"), [(True, 200), (False, 409)])
def test_a_server_whose_lease_failed_can_be_rebuilt_if_it_had_its_cgpus_once(
    world, was_active, status
):
    server_id = boot(world)
    ask(world, server_id)
    with world.database.writing() as connection:
        lease_id = leases.of_server(connection, server_id).id
        known = {"activation": 1.0, **({"deployment": 1.0} if was_active else {})}
        leases.transition(connection, lease_id, Event.FAIL, fault_message="gone", timings=known)
    assert ask(world, server_id).status_code == status


def test_locality_refers_to_the_host_that_nova_has_chosen(world):
    local = {"gsaas:ncgpus": "1", "gsaas:locality": "local"}
    here = boot(world, metadata=local, host="gpu2")
    assert ask(world, here).status_code == 200
    assert {claim.gpu.host_name for claim in lease_of(world, here).claims} == {"gpu2"}
    assert ask(world, boot(world, metadata=local, host="compute1")).status_code == 409
    assert ask(world, boot(world, metadata=local, host=None)).json is None  # too early to say


def test_an_answer_that_comes_too_late_says_so_and_the_claim_goes_on(make):
    world = make(ALL + "vendordata_timeout = 0.1\n")
    server_id = boot(world)
    answering = threading.Event()
    look_up = world.cloud.plain_server

    def plain_server(server_id: str) -> Any:
        answering.wait(10)
        return look_up(server_id)

    world.cloud.plain_server = plain_server
    late = ask(world, server_id)
    assert late.status_code == 503
    assert only_error(late)["code"] == "gsaas.plain-server.late"
    answering.set()
    while lease_of(world, server_id) is None:
        pass
    world.conf.set_override("vendordata_timeout", 10.0, "plain_servers")
    assert ask(world, server_id).status_code == 200
    assert count(world) == 1


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"instance-id": "web", "project-id": "blue"},
        {"instance-id": str(uuid.UUID(int=1))},
        {"instance-id": str(uuid.UUID(int=1)), "project-id": "blue", "boot-roles": 7},
    ],
)
def test_a_body_that_nova_would_not_send_is_refused(world, body):
    assert world.call("service", "POST", "/v1/vendordata", body).status_code == 400
