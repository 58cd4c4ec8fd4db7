# SPDX-License-Identifier: Apache-2.0
"""A history on a cloud of GPUs, and how many GPUs it needs: small cases by hand, large ones that lose nothing."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from gsaas.gpgpums.pool import Pool
from gsaas.sim import plan, policies
from gsaas.sim.cloud import Outcome, Simulation, Site
from gsaas.sim.history import Demand
from gsaas.sim.plan import Costs, ServiceLevel, Unreachable

SITE = Site(2, 2, 1000)


def whole(number: int, arrival: float, duration: float, count: int) -> Demand:
    return Demand(number, arrival, duration, count, "exclusive", None)


def part(number: int, arrival: float, duration: float, memory_mb: int, count: int = 1) -> Demand:
    return Demand(number, arrival, duration, count, "shared", memory_mb)


def run(*demands: Demand, site: Site = SITE, **how: object) -> Outcome:
    return Simulation(demands, site, **how).run()


def starts(outcome: Outcome) -> list[float | None]:
    return [record.start for record in outcome.records]


THREE = (whole(0, 0, 10, 3), whole(1, 1, 10, 3), whole(2, 2, 10, 1))


def test_requests_wait_for_their_turn_and_no_request_overtakes():
    assert starts(run(*THREE)) == [0, 10, 10]


def test_with_backfill_a_request_that_delays_no_earlier_one_goes_ahead():
    """A GPU that the first in the queue could use, were it idle, is kept for it: here that is every one."""
    assert starts(run(*THREE, backfill=True)) == [0, 10, 10]


MIXED = Site(2, 2, 1000, "H200", beside=(Site(1, 1, 500, "L4"),))


def test_with_backfill_a_request_for_another_model_goes_ahead_and_no_other():
    """The third waits for H200s, as does the fourth; the fifth can use the L4 alone, which the sixth leaves alone."""
    demands = (
        *(replace(whole(number, number, 10, 3), model="H200") for number in range(2)),
        replace(whole(2, 2, 10, 1), model="H200"),
        replace(part(3, 3, 5, 400), model="L4"),
        part(4, 4, 5, 600),
    )
    assert starts(run(*demands, site=MIXED)) == [0, 10, 10, 10, 20]
    assert starts(run(*demands, site=MIXED, backfill=True)) == [0, 10, 10, 3, 20]


def test_a_site_of_two_kinds_adds_up():
    assert (MIXED.total_hosts, MIXED.total_gpus, MIXED.total_mb) == (3, 5, 4500)
    outcome = run(whole(0, 0, 10, 5), whole(1, 0, 10, 6), part(2, 0, 10, 600, 5), site=MIXED)
    assert starts(outcome) == [0, None, None]
    assert outcome.utilisation == pytest.approx(100)


def test_tied_to_its_host_a_request_cannot_use_what_is_scattered():
    """From 1 s on one GPU of each host is idle; both are wanted at 2 s."""
    demands = (whole(0, 0, 10, 1), whole(1, 0, 1, 1), whole(2, 0, 10, 1), whole(3, 2, 5, 2))
    assert starts(run(*demands)) == [0, 0, 0, 2]
    tied = run(*demands, locality="local")
    assert starts(tied) == [0, 0, 0, 10]
    assert all(record.hosts == 1 for record in tied.records)


def test_a_request_larger_than_the_cloud_is_refused_at_once():
    outcome = run(whole(0, 0, 1, 5), part(1, 0, 1, 1001), whole(2, 0, 1, 4))
    assert starts(outcome) == [None, None, 0]
    assert outcome.refused == 2
    assert run(whole(0, 0, 1, 3), locality="local").refused == 1


def required(number: int, **requirements: str) -> Demand:
    return replace(whole(number, number, 10, 2), **requirements)


def test_what_a_request_requires_is_what_it_gets():
    """Two GPUs each on two hosts; the second takes those of the first host, for which the third waits."""
    outcome = run(required(0, hosts="spread"), required(1, hosts="one"), required(2, host="gpu9"))
    assert [record.hosts for record in outcome.records] == [2, 1, 1]
    assert starts(outcome) == [0, 10, 20]


def test_hosts_that_a_history_names_are_hosts_of_the_site():
    outcome = run(required(0, host="b"), required(1, host="a"), required(2, host="b"))
    used = {(request, uuid.partition("-")[0]) for _, uuid, request, _ in outcome.occupancy}
    assert used == {(0, "host0001"), (1, "host0000"), (2, "host0001")}


def test_a_model_or_capability_that_the_site_lacks_is_refused_and_an_unknown_one_suits_all():
    demands = (
        required(0, model="h200"),
        required(1, model="T4"),
        required(2, capability="9.0"),
        required(3, capability="10.0"),
    )
    known = Site(2, 2, 1000, "NVIDIA H200", "9.0")
    assert [start is None for start in starts(run(*demands, site=known))] == [0, 1, 0, 1]
    assert run(*demands).refused == 0


def test_a_request_that_is_to_be_remote_needs_another_host_for_its_consumer():
    assert run(required(0, locality="remote"), site=Site(1, 2, 1000)).refused == 1
    assert run(required(0, locality="remote"), site=Site(2, 2, 1000)).refused == 0
    tied = run(required(0, hosts="spread"), required(1), locality="local")
    assert starts(tied) == [None, 1]


def test_utilisation_and_samples_add_up():
    outcome = run(whole(0, 0, 10, 2), part(1, 5, 10, 500))
    assert [(s.at, s.used_mb, s.busy_gpus, s.queue) for s in outcome.samples] == [
        (0, 2000, 2, 0),
        (5, 2500, 3, 0),
        (10, 500, 1, 0),
        (15, 0, 0, 0),
    ]
    assert outcome.utilisation == pytest.approx(100 * (2000 * 5 + 2500 * 5 + 500 * 5) / (15 * 4000))


def random_demands(count: int, seed: int) -> list[Demand]:
    rng = random.Random(seed)
    now, demands = 0.0, []
    for number in range(count):
        now += rng.expovariate(1 / 30)
        if rng.random() < 0.5:
            demands.append(whole(number, now, rng.uniform(10, 500), rng.choice([1, 2, 4])))
        else:
            memory = rng.choice([200, 500, 900])
            demands.append(part(number, now, rng.uniform(10, 500), memory, rng.choice([1, 3])))
    return demands


@pytest.mark.parametrize("policy", policies.names())
@pytest.mark.parametrize("locality", ["any", "local"])
def test_after_every_event_what_is_claimed_is_what_runs(policy: str, locality: str):
    def check(pool: Pool) -> None:
        assert all(0 <= gpu.used_mb <= gpu.memory_mb for gpu in pool)

    simulation = Simulation(
        random_demands(80, 2), Site(3, 4, 1000), policy=policy, locality=locality, check=check
    )
    outcome = simulation.run()
    assert all(gpu.used_mb == 0 for gpu in simulation.pool)
    assert sum(change for _, _, _, change in outcome.occupancy) == 0
    assert [record.id for record in outcome.records] == list(range(80))


def test_the_same_history_ends_the_same_way():
    demands = random_demands(60, 3)
    assert run(*demands).records == run(*demands).records


LEVEL = ServiceLevel(percent=100, wait=0)


def test_a_plan_names_the_fewest_hosts():
    """Eight at once, two GPUs to a host."""
    demands = [whole(number, 0, 10, 1) for number in range(8)]
    local, anywhere = plan.plan(demands, SITE, LEVEL)
    assert (local.site.hosts, anywhere.site.hosts) == (4, 4)


def test_cloudified_a_history_needs_fewer_hosts():
    """Three whole GPUs each: tied to hosts of four, one is wasted on each."""
    demands = [whole(number, 0, 10, 3) for number in range(4)]
    local, anywhere = plan.plan(demands, Site(1, 4, 1000), LEVEL)
    assert (local.site.hosts, anywhere.site.hosts) == (4, 3)


def test_a_longer_allowed_wait_needs_fewer_hosts():
    demands = [whole(number, 0, 10, 1) for number in range(8)]
    _, anywhere = plan.plan(demands, SITE, ServiceLevel(percent=50, wait=0))
    assert anywhere.site.hosts == 2
    _, anywhere = plan.plan(demands, SITE, ServiceLevel(percent=100, wait=30))
    assert anywhere.site.hosts == 1


def test_a_request_that_fits_no_gpu_is_an_error_that_says_how_to_plan_for_the_others():
    demands = [Demand(0, 0, 10, 1, "shared", 2000), whole(1, 0, 10, 1)]
    with pytest.raises(Unreachable, match=r"1 of 2 requests fit on no number .* --refused=PERCENT"):
        plan.plan(demands, SITE, LEVEL)
    for found in plan.plan(demands, SITE, ServiceLevel(100, 0, refused=50)):
        assert (found.site.hosts, found.outcome.refused) == (1, 1)


@pytest.mark.parametrize("percent", [100, 95, 50, 1])
def test_wide_requests_are_possible_only_cloudified(percent: float):
    """However few requests have to be served at once: refused ones are not slow ones."""
    demands = [whole(number, 0, 10, 3 if number == 0 else 1) for number in range(10)]
    tied, anywhere = plan.plan(demands, SITE, ServiceLevel(percent, 0))
    assert (tied.refused, tied.to_dict()["hosts"]) == (1, None)
    assert tied.to_dict()["impossible"] == "1 of 10 requests fit on no number of such hosts"
    assert anywhere.outcome.refused == 0
    assert tied.to_dict().keys() <= {*anywhere.to_dict(), "fleet"}


def test_refused_requests_are_allowed_by_the_level_alone():
    """Without those that it refuses, a tied cloud is smaller, and both say what they refuse."""
    demands = [whole(number, 0, 10, 3 if number == 0 else 1) for number in range(10)]
    tied, anywhere = plan.plan(demands, SITE, ServiceLevel(100, 0, refused=10))
    assert (tied.outcome.refused, tied.site.hosts) == (1, 5)
    assert (anywhere.outcome.refused, anywhere.site.hosts) == (0, 6)


def test_costs_per_year():
    costs = Costs(host=4000, gpu=10_000, years=4, kw_per_gpu=0.5, kw_per_host=1, kwh=0.2)
    power = (2 * 1 + 4 * 0.5) * 8760 * 0.2
    assert costs.per_year(SITE) == pytest.approx((2 * 4000 + 4 * 10_000) / 4 + power)
