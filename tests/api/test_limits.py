# SPDX-License-Identifier: Apache-2.0
"""Quotas: what a project uses is counted exactly, also with concurrent requests."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.api.world import World, only_error

QUOTAS = "[quotas]\ncgpus = 5\ngpu_memory_mb = 20000\nleases = 3\n"


@pytest.fixture
def limited(tmp_path):
    """The small cloud with a quota of 5 cGPUs, 20,000 MiB and 3 leases for each project."""
    made = World.build(tmp_path, settings=QUOTAS)
    yield made
    made.database.close()


def used(world: World, caller: str = "member") -> dict[str, int]:
    limits = world.call(caller, "GET", "/v1/limits").json["limits"]
    return {name: amount["used"] for name, amount in limits.items()}


def refused(world: World, **cgpus) -> dict:
    """Launch what exceeds the quota; return the error, after checking that nothing has changed."""
    before = {name: rows for name, rows in world.rows().items() if name != "projects"}
    body = {"lease": {"cgpus": {"count": 1} | cgpus}}
    error = only_error(world.call("member", "POST", "/v1/leases", body))
    assert (error["status"], error["code"]) == (403, "gsaas.quota.exceeded")
    assert {name: rows for name, rows in world.rows().items() if name != "projects"} == before
    return error


def test_limits_and_use_are_shown_to_the_project(limited):
    limited.launch(mode="shared", memory_mb=1000, count=2)
    limited.launch(count=1)  # a whole GPU of 8192 MiB
    assert limited.call("reader", "GET", "/v1/limits").json == {
        "limits": {
            "cgpus": {"limit": 5, "used": 3},
            "gpu_memory_mb": {"limit": 20000, "used": 10192},
            "leases": {"limit": 3, "used": 2},
        }
    }
    assert used(limited, "stranger") == {"cgpus": 0, "gpu_memory_mb": 0, "leases": 0}


def test_where_there_are_no_limits_use_is_counted_all_the_same(world):
    world.launch(count=2)
    limits = world.call("reader", "GET", "/v1/limits").json["limits"]
    assert limits["cgpus"] == {"limit": -1, "used": 2}


@pytest.mark.parametrize(
    ("held", "asked", "over"),
    [
        (
            [{"count": 4, "mode": "shared", "memory_mb": 1}],
            {"count": 2, "mode": "shared", "memory_mb": 1},
            [{"name": "cgpus", "used": 4, "asked": 2, "limit": 5}],
        ),
        (
            [{"count": 2}],
            {"count": 1},
            [{"name": "gpu_memory_mb", "used": 16384, "asked": 8192, "limit": 20000}],
        ),
        (
            [{"mode": "shared", "memory_mb": 1}] * 3,
            {"mode": "shared", "memory_mb": 1},
            [{"name": "leases", "used": 3, "asked": 1, "limit": 3}],
        ),
    ],
    ids=["cgpus", "gpu_memory_mb", "leases"],
)
def test_a_launch_beyond_the_quota_is_refused_and_says_used_asked_and_limit(
    limited, held, asked, over
):
    for cgpus in held:
        limited.launch(**cgpus)
    error = refused(limited, **asked)
    assert error["gsaas"] == {"quotas": over}
    for row in over:
        for number in (row["used"], row["asked"], row["limit"]):
            assert str(number) in error["detail"]


def test_exactly_the_quota_is_granted(limited):
    limited.launch(count=5, mode="shared", memory_mb=4000)
    assert used(limited) == {"cgpus": 5, "gpu_memory_mb": 20000, "leases": 1}
    refused(limited, mode="shared", memory_mb=1)


def test_projects_are_counted_separately(limited):
    limited.launch(count=5, mode="shared", memory_mb=1)
    limited.launch("stranger", count=5, mode="shared", memory_mb=1)


def test_what_is_released_may_be_claimed_again(limited):
    lease = limited.launch(count=5, mode="shared", memory_mb=1)
    limited.call("member", "DELETE", f"/v1/leases/{lease['id']}")
    refused(limited, mode="shared", memory_mb=1)  # until its GPUs are really back, it counts
    limited.engine.settle()
    assert used(limited) == {"cgpus": 0, "gpu_memory_mb": 0, "leases": 0}
    limited.launch(count=5, mode="shared", memory_mb=1)


def test_a_failed_lease_without_gpus_is_not_counted(limited):
    lease = limited.launch(count=5, mode="shared", memory_mb=1)
    limited.engine.fail(lease["id"], "boot", "the host went away")
    assert used(limited) == {"cgpus": 0, "gpu_memory_mb": 0, "leases": 0}


def test_a_check_considers_the_quota(limited):
    limited.launch(count=4, mode="shared", memory_mb=1)
    check = {"count": 2, "mode": "shared", "memory_mb": 1}
    answer = limited.call("member", "POST", "/v1/checks", {"check": check}).json["check"]
    assert (answer["fits"], answer["code"]) == (False, "gsaas.quota.exceeded")
    assert "4 of at most 5" in answer["reason"]
    assert answer["devices"] == []
    answer = limited.call("stranger", "POST", "/v1/checks", {"check": check}).json["check"]
    assert answer["fits"]


def test_many_launches_at_once_get_the_quota_and_no_more(limited):
    body = {"lease": {"cgpus": {"count": 2, "mode": "shared", "memory_mb": 10}}}
    with ThreadPoolExecutor(8) as pool:
        answers = list(
            pool.map(lambda _: limited.call("member", "POST", "/v1/leases", body), range(16))
        )
    statuses = sorted(answer.status_code for answer in answers)
    assert statuses == [202] * 2 + [403] * 14
    assert used(limited) == {"cgpus": 4, "gpu_memory_mb": 40, "leases": 2}
