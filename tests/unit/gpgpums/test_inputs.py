# SPDX-License-Identifier: Apache-2.0
"""What policies use beside free memory: the last claim, the utilisation of GPUs, and the recent requests."""

from __future__ import annotations

import datetime

import pytest
from oslo_utils import timeutils

from gsaas.db import models
from gsaas.gpgpums.mirror import READINGS_TTL
from gsaas.gpgpums.policies.fragmentation_gradient import fragmentation, growth
from gsaas.gpgpums.pool import RecentRequests
from gsaas.objects.request import Request
from tests.unit.gpgpums.test_claims import new_lease, open_claims, report

WHOLE = Request(1)


def store_readings(database, ages_and_percents):
    """Store a reading of each GPU: its age in seconds, and the utilisation in percent."""
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


def claimed_gpus(claims, *requests, policy):
    """Claim GPUs for each of *requests*, and return their UUIDs."""
    leases = [claims.claim(new_lease(request), request, policy) for request in requests]
    return [[claim.gpu_uuid for claim in lease.claims] for lease in leases]


@pytest.fixture
def cloud(database):
    report(database, "a", 4000, 4000, 4000, 4000)
    return database


# The last claim


def test_round_robin_continues_in_every_worker_and_after_a_restart(cloud):
    part = Request(1, "shared", 100)
    workers = [open_claims(cloud), open_claims(cloud)]
    chosen = [claimed_gpus(worker, part, policy="round-robin")[0] for worker in workers * 2]
    assert chosen == [["a0"], ["a1"], ["a2"], ["a3"]]
    assert claimed_gpus(open_claims(cloud), part, policy="round-robin") == [["a0"]]


def test_a_returned_gpu_keeps_its_position_in_the_round(cloud):
    claims = open_claims(cloud)
    for uuid in ("a0", "a1", "a2", "a3", "a0"):
        lease = claims.claim(new_lease(WHOLE), WHOLE, "round-robin")
        assert [claim.gpu_uuid for claim in lease.claims] == [uuid]
        claims.release(lease.id)


def test_the_gpu_of_the_last_cgpu_is_the_one_claimed_last(cloud):
    claims = open_claims(cloud)
    three, two = Request(3, "shared", 100), Request(2, "shared", 100)
    assert claimed_gpus(claims, three, two, two, policy="round-robin") == [
        ["a0", "a1", "a2"],
        ["a3", "a0"],
        ["a1", "a2"],
    ]


# Utilisation


def test_the_gpu_with_the_lowest_recent_utilisation_is_chosen(cloud):
    store_readings(cloud, {"a0": (1, 50.0), "a1": (1, 0.4), "a2": (400, 0.0), "a3": (1, None)})
    assert claimed_gpus(open_claims(cloud), *[WHOLE] * 4, policy="best-fit-utilisation") == [
        ["a1"],
        ["a0"],
        ["a2"],
        ["a3"],
    ]


def test_new_readings_are_read_once_the_cached_ones_have_expired(cloud, monkeypatch):
    now = [100.0]
    monkeypatch.setattr(timeutils, "now", lambda: now[0])
    claims = open_claims(cloud)
    busy = {"a0": (0, 9.0), "a1": (0, 9.0), "a2": (0, 9.0), "a3": (0, 9.0)}
    store_readings(cloud, busy | {"a2": (0, 1.0)})
    policy = "best-fit-utilisation"
    assert [share.gpu_uuid for share in claims.check(WHOLE, policy).shares] == ["a2"]

    store_readings(cloud, busy)
    store_readings(cloud, {"a3": (0, 1.0)})
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
    """1000 MiB of 4000 are free. Of ten requests four ask for 1500 MiB, one for an H200, one for a CPU device."""
    mix = (
        (Request(1, "shared", 500), 4),
        (Request(1, "shared", 1500), 4),
        (Request(1, "shared", 500, gpu_model="H200"), 1),
        (Request(1, "shared", 500, kind="cpu"), 1),
    )
    a100 = ("cuda", "A100", (8, 0))
    gpu = (1000, 4000, a100)
    assert fragmentation(gpu, mix) == 1000 * 6 / 10
    assert fragmentation((4000, 4000, a100), ((WHOLE, 1),)) == 0
    assert fragmentation((3999, 4000, a100), ((WHOLE, 1),)) == 3999
    assert growth(gpu, Request(1, "shared", 600), mix) == 400 - 600
    assert growth(gpu, Request(1, "shared", 500), mix) == 500 * 6 / 10 - 600
    assert growth(gpu, Request(1, "shared", 1000), mix) == -600


def test_free_memory_is_kept_for_the_usual_requests(cloud):
    """After requests for 3000 MiB, those for 1000 MiB go where 3000 MiB do not fit any more."""
    claims, policy = open_claims(cloud), "fragmentation-gradient"
    large, small = Request(1, "shared", 3000), Request(1, "shared", 1000)
    taken = claimed_gpus(claims, large, large, small, small, policy=policy)
    assert [uuid for [uuid] in taken] == ["a0", "a1", "a0", "a1"]
