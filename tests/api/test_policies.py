# SPDX-License-Identifier: Apache-2.0
"""Which policies are installed, which ones a request may name, and how an admin sets the default."""

from __future__ import annotations

import pytest

from gsaas.gpgpums import policies
from gsaas.gpgpums.rules import PolicySelection
from tests.api.world import World, only_error
from tests.support.scheduling import open_claims

POLICIES = "/v1/policies"


def set_default(world, name, caller="admin"):
    return world.call(caller, "PATCH", POLICIES, {"policies": {"default": name}})


def defaults(world):
    listed = world.call("reader", "GET", POLICIES).json["policies"]
    return [policy["name"] for policy in listed if policy["default"]]


@pytest.fixture
def strict(tmp_path):
    """A cloud whose requests may name energy, and best-fit, which is the default."""
    settings = "[gpgpums]\npolicy = best-fit\nallowed_policies = energy\n"
    world = World.build(tmp_path, settings=settings)
    yield world
    world.database.close()


def test_every_policy_describes_its_rule_its_source_and_its_disadvantages(world):
    listed = world.call("reader", "GET", POLICIES).json["policies"]
    assert [policy["name"] for policy in listed] == policies.names()
    for policy in listed:
        assert policy["allowed"]
        assert policy["source"]
        assert policy["description"].endswith(".")
        shown = world.call("reader", "GET", f"{POLICIES}/{policy['name']}").json["policy"]
        assert "price" in shown.pop("about") or policy["name"] == "worst-fit"
        assert shown == policy


def test_a_policy_that_is_not_there_is_not_found(world):
    error = only_error(world.call("reader", "GET", f"{POLICIES}/best-guess"))
    assert (error["status"], error["detail"]) == (404, "there is no policy best-guess")


def test_a_new_default_serves_from_the_next_request_on_in_every_worker(world):
    other = open_claims(world.database, attempts=3)
    other.check(_one_gpu())
    assert world.launch()["cgpus"]["policy"] == "least-load-fit"

    assert set_default(world, "round-robin").json["policy"]["default"] is True

    assert world.launch()["cgpus"]["policy"] == "round-robin"
    assert defaults(world) == ["round-robin"]
    assert other.policies.default("round-robin").name == "round-robin"
    lease = _lease()
    assert other.claim(lease, _one_gpu()).policy == "round-robin"

    shown = set_default(world, None).json["policy"]
    assert (shown["name"], shown["configured"]) == ("least-load-fit", True)
    assert world.launch()["cgpus"]["policy"] == "least-load-fit"


@pytest.mark.parametrize("name", ["best-guess", "Energy"])
def test_a_default_that_is_not_installed_is_refused(world, name):
    before = world.rows()
    error = only_error(set_default(world, name))
    assert (error["status"], error["code"]) == (400, "gsaas.policy.unknown")
    assert "energy" in error["detail"]
    assert world.rows() == before


def test_a_stored_default_that_is_not_installed_is_reported_and_the_configured_one_is_used(
    world, caplog
):
    set_default(world, "energy")
    choice = PolicySelection(
        "first-fit", known={"first-fit": world.claims.policies.known["first-fit"]}
    )
    assert choice.default("energy").name == "first-fit"
    assert "was set to 'energy', which does not work here: first-fit serves" in caplog.text


def test_a_request_may_name_an_allowed_policy_and_the_default(strict):
    assert strict.launch()["cgpus"]["policy"] == "best-fit"
    assert strict.launch(policy="energy")["cgpus"]["policy"] == "energy"
    assert strict.launch(policy="best-fit")["cgpus"]["policy"] == "best-fit"


@pytest.mark.parametrize("wait", [{}, {"wait": 60}], ids=["now", "waiting"])
def test_a_policy_that_is_kept_from_requests_is_refused_with_those_that_are_not(strict, wait):
    before = strict.rows()
    body = {"lease": {"cgpus": {"count": 1, "policy": "first-fit"}}}
    error = only_error(strict.call("member", "POST", "/v1/leases", body))
    assert (error["status"], error["code"]) == (400, "gsaas.policy.not-allowed")
    assert error["detail"].endswith("use one of best-fit, energy")
    assert strict.rows() == before


def test_what_an_admin_makes_the_default_may_be_named(strict):
    set_default(strict, "first-fit")
    assert strict.launch(policy="first-fit")["cgpus"]["policy"] == "first-fit"
    assert (
        only_error(
            strict.call(
                "member", "POST", "/v1/checks", {"check": {"count": 1, "policy": "best-fit"}}
            )
        )["code"]
        == "gsaas.policy.not-allowed"
    )


@pytest.mark.parametrize(
    "settings",
    ["policy = best-guess", "allowed_policies = energy,best-guess"],
)
def test_the_error_for_an_unknown_policy_in_the_configuration_lists_those_that_exist(
    tmp_path, settings
):
    with pytest.raises(ValueError, match="'best-guess', which does not work here; those that do"):
        World.build(tmp_path, settings=f"[gpgpums]\n{settings}\n")


def test_a_policy_with_an_invalid_option_is_left_out_and_the_log_says_why(tmp_path, caplog):
    world = World.build(tmp_path, settings="[gpgpums]\nfewer_jobs_node_inside = nothing\n")
    assert sorted(world.claims.policies.known) == [
        name for name in policies.names() if name != "fewer-jobs-node"
    ]
    assert "fewer_jobs_node_inside is 'nothing', but may be one of best-fit" in caplog.text
    world.database.close()


def test_the_policy_inside_a_host_is_a_knob(tmp_path):
    world = World.build(tmp_path, settings="[gpgpums]\nfewer_jobs_node_inside = first-fit\n")
    world.launch(policy="first-fit", mode="shared", memory_mb=100)
    world.launch(policy="fewer-jobs-node", mode="shared", memory_mb=100)
    lease = world.launch(policy="fewer-jobs-node", mode="shared", memory_mb=100)
    shown = world.call("admin", "GET", f"/v1/leases/{lease['id']}").json["lease"]
    assert [device["gpu_uuid"] for device in shown["devices"]] == ["GPU-0001-0"]
    world.database.close()


def _one_gpu():
    from gsaas.objects.request import Request

    return Request(1)


def _lease():
    from tests.support import rows

    return rows.new_lease("other", mode="exclusive", memory_mb=None)
