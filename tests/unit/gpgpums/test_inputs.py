"""What policies look at beyond free memory: turns, how busy GPUs were, and the mix of requests."""

from __future__ import annotations

import datetime

import pytest
from oslo_utils import timeutils

from gsaas.db import models
from gsaas.gpgpums.policies.fragmentation_gradient import fragmentation, growth
from gsaas.gpgpums.pool_cache import READINGS_TTL
from gsaas.gpgpums.recent_requests import RecentRequests
from gsaas.objects.request import Request
from tests.unit.gpgpums.test_claims import new_lease, open_claims, report

WHOLE = Request(1)


def read(database, ages_and_percents):
    """Monitors have read of each GPU, so many seconds ago, that it was so busy."""
    now = timeutils.utcnow()
    with database.write() as session:
        for uuid, (age, percent) in ages_and_percents.items():
            session.merge(
                models.GpuReadingRow(
                    gpu_uuid=uuid,
                    at=now - datetime.timedelta(seconds=age),
                    mean_utilisation=percent,
                )
            )


def given(claims, *requests, policy):
    """The GPUs that each of *requests* gets."""
    leases = [claims.claim(new_lease(request), request, policy) for request in requests]
    return [[claim.gpu_uuid for claim in lease.claims] for lease in leases]


@pytest.fixture
def cloud(database):
    report(database, "a", 4000, 4000, 4000, 4000)
    return database


# Turns


def test_turns_go_on_in_every_worker_and_after_a_restart(cloud):
    part = Request(1, "shared", 100)
    workers = [open_claims(cloud), open_claims(cloud)]
    dealt = [given(worker, part, policy="round-robin")[0] for worker in workers * 2]
    assert dealt == [["a0"], ["a1"], ["a2"], ["a3"]]
    assert given(open_claims(cloud), part, policy="round-robin") == [["a0"]]


def test_what_is_given_back_keeps_its_turn(cloud):
    claims = open_claims(cloud)
    for uuid in ("a0", "a1", "a2", "a3", "a0"):
        lease = claims.claim(new_lease(WHOLE), WHOLE, "round-robin")
        assert [claim.gpu_uuid for claim in lease.claims] == [uuid]
        claims.returns.release(lease.id)


def test_the_last_cgpu_of_a_lease_is_the_one_given_last(cloud):
    claims = open_claims(cloud)
    three, two = Request(3, "shared", 100), Request(2, "shared", 100)
    assert given(claims, three, two, two, policy="round-robin") == [
        ["a0", "a1", "a2"],
        ["a3", "a0"],
        ["a1", "a2"],
    ]


# How busy GPUs were


def test_the_gpu_that_was_least_busy_lately_is_given(cloud):
    read(cloud, {"a0": (1, 50.0), "a1": (1, 0.4), "a2": (400, 0.0), "a3": (1, None)})
    assert given(open_claims(cloud), *[WHOLE] * 4, policy="best-fit-utilisation") == [
        ["a1"],
        ["a0"],
        ["a2"],
        ["a3"],
    ]


def test_new_readings_are_taken_over_once_the_old_ones_have_had_their_time(cloud, monkeypatch):
    now = [100.0]
    monkeypatch.setattr(timeutils, "now", lambda: now[0])
    claims = open_claims(cloud)
    busy = {"a0": (0, 9.0), "a1": (0, 9.0), "a2": (0, 9.0), "a3": (0, 9.0)}
    read(cloud, busy | {"a2": (0, 1.0)})
    policy = "best-fit-utilisation"
    assert [share.gpu_uuid for share in claims.check(WHOLE, policy).shares] == ["a2"]

    read(cloud, busy)
    read(cloud, {"a3": (0, 1.0)})
    assert [share.gpu_uuid for share in claims.check(WHOLE, policy).shares] == ["a2"]
    now[0] += READINGS_TTL + 1
    assert [share.gpu_uuid for share in claims.check(WHOLE, policy).shares] == ["a3"]


# The mix of requests


def test_the_mix_counts_cgpus_of_a_kind_and_forgets_the_oldest_request():
    recent = RecentRequests(2)
    small, large = Request(1, "shared", 100), Request(1, "shared", 900)
    for request in (large, small.with_(count=3, locality="local"), small):
        recent.add(request)
    assert recent.mix == ((small, 4),)
    recent.add(large.with_(hosts="one"))
    assert dict(recent.mix) == {small: 1, large: 1}


def test_fragments_are_what_the_usual_requests_cannot_use():
    """1000 MiB are free of 4000. A third asks for 1500 MiB, one in six for an H200."""
    mix = (
        (Request(1, "shared", 500), 3),
        (Request(1, "shared", 1500), 2),
        (Request(1, "shared", 500, gpu_model="H200"), 1),
    )
    gpu = (1000, 4000, "A100", (8, 0))
    assert fragmentation(gpu, mix) == 1000 * 3 / 6
    assert fragmentation((4000, 4000, "A100", (8, 0)), ((WHOLE, 1),)) == 0
    assert fragmentation((3999, 4000, "A100", (8, 0)), ((WHOLE, 1),)) == 3999
    assert growth(gpu, Request(1, "shared", 600), mix) == 400 - 500
    assert growth(gpu, Request(1, "shared", 500), mix) == 500 * 3 / 6 - 500
    assert growth(gpu, Request(1, "shared", 1000), mix) == -500


def test_gaps_are_left_to_those_who_use_them(cloud):
    """Two ask for 3000 MiB each before one asks for 1000: its place is where they were."""
    claims, policy = open_claims(cloud), "fragmentation-gradient"
    large, small = Request(1, "shared", 3000), Request(1, "shared", 1000)
    taken = given(claims, large, large, small, small, policy=policy)
    assert [uuid for [uuid] in taken] == ["a0", "a1", "a0", "a1"]
